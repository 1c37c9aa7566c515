"""An attack made from the description that an API publishes of itself."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.server import Server

SEED = 20_261_116
RUN_SECONDS_MAX = 240
# Where Hypothesis keeps what it found out about characters, at two seconds a time; examples are
# not among it.
KEPT = Path(__file__).parents[2] / ".hypothesis"
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]


class Attack(NamedTuple):
    """`ids` says, as TOML, which real ids and names stand in the place of made-up ones."""

    server: Server
    document: str
    headers: dict[str, str]
    ids: str

    def run(self, directory: Path, *, phases: str, examples: int) -> "Seen":
        """Let schemathesis loose, and fail with its report."""
        (directory / "schemathesis.toml").write_text(self._config(examples))
        seen = directory / "seen.har"
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--no-color", "run"),
                f"{self.server.url}{self.document}",
                *("--url", self.server.url, "--phases", phases, "--checks", ",".join(CHECKS)),
                *("--warnings", "off", "--report", "har", "--report-har-path", str(seen)),
            ],
            cwd=directory,
            # Nothing of the caller's: a proxy would be asked for, and looked for at every request.
            env={"HYPOTHESIS_STORAGE_DIRECTORY": str(KEPT)},
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2_000:]
        return Seen(json.loads(seen.read_bytes())["log"]["entries"])

    def _config(self, examples: int) -> str:
        general = {
            "seed": SEED,
            # Workers are threads, and before Python 3.11.8 two threads that parse source at once,
            # as Hypothesis does, may get a SystemError for it (CPython issue 106905).
            "workers": 1,
            "request-timeout": 15,
            "continue-on-failure": True,
            "headers": self.headers,
        }
        generation = {"max-examples": examples, "no-shrink": True, "database": "none"}
        parts = [table("", general), table("cache", {"enabled": False})]
        return "\n".join([*parts, table("generation", generation), self.ids])


class Seen:
    """What was asked, and with which status it was answered."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self._answers = [
            (
                str(entry["request"]["method"]),
                str(entry["request"]["url"]).partition("?")[0],
                int(entry["response"]["status"]),
            )
            for entry in entries
        ]

    def statuses(self, method: str, ending: str) -> set[int]:
        """Of the requests whose path ends like this, which is a regular expression."""
        wanted = re.compile(f"{ending}$")
        return {
            status
            for asked, path, status in self._answers
            if asked == method and wanted.search(path)
        }


def table(name: str, entries: dict[str, Any]) -> str:
    """A table of a TOML file."""
    head = [f"[{name}]"] if name else []
    return "\n".join([*head, *(f'"{key}" = {value_text(value)}' for key, value in entries.items())])


def value_text(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f'"{key}" = {value_text(item)}' for key, item in value.items())
        return f"{{ {inner} }}"
    return json.dumps(value)
