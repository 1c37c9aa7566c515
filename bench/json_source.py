"""The journal as Spark would read it without Arrow: the same pages, as lines of JSON."""

import base64
import http.client
from collections.abc import Iterator, Sequence
from itertools import pairwise
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from courier.arrow import SCHEMA
from courier.core.journal import SHOWN, TIMES
from courier.lake.schema import EVENTS

PAGE_ROWS = 16_384
_JSON = ("headers", "detail")


class JsonSource(DataSource):
    """Options: url, token, last (the offset to read up to), parts."""

    @classmethod
    def name(cls) -> str:
        return "courier_json"

    def schema(self) -> StructType:
        return EVENTS.spark()

    def reader(self, schema: StructType) -> "JsonReader":
        given = self.options
        return JsonReader(given["url"], given["token"], int(given["last"]), int(given["parts"]))


class Range(InputPartition):
    def __init__(self, after: int, upto: int) -> None:
        super().__init__(None)
        self.after = after
        self.upto = upto


class JsonReader(DataSourceReader):
    def __init__(self, url: str, token: str, last: int, parts: int) -> None:
        self._url = url
        self._token = token
        self._last = last
        self._parts = parts

    def partitions(self) -> Sequence[InputPartition]:
        edges = [self._last * n // self._parts for n in range(self._parts + 1)]
        return [Range(low, high) for low, high in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        decode = msgspec.json.Decoder().decode
        address = urlsplit(self._url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port)
        after = partition.after
        while after < partition.upto:
            limit = min(PAGE_ROWS, partition.upto - after)
            headers = {"authorization": f"Bearer {self._token}"}
            connection.request("GET", f"/journal?after={after}&limit={limit}", headers=headers)
            answer = connection.getresponse()
            page = answer.read()
            after = int(answer.headers["x-courier-upto"])
            yield _batch([decode(line) for line in page.splitlines()])
        connection.close()


def _batch(events: list[dict[str, object]]) -> pa.RecordBatch:
    arrays = []
    for field in SCHEMA:
        name = SHOWN[field.name]
        if name == "body":
            values: list[object] = [_body(event) for event in events]
        elif name in _JSON:
            found = [event.get(name) for event in events]
            values = [None if each is None else msgspec.json.encode(each) for each in found]
        else:
            values = [event.get(name) for event in events]
        if name in TIMES:
            arrays.append(pa.array(values, pa.timestamp("ms", tz="UTC")).cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.record_batch(arrays, schema=SCHEMA)


def _body(event: dict[str, object]) -> bytes | None:
    if "body_base64" in event:
        return base64.b64decode(str(event["body_base64"]))
    return str(event["body"]).encode() if "body" in event else None
