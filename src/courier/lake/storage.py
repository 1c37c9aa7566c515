"""Where files of a lake lie: a folder, or a bucket of S3 that the usual AWS variables lead to.

Credentials are left to the libraries, which look for them where AWS says: in the environment, in
profiles, at the machine. Executors of a cluster need them, too.
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from courier import files, ids

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

SCHEME = "s3://"
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
REGION = "us-east-1"
CONNECT_S_MAX = 10.0
REQUEST_S_MAX = 60.0
TRIES = 5
_REASON_CHARACTERS = 200
_SCHEMES = ("http", "https")
# AWS' name for a server that does not answer.
_AWAY = "NETWORK_CONNECTION"


def is_elsewhere(uri: str) -> bool:
    """Whether it is not on a disk of this machine."""
    return "://" in uri


def filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """What reads and writes files at an address or in a folder, and where they are in it."""
    if not is_elsewhere(uri):
        return pafs.LocalFileSystem(), uri.rstrip("/")
    return _bucket_system(_endpoint(), _region()), uri.removeprefix(SCHEME).rstrip("/")


def put(uri: str, content: bytes) -> None:
    """Write a file as a whole: once this returns it is durable, and before that it is not there."""
    system, path = filesystem(uri)
    if not is_elsewhere(uri):
        files.make_directory(Path(path).parent)
        files.write(Path(path), content)
        return
    with system.open_output_stream(path) as file:
        file.write(content)


def delta_options(uri: str) -> dict[str, str]:
    """What delta-rs needs to know: with conditional puts, two writers cannot lose a commit."""
    if not is_elsewhere(uri):
        return {}
    endpoint = _endpoint()
    options = {"AWS_REGION": _region(), "aws_conditional_put": "etag"}
    if endpoint:
        plain = str(endpoint.startswith("http://")).lower()
        options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": plain}
    return options


def bucket_for_duckdb() -> "AbstractFileSystem":
    """What DuckDB in this process reads buckets with: it has no S3 without an extension."""
    from fsspec.implementations.arrow import ArrowFSWrapper

    class Bucket(ArrowFSWrapper):  # type: ignore[misc]
        protocol = SCHEME.removesuffix("://")

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path.removeprefix(SCHEME)

    return Bucket(filesystem(SCHEME)[0], skip_instance_cache=True)


def iceberg_options(uri: str) -> dict[str, str]:
    """What pyiceberg needs to know, besides credentials, which it finds as Arrow does."""
    options = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    if is_elsewhere(uri):
        options["s3.region"] = _region()
        if endpoint := _endpoint():
            options["s3.endpoint"] = endpoint
    return options


def hindrance(uri: str, *, write: bool) -> str:
    """Why a lake cannot be read there, or written to, in words; empty when it can."""
    if not is_elsewhere(uri):
        return ""
    bucket = uri.removeprefix(SCHEME).partition("/")[0]
    if not uri.startswith(SCHEME) or not bucket:
        return f"a lake is in a folder or at {SCHEME}BUCKET/PATH, not at {uri}"
    endpoint = _endpoint()
    where = f"the object storage at {endpoint or 'AWS'}"
    try:
        place = urlsplit(endpoint)
        if endpoint and not (place.scheme in _SCHEMES and place.netloc):
            return f"the endpoint of object storage must be http://… or https://…, not '{endpoint}'"
        system, root = filesystem(uri)
        if system.get_file_info(bucket).type == pafs.FileType.NotFound:
            return f"{where} has no bucket '{bucket}': create it first"
        system.get_file_info(pafs.FileSelector(f"{root}/_probes", allow_not_found=True))
        if write:
            _probe(system, f"{root}/_probes/{ids.new_id()}")
    except (OSError, ValueError) as error:
        reason = _reason(error)
        if reason.startswith(_AWAY):
            return f"{where} cannot be reached: {reason}"
        return f"{where} refuses bucket '{bucket}': {reason}"
    return ""


def _probe(system: pafs.FileSystem, path: str) -> None:
    with system.open_output_stream(path) as file:
        file.write(b"Courier was here, to see whether it may write.")
    system.delete_file(path)


def _reason(error: Exception) -> str:
    """AWS' name of the error and what the server said, in one line."""
    text = " ".join(str(error).split())
    text = text.partition("AWS Error ")[2] or text
    return text[:_REASON_CHARACTERS].rstrip(".: ")


@lru_cache(maxsize=4)
def _bucket_system(endpoint: str, region: str) -> pafs.FileSystem:
    place = urlsplit(endpoint)
    return pafs.S3FileSystem(
        region=region,
        endpoint_override=place.netloc or None,
        scheme=place.scheme or "https",
        connect_timeout=CONNECT_S_MAX,
        request_timeout=REQUEST_S_MAX,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=TRIES),
    )


def _endpoint() -> str:
    return next(filter(None, map(os.environ.get, ENDPOINTS)), "")


def _region() -> str:
    return next(filter(None, map(os.environ.get, REGIONS)), REGION)
