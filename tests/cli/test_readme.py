"""What the documentation tells a stranger to paste works as it is printed."""

import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest

from tests.cli.pasted import ROOT, blocks, run, shell
from tests.server import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def place(fresh_server: Server, tmp_path: Path) -> Iterator[Path]:
    """A directory in which a server's data are where `make run` would have put them."""
    (tmp_path / "courier-data").symlink_to(fresh_server.data)
    yield tmp_path


PAGES = {
    "README.md": ("created queue 'orders'", '{"order":1}', "orders-failed"),
    "docs/from-cloudflare.md": ('"backlog_count":1', '"lease_id":"'),
    "docs/from-anypoint.md": (
        '"messageId":"shipment-3","status":"successful"',
        '"properties":{"country":"NL"},"body":"three"',
    ),
    "docs/webhooks.md": ("whsec_", "mailer", "will be pushed again now"),
    "docs/operate.md": ("tenant default", "would redrive 0 messages"),
    "docs/events.md": ("sent to 1 subscription", "cf.workersBuilds.worker.build.failed"),
}


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page(fresh_server: Server, place: Path, page: str) -> None:
    pasted = blocks(page, "sh")
    if page == "README.md":
        run_it = pasted.pop(0)
        assert run_it.startswith("make run")  # as the fixture has done
    if page == "docs/from-cloudflare.md":
        assert pasted.pop() == "npx wrangler queues list\n"  # tests/outside runs it
    if page == "docs/webhooks.md":
        assert "--push-networks 127.0.0.0/8" in (ROOT / page).read_text()
        fresh_server.args = ["--push-networks", "127.0.0.0/8"]
        fresh_server.restart()
    if page != "README.md":
        shell(place, blocks("README.md", "sh")[1])  # the pages are read after it
    said = shell(place, *pasted)
    assert [text for text in PAGES[page] if text not in said] == []


def test_the_readme_is_one_screen() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 50
    [session] = blocks("README.md", "sh")[1:]
    assert len(session.splitlines()) <= 10


def test_the_python_clients_of_the_pages(place: Path) -> None:
    shell(place, "courier queue create orders")
    [cloudflare], [anypoint] = (
        blocks(page, "python") for page in ("docs/from-cloudflare.md", "docs/from-anypoint.md")
    )
    assert "queue_name='orders'" in run(place, sys.executable, "-c", cloudflare)
    assert "Destination(orders, queue)" in run(place, sys.executable, "-c", anypoint)


def test_mule_is_configured_with_a_url_and_credentials_that_open_it(fresh_server: Server) -> None:
    [xml] = blocks("docs/from-anypoint.md", "xml")
    space = "{http://www.mulesoft.org/schema/mule/anypoint-mq}"
    [connection] = ElementTree.fromstring(xml).iter(f"{space}connection")
    given = fresh_server.credentials["anypoint"]
    url = connection.attrib["url"].replace("http://127.0.0.1:8787", given["base_url"])
    wanted = {name: given[name] for name in ("client_id", "client_secret")}
    wanted["grant_type"] = "client_credentials"
    answer = httpx.post(f"{url}/authorize", data=wanted, trust_env=False)
    assert answer.status_code == 200 and answer.json()["access_token"]
    assert {connection.attrib["clientId"], connection.attrib["clientSecret"]} == {
        "${mq.clientId}",
        "${mq.clientSecret}",
    }


def test_credentials_are_variables_of_a_shell(fresh_server: Server, place: Path) -> None:
    said = shell(
        place,
        'eval "$(courier credentials --env)"',
        "echo $DISCUE_API_KEY $CLOUDFLARE_API_BASE_URL",
    )
    given = fresh_server.credentials
    assert said.split() == [given["discue"]["api_key"], given["cloudflare"]["base_url"]]


@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("/client/v4", 4),
        ("/api/v1", 1),
        ("/mq/admin/api/v1", 3),
        ("/mq/stats/api/v1", 1),
        ("/accounts", 2),
        ("/v1", 4),
        ("/courier/v1", 8),
    ],
)
def test_the_lines_of_curl_of_an_api_page(
    fresh_server: Server, place: Path, page: str, least: int
) -> None:
    """Every GET of which the page's own first lines set all variables, on a server of any port."""
    text = httpx.get(f"{fresh_server.url}{page}/docs", trust_env=False).text
    setup, *lines = map(html.unescape, re.findall('<pre class="line"[^>]*>(.*?)</pre>', text, re.S))
    shell(place, "courier queue create orders", "courier publish orders hello")
    setup += "\nDESTINATION_ID=orders"
    exported = shell(place, "courier credentials --env")
    known = set(re.findall(r"^(?:export )?(\w+)=", f"{setup}\n{exported}", re.M))
    gets = [line for line in lines if line.startswith('curl "$')]
    ours = [line for line in gets if set(re.findall(r"\$(\w+)", line)) <= known]
    asked = [f"{line} -s -o /dev/null -w '%{{http_code}} '" for line in ours]
    answers = shell(place, setup, *asked).split()
    assert len(ours) >= least
    assert dict(zip(ours, answers, strict=True)) == dict.fromkeys(ours, "200")


def test_how_the_command_line_gets_a_fifo_queue(place: Path) -> None:
    [pasted] = blocks("docs/cli.md", "sh")
    said = shell(place, pasted, "courier publish payments a", "courier pull payments --json")
    assert '"queueId":"payments","fifo":true' in said
    assert "updated queue 'payments'" in said
    assert '"body": "a"' in said


def test_how_the_encryption_key_is_changed(fresh_server: Server, place: Path) -> None:
    *_, pasted = blocks("docs/operations.md", "sh")
    old = (fresh_server.data / "encryption.key").read_text().strip()
    shell(place, pasted)
    new, *others = (fresh_server.data / "encryption.key").read_text().strip().split(",")
    assert (others, len(new)) == ([old], 44)
    fresh_server.restart()
    said = shell(place, *blocks("docs/cli.md", "sh"), "courier publish payments a")
    assert "updated queue 'payments'" in said
