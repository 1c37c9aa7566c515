"""The console in a real browser: every page, width and scheme, with its script and without."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import Watched, chromium
from tests.console.story import ARGS, Story
from tests.server import Server

pytestmark = pytest.mark.slow

WIDTHS = (320, 390, 1_400)
SCHEMES = ("light", "dark")
# Bytes per second of a slow network.
SLOW = 50_000
# The last one says whether a page that is not the console's is dark too.
API_PAGES = {path: path for path in ("/v1/docs", "/api/v1/docs", "/client/v4/docs")}


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
    for name, path in {**story.pages(), **API_PAGES}.items():
        window.page.goto(path)
        found[name] = (window.overflow(), window.problems())
    background = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
    window.close()
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
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
    window.page.click("#own summary")
    window.page.click("text=Sign out")
    expect(window.page.locator("h1")).to_have_text("Sign in")
    bearer = {"Authorization": f"Bearer {story.server.credentials['admin']['token']}"}
    link = httpx.post(f"{story.server.url}/console/enter", json={}, headers=bearer).json()["url"]
    window.page.goto(link)
    expect(window.page.locator(".who")).to_contain_text("(operator)")
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


def test_what_is_not_json_is_said_beside_its_field_before_it_is_sent(
    window: Watched, story: Story
) -> None:
    page, at = window.page, f"/console/queues/{story.queues['emails']}"
    sent: list[str] = []
    page.on("request", lambda request: sent.extend([request.url] * (request.method == "POST")))
    page.goto(at)
    body, headers = page.locator("#body"), page.locator("#publish-headers")
    said = page.locator("#body-json")
    body.fill('{"order": }')
    expect(said).to_contain_text("This is not JSON: ")
    expect(body).to_have_attribute("aria-invalid", "true")
    assert window.problems() == []
    page.click("text=Publish >> nth=-1")
    expect(body).to_be_focused()
    page.select_option("#kind", "text")
    expect(said).to_have_text("")
    page.select_option("#kind", "json")
    expect(said).to_contain_text("This is not JSON: ")
    body.fill("[1]")
    for wrong in ("[1]", "colour: blue"):
        headers.fill(wrong)
        expect(page.locator("#publish-headers-json")).to_contain_text("This is not")
        page.click("text=Publish >> nth=-1")
        expect(headers).to_be_focused()
    assert sent == []
    headers.fill('{"colour": "blue"}')
    expect(page.locator("#publish-headers-json")).to_have_text("")
    page.click("text=Publish >> nth=-1")
    expect(page.locator("#body-text")).to_contain_text("1")
    assert sent == [f"{story.server.url}{at}/publish"]
    page.goto(f"/console/exchanges/{story.exchange}")
    page.fill("#headers", "country = NL")
    expect(page.locator("#headers-json")).to_contain_text("This is not JSON: ")


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


def test_a_span_is_dragged_and_its_messages_are_deleted(window: Watched, story: Story) -> None:
    """Of the last hour there are messages in the last minutes only."""
    page, queue = window.page, story.queues["invoices"]
    held = 10
    for start, end in ((0.1, 0.5), (0.5, 1.0)):
        page.goto(f"/console/queues/{queue}")
        box = page.locator("#chart").bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * start, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * end, y, steps=5)
        page.mouse.up()
        page.wait_for_url("**since=2*")
        if end == 0.5:
            expect(page.locator("#main")).to_contain_text("No message of this time is left")
            expect(page.locator("#chosen")).to_have_count(0)
    after = _last(story)
    page.select_option("#which", "all")
    page.click("#chosen button:text-is('Delete…')")
    page.click(f"button:text-is('Delete {held} messages of invoices')")
    expect(page.locator("#done")).to_have_text(str(held))
    assert _kinds(story, after) == ["deleted"] * held
    page.click(f"text=Put back {held} messages")
    expect(page.locator("#done")).to_have_text(str(held))
    assert _kinds(story, after) == [*["deleted"] * held, *["published"] * held]


def test_the_first_page_of_a_new_server_is_left_by_trying_it(
    browser: Browser, tmp_path: Path
) -> None:
    """What arrives meanwhile appears by itself."""
    with Server(tmp_path).start() as server:
        window = Watched(browser, server.url)
        window.sign_in(server.credentials["admin"]["token"])
        page = window.page
        expect(page.locator("h1")).to_have_text("Courier runs. Nothing here yet.")
        assert (window.overflow(), window.problems()) == (0, [])
        with server.client() as http:
            http.post("/queues", json={"queue_name": "by-itself"})
        expect(page.locator("#queues tbody tr")).to_contain_text("by-itself", timeout=60_000)
        with server.client() as http:
            [queue] = http.get("/queues").json()["result"]
            http.delete(f"/queues/{queue['queue_id']}")
        page.goto("/console")
        page.click("text=Try it")
        expect(page.locator(".life")).to_contain_text("published")
        window.close()
        assert window.errors == []


def test_a_page_says_that_the_server_is_gone_and_is_fresh_when_it_is_back(
    browser: Browser, tmp_path: Path
) -> None:
    with Server(tmp_path).start() as server:
        with server.client() as http:
            made = http.post("/queues", json={"queue_name": "orders"}).json()["result"]
            http.post(f"/queues/{made['queue_id']}/messages", json={"body": "1"})
        window = Watched(browser, server.url)
        window.sign_in(server.credentials["admin"]["token"])
        window.page.goto(f"/console/queues/{made['queue_id']}")
        expect(window.page.locator("#waiting")).to_have_text("1")
        server.kill()
        link = window.page.locator("#link")
        expect(link).to_contain_text("not connected since", timeout=60_000)
        expect(window.page.locator("#waiting")).to_have_text("1")
        server.start()
        with server.client() as http:
            http.post(f"/queues/{made['queue_id']}/messages", json={"body": "2"})
        expect(window.page.locator("#waiting")).to_have_text("2", timeout=60_000)
        expect(link).to_have_text("", timeout=60_000)
        window.close()


def test_a_span_is_selected_with_the_keyboard(window: Watched, story: Story) -> None:
    page = window.page
    page.goto(f"/console/queues/{story.queues['orders']}")
    page.focus("[aria-label=Chart]")
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowRight"):
        page.keyboard.press(f"Shift+{key}")
    since, until = page.input_value("#since"), page.input_value("#until")
    assert since < until
    page.keyboard.press("Enter")
    page.wait_for_url("**since=2*")
    expect(page.locator(".note")).to_contain_text("selected")
    # A fortieth of an hour, to the minute, twice.
    assert int(until[14:16]) - int(since[14:16]) in (4, 4 - 60)


def test_a_copied_link_shows_the_same_in_another_browser(
    window: Watched, story: Story, browser: Browser
) -> None:
    """A time that ends now is two times in the link."""
    window.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = window.page
    page.goto(f"/console/queues/{story.queues['orders']}?last=6h&state=waiting")
    page.click("#copy-link")
    expect(page.locator("#said")).to_have_text("link copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert re.search(r"since=2\d{3}-\S+&until=2\d{3}-", link) and "state=waiting" in link
    other = Watched(browser, story.server.url)
    other.sign_in(story.server.credentials["admin"]["token"])
    other.page.goto(link)
    expect(other.page.locator(".note")).to_contain_text("selected")
    assert other.page.locator("#rows tbody tr").count() == page.locator("#rows tbody tr").count()
    other.close()
    assert other.errors == []


def test_rows_are_selected_and_acted_on_with_the_keyboard(window: Watched, story: Story) -> None:
    page = window.page
    page.goto("/console?q=plenty")
    for key in ("j", "x", "."):
        page.keyboard.press(key)
    assert page.locator("#queues input:checked").count() == 1
    assert page.evaluate("document.activeElement.textContent") == "Pause"
    after = _last(story)
    page.keyboard.press("Enter")
    state = page.locator(f"#state-{story.queues['plenty']}")
    expect(state).to_have_text("paused")
    page.goto("/console?q=plenty")
    for key in ("j", "x", ".", "Tab", "Enter"):
        page.keyboard.press(key)
    expect(state).to_have_text("")
    assert _kinds(story, after) == ["queue_updated", "queue_updated"]
    page.keyboard.press("?")
    page.click("#keys-off")
    page.click("#keys button:text-is('Close')")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") != "find"
    page.keyboard.press("?")
    page.click("text=Turn keys on")


def test_a_slow_network_waits_two_seconds_at_most(browser: Browser, story: Story) -> None:
    """As of a phone: 400 kbit/s, 300 ms there and back. Nothing is known of the pages yet."""
    window = Watched(browser, story.server.url)
    window.sign_in(story.server.credentials["admin"]["token"])
    window.page.goto("about:blank")
    slow = window.context.new_cdp_session(window.page)
    slow.send("Network.enable")
    slow.send("Network.clearBrowserCache")
    slow.send(
        "Network.emulateNetworkConditions",
        {
            "offline": False,
            "latency": 300,
            "downloadThroughput": 50_000,
            "uploadThroughput": 50_000,
        },
    )
    for path in (story.pages()["queues"], story.pages()["queue"], story.pages()["message"]):
        window.page.goto(path, wait_until="domcontentloaded")
        took_ms = window.page.evaluate(
            "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        )
        assert took_ms < 2_000, path
    window.close()


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
    page.goto(f"/console/queues/{story.queues['payments']}")
    page.click("text=Pause")
    expect(page.locator(".looks")).to_contain_text("Paused")
    page.click("text=Resume")
    page.fill("#publish-delay", "soon")
    page.click("button:text-is('Publish')")
    expect(page.locator("#publish-problem")).to_contain_text("not a duration")
    page.fill("#publish-delay", "")
    page.click("button:text-is('Publish')")
    expect(page.locator(".life")).to_contain_text("published")
    page.goto(f"/console/queues/{story.queues['payments']}")
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


def test_messages_are_deleted_by_a_plan_and_put_back(
    browser: Browser, story: Story, window: Watched
) -> None:
    """With the script, and the same without it."""
    bare = Watched(browser, story.server.url, java_script_enabled=False)
    bare.sign_in(story.server.credentials["admin"]["token"])
    for page in (window.page, bare.page):
        page.goto(f"/console/queues/{story.queues['plenty']}")
        page.check("#rows input >> nth=0")
        page.click("#chosen button:text-is('Delete…')")
        expect(page.locator("h1")).to_have_text("Delete 1 message of plenty")
        page.click("button:text-is('Delete 1 message of plenty')")
        expect(page.locator("#done")).to_have_text("1")
        page.click("text=Put back 1 message")
        expect(page.locator("h1")).to_have_text("Put back 1 message on plenty")
        page.goto(f"/console/queues/{story.queues['plenty']}")
        page.click("text=Purge…")
        page.fill("#confirm", "15")
        page.click("button:text-is('Delete 150 messages of plenty')")
        expect(page.locator("#confirm-problem")).to_have_text("To go on, type 150.")
        page.fill("#confirm", "150")
        page.click("button:text-is('Delete 150 messages of plenty')")
        expect(page.locator("#done")).to_have_text("150")
        page.click("text=Put back 150 messages")
        expect(page.locator("#done")).to_have_text("150")
        page.goto("/console/plans")
        expect(page.locator("#plans tbody tr").first).to_contain_text("Put back 150 messages")
    bare.close()
    assert bare.errors == []


def _kinds(story: Story, after: int) -> list[str]:
    """Kinds of what the console did since, as the journal has it."""
    bearer = {"Authorization": f"Bearer {story.server.credentials['admin']['token']}"}
    url, params = f"{story.server.url}/journal", {"after": after, "limit": 5_000}
    lines = httpx.get(url, params=params, headers=bearer).text.splitlines()
    events = [json.loads(line) for line in lines]
    made = [each["kind"] for each in events if each["dialect"] == "console"]
    return [kind for kind in made if not kind.startswith("session")]


def _last(story: Story) -> int:
    bearer = {"Authorization": f"Bearer {story.server.credentials['admin']['token']}"}
    head = httpx.get(f"{story.server.url}/journal/head", headers=bearer).json()
    return int(head["last"])


@pytest.fixture(params=["script", "no script"])
def either(browser: Browser, story: Story, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of a browser that runs the script, and of one that does not."""
    window = Watched(browser, story.server.url, java_script_enabled=request.param == "script")
    window.sign_in(story.server.credentials["admin"]["token"])
    yield window.page
    window.close()
    assert window.errors == []


