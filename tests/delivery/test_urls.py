"""Which URLs a listener may have, before anybody tries to call them."""

import pytest

from courier.core.errors import InvalidRequest
from courier.delivery.targets import Targets, check_url, host_and_port, networks

GOOD = [
    *("http://example.com", "http://example.com/", "https://example.com/hook?a=b&c=%20"),
    *("https://example.com:8443/hook", "HTTPS://Example.COM/Hook", "http://a.b"),
    *("http://my_service/", "http://xn--mnchen-3ya.example/", "http://example.com./"),
    *("http://1.example/", "http://127.0.0.1.example/", "http://0x7f.example/", "http://8.8.8.8/"),
    *("http://134744072/", "http://[2606:4700:4700::1111]:443/", "http://example.com:1/"),
    *("http://example.com:65535/", "http://localhost.example/"),
    "http://example.com/" + "x" * (253 - 19),
]
MALFORMED = [
    *("", "a:b", "example.com", "/hook", "//example.com/hook", "http:", "http:/example.com"),
    *("http:example.com", "http://", "http:///hook", "http://?a", "ftp://example.com/"),
    *("file:///etc/passwd", "gopher://example.com/", "javascript://example.com/"),
    *("ws://example.com/", " http://example.com/", "http://example.com/a b"),
    *("http://example.com/\t", "http://example.com/\r\nX-A: b", "http://exa\nmple.com/"),
    *("http://example.com/\x00", "http://example.com/\x7f", "http://example.com\\@evil.example/"),
    *("http://münchen.example/", "http://example\uff0ecom/", "http://\uff11\uff12\uff17.0.0.1/"),
    *("http://user@example.com/", "http://user:secret@example.com/", "http://@example.com/"),
    *("http://example.com@127.0.0.1/", "http://example.com/#part"),
    *("http://example.com#@127.0.0.1/", "http://example.com:/", "http://example.com:0/"),
    *("http://example.com:65536/", "http://example.com:999999/", "http://example.com:80a/"),
    *("http://example.com:-1/", "http://example.com:+80/", "http://exa%6dple.com/"),
    *("http://%31%32%37.0.0.1/", "http://example..com/", "http://.example.com/"),
    *("http://-example.com/", "http://example-.com/", "http://" + "a" * 64 + ".example/"),
    *("http://exam!ple.com/", "http://[::1/", "http://::1/", "http://[]/", "http://[::1]a/"),
    *("http://[v1.a]/", "http://[2606:4700::1111%25eth0]/", "http://1.2.3.256/"),
    *("http://1.2.3.4.5/", "http://99999999999/", "http://0x/", "http://example.1/"),
    "http://example.com/" + "x" * (254 - 19),
]
PRIVATE = [
    *("http://127.0.0.1/", "http://127.0.0.1:8080/", "http://127.0.0.1./"),
    *("http://127.255.255.254/", "http://127.1/", "http://127.0.1/", "http://2130706433/"),
    *("http://017700000001/", "http://0177.0.0.1/", "http://0x7f000001/", "http://0x7f.1/"),
    *("http://0X7F.0x0.0.1/", "http://localhost/", "http://LOCALHOST:80/", "http://localhost./"),
    *("http://a.localhost/", "http://localhost.localdomain/", "http://ip6-localhost/"),
    *("http://ip6-loopback/", "http://[::1]/", "http://[0:0:0:0:0:0:0:1]/"),
    *("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://0.0.0.0/", "http://0/"),
    *("http://[::]/", "http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.1.1/"),
    *("http://3232235777/", "http://100.64.0.1/", "http://169.254.169.254/latest/meta-data/"),
    *("http://2852039166/", "http://[::ffff:169.254.169.254]/", "http://[fe80::1]/"),
    *("http://[fd00::1]/", "http://[fd00:ec2::254]/", "http://[64:ff9b::7f00:1]/"),
    *("http://[2002:7f00:1::]/", "http://224.0.0.1/", "http://255.255.255.255/"),
    *("http://192.0.2.1/", "http://[ff02::1]/"),
]
LOOPBACK = [
    *("http://127.0.0.1:8080/hook", "http://127.1/", "http://2130706433/", "http://0x7f.1/"),
    *("http://localhost:3000/", "http://a.localhost/"),
]


@pytest.mark.parametrize("url", GOOD)
def test_a_public_url_is_accepted(url: str) -> None:
    check_url(url, Targets(), field="notify_url")


@pytest.mark.parametrize("url", [*MALFORMED, *PRIVATE])
def test_a_url_that_will_never_be_called_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_url(url, Targets(), field="notify_url")
    assert refused.value.field == "notify_url"


@pytest.mark.parametrize("url", MALFORMED)
def test_no_permission_makes_a_malformed_url_good(url: str) -> None:
    with pytest.raises(InvalidRequest):
        check_url(url, Targets(networks("0.0.0.0/0,::/0")), field="notify_url")


@pytest.mark.parametrize("url", LOOPBACK)
def test_what_the_operator_allows_is_accepted(url: str) -> None:
    check_url(url, Targets(networks("127.0.0.0/8")), field="notify_url")
    with pytest.raises(InvalidRequest):
        check_url(url, Targets(networks("10.0.0.0/8")), field="notify_url")


def test_localhost_may_be_the_other_loopback_address() -> None:
    check_url("http://localhost/", Targets(networks("::1/128")), field="notify_url")
    check_url("http://[::1]/", Targets(networks("::1/128")), field="notify_url")
    with pytest.raises(InvalidRequest):
        check_url("http://127.0.0.1/", Targets(networks("::1/128")), field="notify_url")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://example.com/a", ("example.com", 80)),
        ("https://Example.COM./a", ("example.com", 443)),
        ("https://example.com:8443", ("example.com", 8443)),
        ("http://[2606:4700::1111]:81/", ("2606:4700::1111", 81)),
    ],
)
def test_where_a_url_leads_to(url: str, place: tuple[str, int]) -> None:
    check_url(url, Targets(), field="notify_url")
    assert host_and_port(url) == place
