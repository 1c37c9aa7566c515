"""The console in a real browser: every page, width and scheme, with its script and without."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.console.browser import Watched, chromium
from tests.console.story import ARGS, Story
from tests.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

WIDTHS = (320, 390, 1_400)
SCHEMES = ("light", "dark")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with Server(tmp_path_factory.mktemp("browser"), args=ARGS).start() as server:
        yield Story(server).tell()
        assert "Traceback" not in server.log()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def window(browser: Browser, story: Story) -> Iterator[Watched]:
    window = Watched(browser, story.server.url, viewport={"width": 1_400, "height": 900})
    window.sign_in(story.server.credentials["admin"]["token"])
    yield window
    window.close()
    assert window.errors == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_page_is_fit_to_be_seen(
    browser: Browser, story: Story, width: int, scheme: Any
) -> None:
    look = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    window = Watched(browser, story.server.url, **look)
    window.page.goto("/console/sign-in")
    found = {"sign-in": (window.overflow(), window.problems())}
    window.sign_in(story.server.credentials["admin"]["token"])
    for name, path in story.pages().items():
        window.page.goto(path)
        found[name] = (window.overflow(), window.problems())
    window.close()
    assert {name: each for name, each in found.items() if each != (0, [])} == {}
    assert window.errors == []


def test_a_user_and_a_code_sign_in_too(browser: Browser, story: Story) -> None:
    window = Watched(browser, story.server.url)
    user = story.server.credentials["anypoint"]["user"]
    window.page.goto("/console")
    window.page.fill("#user", user["username"])
    window.page.fill("#password", user["password"])
    window.page.click("text=Sign in as a user")
    expect(window.page.locator(".who")).to_contain_text(user["username"])
    window.page.click("text=Sign out")
    expect(window.page.locator("h1")).to_have_text("Sign in")
    window.close()
    assert window.errors == []


def test_values_follow_what_happens(window: Watched, story: Story) -> None:
    queue = story.queues["audit-log"]
    window.page.goto(f"/console/queues/{queue}")
    expect(window.page.locator("#waiting")).to_have_text("0")
    with story.server.client() as http:
        for _ in range(10):
            batch = {"messages": [{"body": n, "content_type": "json"} for n in range(100)]}
            http.post(f"/queues/{queue}/messages/batch", json=batch)
    expect(window.page.locator("#waiting")).to_have_text("1,000")


def test_events_are_followed_live(window: Watched, story: Story) -> None:
    window.page.goto("/console/events?kind=queue_updated")
    window.page.click("#follow")
    expect(window.page.locator("#follow")).to_have_text("Pause")
    with story.server.client() as http:
        settings = {"settings": {"delivery_delay": 7}}
        http.patch(f"/queues/{story.queues['payments']}", json=settings)
    row = window.page.locator("#events tbody tr").first
    expect(row).to_contain_text("payments")
    row.locator("a").first.click()
    expect(window.page.locator("h1")).to_have_text("payments")


def test_a_span_is_selected_by_dragging(window: Watched, story: Story) -> None:
    window.page.goto(f"/console/queues/{story.queues['orders']}")
    box = window.page.locator("#chart").bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    window.page.mouse.move(box["x"] + box["width"] * 0.5, y)
    window.page.mouse.down()
    window.page.mouse.move(box["x"] + box["width"] * 0.9, y, steps=5)
    window.page.mouse.up()
    window.page.wait_for_url("**since=2*")
    expect(window.page.locator(".note")).to_contain_text("selected")
    window.page.go_back()
    expect(window.page.locator(".note")).to_have_count(0)


def test_keys_move_and_never_while_typing(window: Watched) -> None:
    window.page.goto("/console")
    window.page.keyboard.press("/")
    window.page.keyboard.type("gej")
    assert window.page.input_value("#find") == "gej"
    window.page.locator("h1").click()
    window.page.evaluate("document.activeElement.blur()")
    window.page.keyboard.press("j")
    assert window.page.evaluate("document.activeElement.closest('tbody') !== null")
    window.page.keyboard.press("g")
    window.page.keyboard.press("e")
    expect(window.page.locator("h1")).to_have_text("Events")


def test_a_queue_is_paused_published_to_and_changed(window: Watched, story: Story) -> None:
    page = window.page
    page.goto(f"/console/queues/{story.queues['audit-log']}")
    page.click("text=Pause")
    expect(page.locator(".looks")).to_contain_text("Paused")
    page.click("text=Resume")
    page.fill("#publish-delay", "soon")
    page.click("button:text-is('Publish')")
    expect(page.locator("#publish-problem")).to_contain_text("not a duration")
    page.fill("#publish-delay", "")
    page.click("button:text-is('Publish')")
    expect(page.locator(".life")).to_contain_text("published")
    page.goto(f"/console/queues/{story.queues['audit-log']}")
    page.fill("#settings-lease", "2m")
    page.click("text=Show what changes")
    expect(page.locator("table")).to_contain_text("2 min")
    page.click("button:text-is('Save')")
    expect(page.locator("#settings-lease")).to_have_value("2m")


def test_everything_works_without_the_script(browser: Browser, story: Story) -> None:
    window = Watched(browser, story.server.url, java_script_enabled=False)
    window.sign_in(story.server.credentials["admin"]["token"])
    page = window.page
    page.fill("#q", "pay")
    page.click("button:text-is('Show')")
    expect(page.locator("#queues tbody tr")).to_have_count(1)
    page.click("text=payments")
    page.click("text=7d")
    page.fill("#q", "amount")
    page.click("button:text-is('Search')")
    page.click("#rows a >> nth=0")
    expect(page.locator("#body-text")).to_contain_text("payment")
    page.click("text=hex")
    expect(page.locator("#body-text")).to_contain_text("00000000")
    page.click("#nav-events")
    page.select_option("#kind", "acked")
    page.click("button:text-is('Show')")
    expect(page.locator("#events tbody tr").first).to_contain_text("acked")
    window.close()
    assert window.errors == []


def test_a_page_is_small_and_needs_four_requests(browser: Browser, story: Story) -> None:
    window = Watched(browser, story.server.url)
    window.sign_in(story.server.credentials["admin"]["token"])
    asked: list[str] = []
    window.page.on("request", lambda request: asked.append(request.url))
    for path in (story.pages()["queues"], story.pages()["queue"]):
        asked.clear()
        body = window.page.goto(path)
        assert body is not None and len(body.body()) < 45_000
        window.page.wait_for_timeout(200)
        assert len([url for url in asked if "icon" not in url]) <= 4, asked
    window.close()