def test_a_listener_is_made_disabled_enabled_and_deleted(either: Page, story: Story) -> None:
    page, after = either, _last(story)
    page.goto(f"/console/queues/{story.queues['plenty']}")
    page.fill("#listener-name", "hook")
    page.fill("#listener-url", "mailto:somebody")
    page.click("#listeners ~ form button:text-is('Create')")
    expect(page.locator("#listener-problem")).to_contain_text("http")
    expect(page.locator("#listener-name")).to_have_value("hook")
    page.fill("#listener-url", "http://127.0.0.1:9/hook")
    page.click("#listeners ~ form button:text-is('Create')")
    expect(page.locator("#secret")).to_contain_text("whsec_")
    page.goto(f"/console/queues/{story.queues['plenty']}")
    page.click("[aria-label='Disable hook']")
    page.click("[aria-label='Enable hook']")
    page.click("summary:text-is('Delete…')")
    page.fill("[name=confirm]", "hok")
    page.click("[aria-label='Delete hook']")
    expect(page.locator("#listener-problem")).to_contain_text("type hook")
    page.fill("[name=confirm]", "hook")
    page.click("[aria-label='Delete hook']")
    expect(page.locator("#main")).to_contain_text("Nothing is pushed from this queue.")
    assert _kinds(story, after) == [
        "listener_created", "listener_updated", "listener_updated", "listener_deleted"
    ]  # fmt: skip


