"""Which addresses may be fetched."""

from __future__ import annotations

import pytest

from ingest_worker.catalogue.asking import BadQuestion
from ingest_worker.intake.addresses import NotListed, checked_address, refusal
from shared.config import load_settings
from shared.errors import ConfigurationError
from shared.hosts import parse_rules

RULES = parse_rules(
    ["docs.example.com", "*.files.example.com", "http://wiki.intranet:8090", "https://[2001:4860::1]:8443", "1.2.3.4"]
)


@pytest.mark.parametrize(
    "url",
    [
        "https://docs.example.com/a.pdf?sig=x#part",
        "https://docs.example.com:443/",
        "https://DOCS.example.com./a",
        "https://eu.files.example.com/a",
        "https://a.b.files.example.com/a",
        "http://wiki.intranet:8090/x",
        "https://[2001:4860::1]:8443/",
        "https://1.2.3.4/",
    ],
)
def test_an_address_of_a_listed_host_scheme_and_port_may_be_fetched(url: str) -> None:
    assert checked_address(url, allowed=RULES)


@pytest.mark.parametrize(
    "url",
    [
        "http://docs.example.com/",
        "https://docs.example.com:8443/",
        "https://docs.example.com.evil.example/",
        "https://evil-docs.example.com/",
        "https://files.example.com/",
        "https://xfiles.example.com/",
        "https://wiki.intranet:8090/",
        "http://wiki.intranet/",
        "https://docs.example.com@evil.example/",
        "https://evil.example/#@docs.example.com/",
        "https://evil.example\\@docs.example.com/",
        "https://user:pw@docs.example.com/",
        "https://user@docs.example.com/",
        "file:///etc/passwd",
        "ftp://docs.example.com/",
        "gopher://docs.example.com/",
        "//docs.example.com/",
        "docs.example.com",
        "https://",
        "https:///a",
        "https://docs.example.com:99999/",
        "https://16909060/",
        "https://0x1020304/",
        "",
        "https://doc\u017f.example.com/",
        "https://[::ffff:1.2.3.4]/",
    ],
)
def test_every_other_address_is_refused_and_its_query_is_not_shown(url: str) -> None:
    with pytest.raises((BadQuestion, NotListed)) as error:
        checked_address(url + ("&" if "?" in url else "?") + "signature=s3cret", allowed=RULES)
    assert "s3cret" not in str(error.value)
    assert "pw" not in str(error.value)


def test_an_empty_list_lets_nothing_be_fetched() -> None:
    with pytest.raises(NotListed, match="DOCWELL_FETCH_ALLOWED_HOSTS") as error:
        checked_address("https://docs.example.com/", allowed=())
    assert error.value.code == "fetch_off"


@pytest.mark.parametrize(
    "text",
    ["*", "*.", "ftp://a.example", "a b", "a.example/path", "a.example:0", "a.example:70000", "https://", "user@a.example"],
)
def test_an_entry_of_the_list_that_is_no_host_stops_the_start(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"names no host|has no port"):
        load_settings({"DOCWELL_FETCH_ALLOWED_HOSTS": text})


PUBLIC = ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808"]
INNER = ["127.0.0.1", "127.1.2.3", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "::1", "fc00::1", "fd12::1"]
INNER_IN_OTHERS = ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:a00:1::", "64:ff9b:1::a00:1"]
NEVER = [
    *("169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fe80::1", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1"),  # noqa: S104
    *("ff02::1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "203.0.113.1", "2001:db8::1", "fec0::1", "x", ""),
    *("168.63.129.16", "::ffff:168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_asked(address: str) -> None:
    assert refusal(address, private=False) is None
    assert refusal(address, private=True) is None


@pytest.mark.parametrize("address", [*INNER, *INNER_IN_OTHERS])
def test_private_addresses_may_be_asked_for_hosts_that_are_listed_as_private_alone(address: str) -> None:
    assert refusal(address, private=False) is not None
    assert refusal(address, private=True) is None


@pytest.mark.parametrize("address", NEVER)
def test_link_local_and_reserved_addresses_are_never_asked(address: str) -> None:
    assert refusal(address, private=False) is not None
    assert refusal(address, private=True) is not None
