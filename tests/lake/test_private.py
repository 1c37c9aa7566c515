"""A lake, and all that is beside it, is for its owner alone and holds no secret."""

import os
from pathlib import Path

import pytest

from tests.clients.cloudflare import CloudflareClient
from tests.lake.commands import Commands
from tests.private.looking import holding, open_to_others, secrets_of
from tests.server import Server


@pytest.mark.timeout(1800)
def test_a_whole_story_leaves_nothing_that_others_can_read(
    courier: Commands, tmp_path: Path
) -> None:
    def run(*words: str) -> str:
        """What a command says, which must succeed; its umask is the most careless there is."""
        status, shown, said = courier(*words)
        assert status == 0, said
        return shown + said

    before = os.umask(0)
    try:
        server = Server(tmp_path).start()
    finally:
        os.umask(before)
    with server, server.client() as http:
        queue = CloudflareClient(http, "orders")
        queue.publish_batch([f"message {n}" for n in range(50)])
        place = "--data", str(server.data)
        pipeline = "pipeline", "run", "--once", "--master", "local[2]", *place
        said = run(*pipeline)
        assert queue.ack([each.lease for each in queue.pull(20)]) == 20
        lake = server.data / "lake"
        everything = [lake, *lake.rglob("*")]
        assert len(everything) > 40
        assert open_to_others(server.data) == []

        # As an older Courier left it.
        for path in everything:
            path.chmod(0o755 if path.is_dir() else 0o644)
        said = run(*pipeline)
        assert said.count("were open to others") == 1
        assert open_to_others(server.data) == []

        said += run("lake", "compact", *place)
        said += run("lake", "vacuum", "--hours", "0", *place)
        said += run("pipeline", "rebuild", "--master", "local[2]", *place)
        where = "--queue", "orders", "--into", "orders", "--master", "local[2]"
        said += run("replay", *where, *place)
        page = tmp_path / "report.html"
        said += run("report", "--out", str(page), *place)
        assert open_to_others(server.data) == open_to_others(page) == []
        assert (lake / "_replays").is_dir()
        files = [path for path in lake.rglob("*") if path.is_file()]
        secrets = [*secrets_of(server.credentials)]
        assert [secret for secret in secrets if holding(secret.encode(), [*files, page])] == []
        assert [secret for secret in secrets if secret in said + server.log()] == []