def test_an_exchange_is_made_bound_unbound_and_deleted(either: Page, story: Story) -> None:
    page, after = either, _last(story)
    page.goto("/console/settings/connections")
    page.fill("#exchange-name", "No Name")
    page.click("#exchanges ~ form button:text-is('Create') >> nth=0")
    expect(page.locator("#exchange-problem")).to_contain_text("lower-case")
    page.fill("#exchange-name", "spread")
    page.click("#exchanges ~ form button:text-is('Create') >> nth=0")
    page.click("a:text-is('spread')")
    page.fill("#bind-queue", "plenty")
    page.fill("#bind-header", "country")
    page.fill("#bind-value", "NL")
    page.click("button:text-is('Bind')")
    expect(page.locator("#bindings")).to_contain_text("country is NL")
    page.click("[aria-label='Unbind plenty']")
    expect(page.locator("#main")).to_contain_text("No queue is bound to it")
    page.fill("#delete-confirm", "spred")
    page.click("button:text-is('Delete')")
    expect(page.locator("#delete-problem")).to_contain_text("type spread")
    page.fill("#delete-confirm", "spread")
    page.click("button:text-is('Delete')")
    expect(page.locator("h1")).to_have_text("Queues")
    assert _kinds(story, after) == [
        "exchange_created", "binding_created", "binding_updated", "binding_deleted",
        "exchange_deleted",
    ]  # fmt: skip


