"""The broker over HTTP, as executors and the driver see it: journal, publish, claims.

Whatever is asked for can be asked for again, so a broker that is away for a moment is waited for.
"""

import http.client
import json
import re
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from courier.requester import BadAddress, Requester, TooLong

# Loaded late: Spark starts processes that only plan, and it is half of what they load.
if TYPE_CHECKING:
    import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"
AWAY_S_MAX = 120
# A mistyped address should fail sooner than a broker that restarts.
FIRST_S_MAX = 20
WAIT_S_MAX = 5.0
# Away for a moment, or asked too often: the same may be asked again.
_AWAY = (429, 502, 503, 504)


class CourierError(Exception):
    """The broker refused, or cannot be reached; one sentence for the person who asked."""


class Away(CourierError):
    """The broker cannot be reached."""


class Trimmed(CourierError):
    """Events that were asked for are not in the journal any more."""


class Recreated(CourierError):
    """The journal is not the one that the offsets are of."""


class Missing(CourierError):
    """There is no such tenant, queue, listener or claim."""


class ClaimEnded(CourierError):
    """A claim's lease has ended before it was acknowledged."""


class RowsDiffer(CourierError):
    """Other rows were published under a key before."""


# By the code that the broker gives with its sentence.
_REFUSALS: dict[str, type[CourierError]] = {
    "not_found": Missing,
    "claim_lost": ClaimEnded,
    "rows_changed": RowsDiffer,
    "trimmed": Trimmed,
}


@dataclass(frozen=True)
class JournalRange:
    """The journal holds offsets `first` to `last`; `epoch` changes when the store is recreated."""

    first: int
    last: int
    epoch: str


@dataclass(frozen=True)
class Registered:
    """A reader that the journal waits for, and how many events it lost all the same."""

    name: str
    offset: int
    lost: int


@dataclass(frozen=True)
class Published:
    """How many rows were new, and the digest of all rows of their key up to the last of them."""

    new: int
    digest: str


@dataclass(frozen=True)
class Place:
    """Where the broker is, and as whom to speak to it; travels to executors."""

    url: str
    token: str = field(repr=False)
    tenant: str = "default"
    away_s_max: float = AWAY_S_MAX

    def first_asked(self) -> "Place":
        """The same, to be asked for the first time: it may be the wrong one."""
        return replace(self, away_s_max=min(self.away_s_max, FIRST_S_MAX))


@dataclass(frozen=True)
class Slice:
    """Events after `after` up to `upto`, of one journal; of all columns, queues and kinds, or some.

    Filters pick rows, never offsets: the same slice always gives the same rows.
    """

    epoch: str
    after: int
    upto: int
    columns: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


