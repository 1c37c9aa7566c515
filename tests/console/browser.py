"""A real Chromium, found where scripts/browser finds it; its absence is an error, not a skip."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = Path(__file__).parents[2] / ".tools" / "node_modules" / "axe-core" / "axe.min.js"
WAIT_MS = 15_000


@contextmanager
def chromium() -> Iterator[Browser]:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    assert path, f"none of {', '.join(NAMES)} is on the PATH: run scripts/browser"
    with sync_playwright() as playwright:
        # As root, as in a container, its sandbox does not start; the pages are our own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """A window that notes what a good page never does: errors, and requests to elsewhere."""

    def __init__(self, browser: Browser, url: str, **look: Any) -> None:
        self.url = url
        self.context: BrowserContext = browser.new_context(base_url=url, **look)
        self.context.set_default_timeout(WAIT_MS)
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("console", lambda said: self._said(said.type, said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._asked(request.url))

    def _said(self, kind: str, text: str) -> None:
        # The browser says so of every page with such a status, and tests ask for some.
        refused = "404 (Not Found)" in text or "400 (Bad Request)" in text
        if kind in ("error", "warning") and not refused:
            self.errors.append(text)

    def _asked(self, url: str) -> None:
        if not url.startswith((self.url, "data:")):
            self.errors.append(f"a request to {url}")

    def sign_in(self, key: str) -> None:
        self.page.goto("/console")
        self.page.fill("#key", key)
        self.page.click("text=Sign in with the key")
        self.page.wait_for_selector("#nav-queues")

    def problems(self) -> list[str]:
        """What axe finds on the page as it is."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {each['help']} {each['nodes'][0]['html'][:200]}"
            for each in found["violations"]
        ]

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        text = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(text))

    def close(self) -> None:
        self.context.close()