def test_settings_are_set_back_from_their_event(either: Page, story: Story) -> None:
    page, queue = either, story.queues["emails"]
    page.goto(f"/console/queues/{queue}")
    before = page.input_value("#settings-lease")
    page.fill("#settings-lease", "7m")
    page.click("text=Show what changes")
    page.click("button:text-is('Save')")
    after = _last(story)
    page.goto(f"/console/events?queue={queue}&kind=queue_updated")
    page.click("text=Set back… >> nth=0")
    expect(page.locator("table")).to_contain_text("7 min")
    page.click("button:text-is('Save')")
    expect(page.locator("#settings-lease")).to_have_value(before)
    assert _kinds(story, after) == ["queue_updated"]


def test_a_message_is_published_again_and_deleted(either: Page, story: Story) -> None:
    page, queue = either, story.queues["emails"]
    page.goto(f"/console/queues/{queue}?state=waiting&order=oldest")
    page.click("#rows a >> nth=0")
    after = _last(story)
    page.click("text=Publish again…")
    page.fill("#body", '{"to": "somebody else"}')
    page.click("button:text-is('Publish')")
    expect(page.locator("#body-text")).to_contain_text("somebody else")
    page.click("[aria-label='Delete the message']")
    page.click("button:text-is('Delete 1 message of emails')")
    expect(page.locator("#done")).to_have_text("1")
    assert _kinds(story, after) == ["published", "deleted"]


