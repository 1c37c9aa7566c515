"""Take the pictures of docs/images: `python scripts/screenshots.py --demo build/demo`.

After `make test`, which installs the browser, and `make demo`, which makes the lake.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.console.browser import Watched, chromium  # noqa: E402
from tests.console.story import ARGS, Story  # noqa: E402
from tests.server import Server  # noqa: E402

# What docs/console.md shows.
PICTURES = ("queues", "queue", "exchange", "letter", "events", "plan", "receipt", "server")


# Of a demo, which has a lake: a question with a chart, and the audit.
SECONDS = """SELECT date_trunc('second', "at") AS second,
  count(*) FILTER (kind = 'published') AS published, count(*) FILTER (kind = 'acked') AS acked
FROM events WHERE queue = 'orders' GROUP BY ALL ORDER BY second"""
OF_DEMO = {"lake": f"/console/lake?{urlencode({'sql': SECONDS})}", "audit": "/console/lake/audit"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    options.add_argument("--width", type=int, default=1_200)
    options.add_argument("--dark", action="store_true")
    options.add_argument(
        "--all", action="store_true", help="every page, not only those of the docs"
    )
    options.add_argument(
        "--demo", type=Path, help="the folder of a `make demo` that has ended: pictures of its lake"
    )
    args = options.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, chromium() as browser:
        with Server(Path(directory), args=ARGS).start() as server:
            pages = Story(server).tell().pages()
            shown = {name: path for name, path in pages.items() if args.all or name in PICTURES}
            take(browser, server, shown, args)
        if args.demo:
            with Server(args.demo, args=ARGS).start() as server:
                take(browser, server, OF_DEMO, args)


def take(browser: Browser, server: Server, pages: dict[str, str], args: argparse.Namespace) -> None:
    window = Watched(
        browser,
        server.url,
        viewport={"width": args.width, "height": 800},
        color_scheme="dark" if args.dark else "light",
    )
    window.sign_in(server.credentials["admin"]["token"])
    for name, path in pages.items():
        window.page.goto(path)
        window.page.wait_for_timeout(300)
        file = args.out / f"console-{name}.png"
        window.page.screenshot(path=file, full_page=args.all)
        print(file)
    window.close()


if __name__ == "__main__":
    main()