class Client:
    """One caller's connection. Not shared between threads."""

    def __init__(self, place: Place) -> None:
        self._place = place
        try:
            self._requester = Requester(place.url)
        except BadAddress as error:
            address = "an http:// or https:// address without credentials"
            raise CourierError(f"url must be {address}: {error}") from None
        if not re.fullmatch(r"[!-~]+", place.token):
            raise CourierError("the token contains invalid characters")

    def close(self) -> None:
        self._requester.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- journal ---

    def head(self, *, at_ms: int | None = None) -> JournalRange:
        """Where the journal is; with `at_ms`, `last` is the last offset before that time."""
        query = {} if at_ms is None else {"at_ms": at_ms}
        told = self._json("GET", "/journal/head", query=query)
        try:
            last = told["last"] if at_ms is None else told["before"]
            return JournalRange(int(told["first"]), int(last), str(told["epoch"]))
        except (KeyError, TypeError):
            raise self._stranger() from None

    def room(self) -> dict[str, int] | None:
        """How long a time of events the journal holds: see `core/sweeper.py`; None if unknown."""
        told: dict[str, int] | None = self._json(
            "GET", "/journal/head", query={"room": "true"}
        ).get("room")
        return told

    def page(self, part: Slice, *, rows: int) -> "tuple[pa.RecordBatch, int]":
        """The events of the first `rows` offsets of a slice, and the last offset looked at."""
        query: dict[str, Any] = {"after": part.after, "limit": min(rows, part.upto - part.after)}
        if part.columns:
            query["columns"] = ",".join(part.columns)
        if part.queues:
            query["queues"] = ",".join(part.queues)
        if part.kinds:
            query["kinds"] = ",".join(part.kinds)
        headers, body = self._ask("GET", "/journal", query=query, headers={"accept": ARROW})
        epoch = headers.get("x-courier-epoch", "")
        if epoch != part.epoch:
            raise Recreated(recreated(self._place.url, part.epoch, epoch))
        upto = int(headers["x-courier-upto"])
        if upto <= part.after:
            raise CourierError(
                f"events after {part.after} were planned to be read, and the journal at "
                f"{self._place.url} ends there"
            )
        return self._batch(body), upto

    def _batch(self, body: bytes) -> "pa.RecordBatch":
        import pyarrow as pa

        try:
            with pa.ipc.open_stream(body) as stream:
                return stream.read_next_batch()
        except (pa.ArrowInvalid, StopIteration):
            raise self._stranger() from None

    def kinds(self) -> list[str]:
        """The kinds of events that the journal can hold."""
        return list(self._json("GET", "/journal/kinds")["kinds"])

    def commit(self, pipeline: str, offset: int) -> None:
        """Everything up to `offset` was processed; the journal may be trimmed up to there."""
        self._move(pipeline, {"offset": offset})

    def register(self, pipeline: str, offset: int) -> None:
        """From now on the journal keeps what is after `offset`, also if it was read before."""
        self._move(pipeline, {"offset": offset, "restart": True})

    def skip(self, pipeline: str, offset: int, *, lost: int) -> None:
        """Go on after `offset`, and record that `lost` events before it were never read."""
        self._move(pipeline, {"offset": offset, "lost": lost})

    def _move(self, pipeline: str, body: Mapping[str, Any]) -> None:
        self._json("PUT", f"/journal/pipelines/{quote(pipeline, safe='')}", dict(body))

    def pipelines(self) -> list[Registered]:
        """The registered readers of the journal."""
        found = self._json("GET", "/journal/pipelines")["pipelines"]
        return [Registered(each["name"], int(each["offset"]), int(each["lost"])) for each in found]

    def forget(self, pipeline: str) -> None:
        self._json("DELETE", f"/journal/pipelines/{quote(pipeline, safe='')}")

    def backlogs(self) -> tuple[int, dict[str, int]]:
        """An offset, and how many messages each queue held just then."""
        told = self._json("GET", "/journal/backlogs")
        return int(told["offset"]), dict(told["queues"])

    def tell(self, event: str, payload: Mapping[str, Any], *, id: str) -> None:
        """Tell those who subscribe to events of pipelines; once, for one id."""
        tenant = quote(self._place.tenant, safe="")
        source = {"type": "courier.pipeline"}
        body = {"source": source, "event": event, "payload": dict(payload), "id": id}
        self._json("POST", f"/courier/v1/tenants/{tenant}/events", body)

    # --- publish ---

    def publish(
        self,
        queue: str,
        rows: "pa.RecordBatch",
        *,
        once: str,
        first: int,
        digest: str = "",
        last: bool = False,
        listener: str = "",
    ) -> Published:
        """Publish rows, of which the first has this number under the key `once`.

        Rows that were published under that key before are not published again. With the digest
        that was told for the rows before the first, it is compared whether they were the same;
        raises RowsDiffer. `last`: the key has no more.
        """
        import pyarrow as pa

        query: dict[str, Any] = {"once": once, "first": first}
        if digest:
            query["digest"] = digest
        if last:
            query["last"] = "true"
        if listener:
            query["listener"] = listener
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        told = self._json(
            "POST",
            f"{self._queue(queue)}/publish",
            raw=sink.getvalue().to_pybytes(),
            query=query,
        )
        return Published(int(told["published"]), str(told.get("digest", "")))

    def published(self, queue: str, *, once: str) -> int:
        """How many rows were published under a key."""
        return self._rows(queue, {"once": once})

    def published_below(self, queue: str, key: str) -> int:
        """How many rows were published under all keys that begin with this one and a slash."""
        return self._rows(queue, {"below": key})

    def _rows(self, queue: str, query: Mapping[str, str]) -> int:
        told = self._json("GET", f"{self._queue(queue)}/publish", query=query)
        return int(told["rows"])

    # --- claims ---

    def claim(self, queue: str, name: str, *, count: int, lease_ms: int) -> int:
        """Lease up to `count` messages under a name, or find them leased; how many they are."""
        path = f"{self._queue(queue)}/claims/{quote(name, safe='')}"
        told = self._json("PUT", path, {"count": count, "lease_ms": lease_ms})
        return int(told["count"])

    def claimed(self, queue: str, name: str, *, first: int, count: int) -> "pa.RecordBatch":
        """Messages of a claim, from number `first` on."""
        path = f"{self._queue(queue)}/claims/{quote(name, safe='')}"
        query = {"first": first, "count": count}
        _, body = self._ask("GET", path, query=query, headers={"accept": ARROW})
        return self._batch(body)

    def extend(self, queue: str, name: str, *, lease_ms: int) -> None:
        path = f"{self._queue(queue)}/claims/{quote(name, safe='')}"
        self._json("PATCH", path, {"lease_ms": lease_ms})

    def ack(self, queue: str, name: str, *, after: str) -> None:
        """Acknowledge a claim that follows another ("": none). Doing so twice is no mistake.

        The broker then forgets the other, and knows this one until the next is acknowledged.
        """
        path = f"{self._queue(queue)}/claims/{quote(name, safe='')}"
        self._json("DELETE", path, query={"after": after})

    def _queue(self, queue: str) -> str:
        tenant, name = (quote(each, safe="") for each in (self._place.tenant, queue))
        return f"/courier/v1/tenants/{tenant}/queues/{name}"

    # --- HTTP ---

    def _json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Any:
        headers = {"content-type": ARROW if raw is not None else "application/json"}
        content = raw if raw is not None else (None if body is None else json.dumps(body).encode())
        _, answer = self._ask(method, path, content, query=query, headers=headers)
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            raise self._stranger() from None

    def _ask(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str],
    ) -> tuple[Mapping[str, str], bytes]:
        """Ask until there is an answer; a broker that restarts is waited for, not for ever."""
        target = path + ("?" + urlencode(query) if query else "")
        sent = {**headers, "authorization": f"Bearer {self._place.token}"}
        until_s = time.monotonic() + self._place.away_s_max
        wait_s = 0.1
        while True:
            why = ""
            try:
                status, told, answer = self._requester.ask(method, target, content, sent)
            except ssl.SSLError as error:
                why = getattr(error, "verify_message", "") or error.reason or str(error)
                raise CourierError(f"{self._place.url} cannot be trusted: {why}") from None
            except TooLong as error:
                raise CourierError(str(error)) from None
            except (OSError, http.client.HTTPException) as error:
                why = str(error) or type(error).__name__
            else:
                if status < 300:
                    return told, answer
                if status not in _AWAY:
                    raise self._refusal(status, answer)
                why = _told(answer, "message")
            if time.monotonic() + wait_s > until_s:
                raise Away(
                    f"{self._place.url} cannot be reached ({why}), tried for "
                    f"{self._place.away_s_max:.0f} s"
                ) from None
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, WAIT_S_MAX)

    def _refusal(self, status: int, answer: bytes) -> CourierError:
        text = _told(answer, "message")
        if not text:
            return self._stranger()
        if status == 401:
            return CourierError(f"{self._place.url} does not know this token")
        kind = _REFUSALS.get(_told(answer, "code"), CourierError)
        return kind(f"{self._place.url} refused: {text}")

    def _stranger(self) -> CourierError:
        return CourierError(f"{self._place.url} does not answer like a Courier broker")