def test_dead_letters_are_selected_downloaded_and_redriven(either: Page, story: Story) -> None:
    page, orders = either, story.queues["orders"]
    with story.server.client() as http:
        at = f"/queues/{orders}/messages"
        pulled = http.post(f"{at}/pull", json={"batch_size": 3}).json()["result"]["messages"]
        leases = [{"lease_id": each["lease_id"]} for each in pulled]
        http.post(f"{at}/ack", json={"retries": leases})
    page.goto(f"/console/queues/{story.queues['orders-failed']}")
    held = page.locator("#waiting").text_content()
    page.goto(f"/console/queues/{orders}?state=dead")
    letters = page.locator("#rows tbody tr").count()
    assert letters >= 3
    page.check("#rows input >> nth=0")
    with page.expect_download() as download:
        page.click("button:text-is('Download')")
    lines = download.value.path().read_text().splitlines()
    assert len(lines) == 1 and "order" in json.loads(lines[0])["body"]
    after = _last(story)
    page.select_option("#which", "all")
    page.click("#chosen button:text-is('Redrive…')")
    page.click(f"button:text-is('Redrive {letters} dead letters of orders-failed')")
    expect(page.locator("#done")).to_have_text(str(letters))
    page.click("text=Take back those that nobody has leased since")
    expect(page.locator("#done")).to_have_text(str(letters))
    kinds = _kinds(story, after)
    assert (kinds.count("deleted"), kinds.count("published")) == (2 * letters, 2 * letters)
    page.goto(f"/console/queues/{story.queues['orders-failed']}")
    expect(page.locator("#waiting")).to_have_text(held or "")


def test_selected_queues_are_paused_and_resumed_together(window: Watched, story: Story) -> None:
    page = window.page
    for button, state in (("Pause", "paused"), ("Resume", "")):
        page.goto("/console?sort=name")
        for name in ("audit-log", "plenty"):
            page.check(f"[aria-label='Select {name}']")
        page.click(f"#chosen button:text-is('{button}')")
        for name in ("audit-log", "plenty"):
            queue = story.queues[name]
            expect(page.locator(f"#state-{queue}")).to_contain_text(state)
            facts = page.request.get(f"/console/queues/{queue}",
                                     headers={"Accept": "application/json"}).json()  # fmt: skip
            assert facts["settings"]["paused"] is (button == "Pause")


def test_a_page_with_style_and_script_stays_in_its_budget(story: Story) -> None:
    """60 KB for the first page and all it needs, 14 KB of it on the wire."""
    bearer = {"Authorization": f"Bearer {story.server.credentials['admin']['token']}"}
    with httpx.Client(base_url=story.server.url, headers=bearer, verify=False) as http:
        page = http.get("/console", headers={"Accept": "text/html"})
        names = re.findall(r'(?:href|src)="([^"]*static/[^"]*[.](?:css|js))"', page.text)
        answers = [page, *(http.get(page.url.join(name)) for name in names)]
    assert len(answers) == 3
    assert {each.headers["content-encoding"] for each in answers} == {"gzip"}
    assert sum(len(each.content) for each in answers) <= 60_000
    assert sum(int(each.headers["content-length"]) for each in answers) <= 14_000


def test_theme_and_local_times_are_kept_by_the_browser(browser: Browser, story: Story) -> None:
    look = {"color_scheme": "light", "timezone_id": "Asia/Tokyo"}
    window = Watched(browser, story.server.url, **look)
    window.sign_in(story.server.credentials["admin"]["token"])
    page = window.page
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.click("#own summary")
    page.click("#theme")
    page.click("#theme")
    expect(page.locator("#theme")).to_have_text("theme: dark")
    utc = page.locator("footer time").text_content()
    page.click("#zone")
    expect(page.locator("#times")).to_contain_text("of this device")
    page.goto("/console/events")
    assert page.evaluate(ground) != light
    assert page.locator("footer time").text_content() != utc
    page.click("#own summary")
    assert window.problems() == []
    page.click("#theme")
    assert page.evaluate(ground) == light
    window.close()
    assert window.errors == []
