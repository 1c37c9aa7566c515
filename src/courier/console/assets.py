"""The style sheet and the script, each under a name that changes with what is in it."""

import gzip
from hashlib import blake2b
from pathlib import Path

from msgspec.structs import replace

from courier.console.guard import HEADERS
from courier.web import Call, Handler, NoRoute, Response

_STATIC = Path(__file__).parent / "static"
_TYPES = {".css": b"text/css; charset=utf-8", ".js": b"text/javascript; charset=utf-8",
          ".svg": b"image/svg+xml"}  # fmt: skip
_KEPT = (b"cache-control", b"public, max-age=31536000, immutable")


class Files:
    """`names` leads from a file's name to the one that it is served under."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self._files: dict[str, Response] = {}
        self._packed: dict[str, Response] = {}
        for path in sorted(_STATIC.iterdir()):
            if path.suffix not in _TYPES:
                continue
            content = path.read_bytes()
            digest = blake2b(content, digest_size=8).hexdigest()
            name = f"{path.stem}.{digest}{path.suffix}"
            self.names[path.name] = name
            headers = (*HEADERS, _KEPT, (b"vary", b"accept-encoding"))
            self._files[name] = Response(content, content_type=_TYPES[path.suffix], headers=headers)
            self._packed[name] = replace(
                self._files[name],
                body=gzip.compress(content, mtime=0),
                headers=(*headers, (b"content-encoding", b"gzip")),
            )

    def handlers(self) -> dict[str, Handler]:
        return {"send_file": self.send_file}

    async def send_file(self, call: Call) -> Response:
        found = self._files.get(call.params["file"])
        if found is None:
            raise NoRoute(call.request.path)
        return self._packed[call.params["file"]] if _takes_gzip(call) else found


def _takes_gzip(call: Call) -> bool:
    return "gzip" in call.request.header(b"accept-encoding")