def recreated(url: str, known: str, found: str) -> str:
    return (
        f"the store at {url} was recreated: this query has read the journal '{known}', and the "
        f"one there now is '{found}'; start it with a new checkpoint"
    )


def _told(answer: bytes, what: str) -> str:
    """The code or the message of a refusal."""
    try:
        return str(json.loads(answer)["error"][what])
    except (ValueError, KeyError, TypeError):
        return ""


def read(place: Place, part: Slice, *, rows: int) -> "Iterator[pa.RecordBatch]":
    """The events of a slice, page by page; the next page is fetched while this one is used."""
    with Client(place) as client, ThreadPoolExecutor(1) as ahead:

        def fetch(after: int) -> "Future[tuple[pa.RecordBatch, int]] | None":
            if after >= part.upto:
                return None
            return ahead.submit(client.page, replace(part, after=after), rows=rows)

        coming = fetch(part.after)
        while coming is not None:
            batch, after = coming.result()
            coming = fetch(after)
            if batch.num_rows:
                yield batch


def split(part: Slice, count: int) -> Sequence[Slice]:
    """The slice in up to `count` slices of about the same size."""
    size = part.upto - part.after
    count = max(1, min(count, size))
    edges = [part.after + size * n // count for n in range(count + 1)]
    return [replace(part, after=low, upto=high) for low, high in pairwise(edges)]
