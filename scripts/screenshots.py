"""Take the pictures of docs/images: `python scripts/screenshots.py`, after `make test` once."""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.console.browser import Watched, chromium  # noqa: E402
from tests.console.story import ARGS, Story  # noqa: E402
from tests.server import Server  # noqa: E402

# What docs/console.md shows.
PICTURES = ("queues", "queue", "exchange", "letter", "events", "plan", "receipt", "server")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    options.add_argument("--width", type=int, default=1_200)
    options.add_argument("--dark", action="store_true")
    options.add_argument(
        "--all", action="store_true", help="every page, not only those of the docs"
    )
    args = options.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        Server(Path(directory), args=ARGS).start() as server,
        chromium() as browser,
    ):
        story = Story(server).tell()
        window = Watched(
            browser,
            server.url,
            viewport={"width": args.width, "height": 800},
            color_scheme="dark" if args.dark else "light",
        )
        window.sign_in(server.credentials["admin"]["token"])
        for name, path in story.pages().items():
            if args.all or name in PICTURES:
                window.page.goto(path)
                window.page.wait_for_timeout(300)
                file = args.out / f"console-{name}.png"
                window.page.screenshot(path=file, full_page=args.all)
                print(file)
        window.close()


if __name__ == "__main__":
    main()
