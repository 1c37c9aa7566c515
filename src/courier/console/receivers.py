"""Listeners of a queue, made and changed on its page."""

from msgspec.structs import asdict, replace

from courier.console import Page, Redirect, Services, forms
from courier.console.guard import page_after
from courier.console.queue import Problem, QueuePage
from courier.core.errors import Conflict, InvalidRequest, OverLimit
from courier.core.types import Listener
from courier.web import Call, Handler


class Receivers:
    def __init__(self, services: Services, page: QueuePage) -> None:
        self._services = services
        self._listeners = services.admin.listeners
        self._page = page

    def handlers(self) -> dict[str, Handler]:
        return {"create_listener": self.create_listener, "change_listener": self.change_listener}

    async def create_listener(self, call: Call) -> Page:
        """The queue's page with the secret, which nobody sees again."""
        asked: forms.NewListener = call.body
        try:
            made = self._services.newcomers.listener(
                call.queue, asked.name.strip(), asked.url.strip()
            )
            await self._listeners.create(made[0], actor=call.actor)
        except (InvalidRequest, Conflict, OverLimit) as error:
            return await self._wrong(call, error, asdict(asked))
        facts = await self._page.facts(call, call.queue)
        facts.made = (made[0].title, made[1])
        return Page("queue.html", facts)

    async def change_listener(self, call: Call) -> Page | Redirect:
        """Disable, enable or delete it; what waits for a deleted one is pushed to nobody."""
        asked: forms.ChangeForm = call.body
        queue, id = call.queue, call.params["listener"]
        listener = self._listeners.of_queue(queue.id, id)
        if asked.action == "delete":
            if asked.confirm.strip() != listener.title:
                error = InvalidRequest("confirm", f"To delete the listener, type {listener.title}.")
                return await self._wrong(call, error, {"confirm": asked.confirm[:80]}, listener)
            await self._listeners.delete(queue.id, id, actor=call.actor)
        elif asked.action in ("enable", "disable"):
            await self._listeners.update(
                queue.id,
                id,
                lambda each: replace(each, disabled_by="user" if asked.action == "disable" else ""),
                actor=call.actor,
            )
        else:
            raise InvalidRequest("action", "must be enable, disable or delete")
        return Redirect(f"{page_after(asked.view, f'/console/queues/{queue.id}')}#listeners")

    async def _wrong(
        self,
        call: Call,
        error: InvalidRequest | Conflict | OverLimit,
        filled: dict[str, str],
        listener: Listener | None = None,
    ) -> Page:
        field = error.field if isinstance(error, InvalidRequest) else "name"
        says = error.reason if isinstance(error, InvalidRequest) else str(error)
        form = f"listener-{listener.id}" if listener else "listener"
        status = 409 if isinstance(error, Conflict) else 400
        return await self._page.shown_again(call, Problem(form, field, says, filled), status)
