"""Cloudflare's command line, pointed at a server by nothing but its own variables."""

from pathlib import Path

from tests.outside.node import Ran, installed, run_node


class Wrangler:
    """`wrangler`, kept from asking questions, reporting on its use and looking for updates."""

    def __init__(
        self, directory: Path, *, base_url: str, token: str, account_id: str | None
    ) -> None:
        """Without `account_id` it has to find out by itself which account the token is for."""
        self._directory = directory
        self._program = installed("wrangler") / "bin" / "wrangler.js"
        self._env = {
            "CLOUDFLARE_API_BASE_URL": base_url,
            "CLOUDFLARE_API_TOKEN": token,
            "CI": "1",
            "NO_COLOR": "1",
            "WRANGLER_HIDE_BANNER": "true",
            "WRANGLER_SEND_METRICS": "false",
            "WRANGLER_SEND_ERROR_REPORTS": "false",
        }
        if account_id is not None:
            self._env["CLOUDFLARE_ACCOUNT_ID"] = account_id

    def run(self, *args: str) -> Ran:
        return run_node(self._program, *args, directory=self._directory, env=self._env)

    def ok(self, *args: str) -> str:
        """What a command printed; one that fails fails the test."""
        ran = self.run(*args)
        assert ran.status == 0, f"wrangler {' '.join(args)} ended with {ran.status}\n{ran.out}"
        return ran.out

    def refused(self, *args: str) -> str:
        """What a command printed that was refused; one that succeeds fails the test."""
        ran = self.run(*args)
        assert ran.status == 1, f"wrangler {' '.join(args)} ended with {ran.status}\n{ran.out}"
        return ran.out
