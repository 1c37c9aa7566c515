"""What is known of listeners is written together."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from courier.core.types import Listener, Liveness
from courier.delivery.liveness import NOTES_MAX
from tests.delivery.inside import Inside, both_stores, run_inside

HANGING = 60


@both_stores
def test_notes_of_many_listeners_share_a_commit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(inside: Inside) -> None:
        listeners = [await inside.listen(f"http://127.0.0.1:9/{n}") for n in range(HANGING)]
        written: list[int] = []
        note = inside.admin.listeners.note_liveness

        async def counted(notes: Sequence[Liveness]) -> None:
            written.append(len(notes))
            await note(notes)

        monkeypatch.setattr(inside.admin.listeners, "note_liveness", counted)
        for listener in listeners:
            known = _liveness(listener)
            inside.pushes.notes.add(known)
            inside.pushes.notes.add(replace(known, state="inactive"))
        await inside.pushes.notes.finish()
        assert written == [HANGING] and NOTES_MAX >= HANGING
        records = inside.store.records
        for listener in listeners:
            kept, now = records.get(Liveness, listener.id), records.get(Listener, listener.id)
            assert kept is not None and kept.state == "inactive"
            assert now is not None and now.inactive_ms > 0

    run_inside(kind, tmp_path, main)


@both_stores
def test_a_listener_that_is_gone_leaves_nothing_and_spoils_nothing(
    kind: str, tmp_path: Path
) -> None:
    async def main(inside: Inside) -> None:
        stays = await inside.listen("http://127.0.0.1:9/stays")
        gone = replace(stays, id="c0" + "f" * 30)
        for listener in (gone, stays):
            inside.pushes.notes.add(_liveness(listener))
        await inside.pushes.notes.finish()
        records = inside.store.records
        assert records.get(Liveness, gone.id) is None
        assert records.get(Liveness, stays.id) is not None

    run_inside(kind, tmp_path, main)


def _liveness(listener: Listener) -> Liveness:
    return Liveness(
        id=listener.id, tenant=listener.tenant, parent=listener.id, created_ms=listener.created_ms
    )
