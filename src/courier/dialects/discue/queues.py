"""Queues, and the schemas that their messages must follow."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from courier import ids
from courier.core import schemas
from courier.core.errors import NotFound
from courier.core.types import DAY_MS, Listener, Queue, Schema
from courier.dialects.discue import names
from courier.dialects.discue.errors import Malformed
from courier.dialects.discue.site import DiscueFamily, Success
from courier.dialects.discue.wire import PAGING, Named, page
from courier.web import Call, Route

RETENTION_MS = 14 * DAY_MS
QUEUES = "/queues"
QUEUE = QUEUES + "/{queue_id}"


class DiscueQueueBody(Named):
    """A schema of null ends the one that the queue has."""

    schema: dict[str, Any] | UnsetType | None = UNSET

    def checked_schema(self) -> dict[str, Any] | UnsetType | None:
        """Raises Malformed."""
        if self.schema is not UNSET and self.schema is not None:
            problems = schemas.problems_of_schema(self.schema)
            if problems:
                raise Malformed([*problems])
        return self.schema


class Item(Struct):
    """Something in a list."""

    id: str
    name: str
    alias: str


class QueueMember(Item):
    created_at: int
    updated_at: int
    schema: dict[str, Any] | UnsetType = UNSET
    schema_id: str | UnsetType = UNSET


class QueueAnswer(Struct):
    queue: QueueMember


class QueuesAnswer(Struct):
    queues: list[Item]


class SchemaAnswer(Struct):
    schema: dict[str, Any]


class DiscueQueueRoutes(DiscueFamily):
    family = "queues"

    def routes(self) -> list[Route]:
        return [
            Route("GET", QUEUES, self.list_queues, "queues:read", "listed",
                  "List queues, oldest first",
                  result=QueuesAnswer, query=PAGING),
            Route("POST", QUEUES, self.create_queue, "queues:write", "whole", "Create a queue",
                  body=DiscueQueueBody, result=QueueAnswer),
            Route("PUT", QUEUES, self.create_queue, "queues:write", "whole", "Create a queue",
                  body=DiscueQueueBody, described=False),
            Route("GET", QUEUE, self.get_queue, "queues:read", "target", "Get a queue",
                  result=QueueAnswer),
            Route("PUT", QUEUE, self.update_queue, "queues:write", "target",
                  "Change the given members of a queue", body=DiscueQueueBody, body_optional=True,
                  result=QueueAnswer),
            Route("DELETE", QUEUE, self.delete_queue, "queues:write", "target",
                  "Delete a queue with its listeners and messages"),
            Route("GET", QUEUE + "/schemas/{schema_id}", self.get_schema, "schemas:read", "target",
                  "Get a schema that the queue has or had", result=SchemaAnswer,
                  family="schemas"),
        ]  # fmt: skip

    async def list_queues(self, call: Call) -> Success:
        within = call.reach
        queues = [
            queue for queue in self._records.scan(Queue, tenant=call.tenant) if queue.id in within
        ]
        rows, links = page(queues, call.request, QUEUES)
        items = [Item(names.shown(queue.id), queue.name, queue.name) for queue in rows]
        links += [(item.name, item.id, f"{QUEUES}/{item.id}") for item in items]
        return Success({"queues": items}, QUEUES, links)

    async def create_queue(self, call: Call) -> Success:
        body: DiscueQueueBody = call.body
        now_ms = self._clock.now_ms()
        queue = Queue(
            id=ids.new_id(),
            tenant=call.tenant,
            name=body.required(),
            created_ms=now_ms,
            modified_ms=now_ms,
            retention_ms=RETENTION_MS,
            # Nothing is dropped silently here, however often it is pulled.
            attempts_max=None,
        )
        schema = body.checked_schema()
        schema = None if schema is UNSET else schema
        queue = await self._admin.create_queue(queue, schema=schema, actor=call.actor)
        return self._answer(queue)

    async def get_queue(self, call: Call) -> Success:
        return self._answer(call.queue)

    async def update_queue(self, call: Call) -> Success:
        body: DiscueQueueBody = call.body
        name, schema = body.chosen(), body.checked_schema()
        queue = await self._admin.update_queue(
            call.tenant,
            call.queue.id,
            lambda known: replace(known, name=name or known.name),
            schema=schema,
            reach=call.reach,
            actor=call.actor,
        )
        return self._answer(queue)

    async def delete_queue(self, call: Call) -> Success:
        """Also one that others bury in: nothing here shows who does, or could end it."""
        await self._admin.delete_queue(
            call.tenant, call.queue.id, reach=call.reach, actor=call.actor, though_used=True
        )
        return Success({}, QUEUES)

    async def get_schema(self, call: Call) -> Success:
        wanted = call.params["schema_id"]
        for schema in self._records.scan(Schema, parent=call.queue.id):
            if schema.fingerprint == wanted:
                path = f"{_path(call.queue)}/schemas/{wanted}"
                return Success({"schema": schema.properties}, path)
        raise NotFound("schema", wanted)

    def _answer(self, queue: Queue) -> Success:
        schema = self._records.get(Schema, queue.schema) if queue.schema else None
        member = QueueMember(
            id=names.shown(queue.id),
            name=queue.name,
            alias=queue.name,
            created_at=queue.created_ms,
            updated_at=queue.modified_ms,
            schema=schema.properties if schema else UNSET,
            schema_id=schema.fingerprint if schema else UNSET,
        )
        path = _path(queue)
        links = [
            (listener.title, id := names.shown(listener.id), f"{path}/listeners/{id}")
            for listener in self._records.scan(Listener, parent=queue.id)
        ]
        return Success({"queue": member}, path, links)


def _path(queue: Queue) -> str:
    return f"{QUEUES}/{names.shown(queue.id)}"
