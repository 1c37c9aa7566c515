"""The server's certificate: loaded at the start, and again when its files change."""

import logging
import ssl
from pathlib import Path

LOOK_EVERY_S = 30.0

log = logging.getLogger("courier.tls")


class BadCertificate(Exception):
    """Certificate or key cannot be used; the message is one sentence for the operator."""


class Certificate:
    """A certificate chain and its key, as files. Raises BadCertificate."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = Path(certificate)
        self._key = Path(key)
        self._seen = self._stamp()
        self.context = self._load()

    def reload(self) -> None:
        """Use what the files hold now; if that is no good, what was good before stays."""
        try:
            self._seen = self._stamp()
            self.context = self._load()
        except BadCertificate as error:
            log.error("certificate_not_reloaded", extra={"reason": str(error)})
        else:
            log.info("certificate_reloaded", extra={"file": str(self._certificate)})

    def reload_if_changed(self) -> None:
        try:
            changed = self._stamp() != self._seen
        except BadCertificate:  # between two renames, perhaps; a reload would say so
            return
        if changed:
            self.reload()

    def _stamp(self) -> list[tuple[int, int, int]]:
        stamps = []
        for file in (self._certificate, self._key):
            try:
                found = file.stat()
            except OSError as error:
                raise BadCertificate(f"cannot read {file}: {error.strerror}") from error
            stamps.append((found.st_mtime_ns, found.st_ino, found.st_size))
        return stamps

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # Without a password of its own OpenSSL would ask for one on the terminal.
            context.load_cert_chain(self._certificate, self._key, password="")
        except ssl.SSLError as error:
            reason = error.reason or "it is not PEM"
            files = f"{self._certificate} and {self._key}"
            raise BadCertificate(f"{files} are no certificate and its key: {reason}") from error
        except OSError as error:
            file = error.filename or f"{self._certificate} or {self._key}"
            raise BadCertificate(f"cannot read {file}: {error.strerror}") from error
        return context


def certificate(certificate: str, key: str) -> Certificate | None:
    """None when no TLS is wanted. Raises BadCertificate."""
    if not certificate and not key:
        return None
    if not certificate or not key:
        raise BadCertificate("tls_certificate and tls_key belong together: set both, or neither")
    return Certificate(certificate, key)
