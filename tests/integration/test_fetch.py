"""Documents from an address: within bounds, and from the address that was checked."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import ssl
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ingest_worker.intake.fetch import Fetched, Fetcher
from ingest_worker.intake.read import Refused
from shared.errors import DocwellError, PermanentError, TransientError
from shared.hosts import parse_rules
from tests.fetching import Answer, Site, make_fetcher, serving_site


@pytest.fixture
def site() -> Iterator[Site]:
    with serving_site() as found:
        yield found


def _fails(fetcher: Fetcher, url: str, kind: type[DocwellError], code: str, path: str = "a.txt") -> DocwellError:
    with pytest.raises(kind) as error:
        fetcher.fetch(url, path=path)
    assert error.value.code == code, error.value
    assert "s3cret" not in str(error.value)
    return error.value


# ---- one address


def test_the_bytes_and_the_type_come_from_the_named_host(site: Site) -> None:
    site.answers["/a"] = (200, {"Content-Type": "Text/Markdown; charset=utf-8"}, b"# Hello")
    fetched = make_fetcher(site).fetch(site.url("/a?sig=s3cret"), path="a.md")
    assert (zlib.decompress(fetched.body.content), fetched.body.size, fetched.media_type) == (b"# Hello", 7, "text/markdown")
    ((path, headers),) = site.asked
    assert path == "/a?sig=s3cret"
    assert headers["host"] == f"docs.example.com:{site.port}"
    assert headers["accept-encoding"] == "identity"
    assert not {"cookie", "authorization"} & headers.keys()


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_a_name_that_leads_inside_is_not_asked(site: Site, address: str) -> None:
    site.answers["/a"] = (200, {}, b"inner")
    fetcher = make_fetcher(site, private=(), resolve=lambda host, port: ["93.184.216.34", address])
    error = _fails(fetcher, site.url("/a?sig=s3cret"), PermanentError, "address_not_allowed")
    listing_helps = address not in {"169.254.169.254", "0.0.0.0"}  # noqa: S104
    assert ("DOCWELL_FETCH_PRIVATE_HOSTS" in str(error), "never asked" in str(error)) == (listing_helps, not listing_helps)
    assert site.asked == []


def test_what_dns_says_after_the_check_does_not_matter(site: Site) -> None:
    """The name is resolved once; the connection goes to the address that was checked."""
    site.answers["/a"] = (200, {}, b"text")
    said = iter([["127.0.0.1"], ["169.254.169.254"]])
    assert make_fetcher(site, resolve=lambda host, port: next(said)).fetch(site.url("/a"), path="a.txt").body.size == 4
    assert next(said) == ["169.254.169.254"]


def test_a_host_that_is_not_listed_is_not_even_resolved(site: Site) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise AssertionError(host)

    for host in ("evil.example", "127.0.0.1", "localhost"):
        _fails(make_fetcher(site, resolve=resolve), site.url("/a?sig=s3cret", host), PermanentError, "host_not_allowed")
    assert site.asked == []


def test_a_redirect_is_followed_and_checked_like_the_first_address(site: Site) -> None:
    site.answers["/a"] = (302, {"Location": "/b?sig=s3cret"}, b"")
    site.answers["/b"] = (307, {"Location": site.url("/c")}, b"")
    site.answers["/c"] = (200, {}, b"text")
    assert make_fetcher(site).fetch(site.url("/a"), path="a.txt").body.size == 4
    for target in ("http://evil.example/x?sig=s3cret", "http://169.254.169.254/latest", "file:///etc/passwd", "http://[", "//x"):
        site.answers["/a"] = (302, {"Location": target}, b"")
        with pytest.raises(PermanentError) as error:
            make_fetcher(site).fetch(site.url("/a"), path="a.txt")
        assert error.value.code in {"host_not_allowed", "bad_url"}
        assert "s3cret" not in str(error.value)


def test_a_redirect_to_a_listed_name_that_leads_inside_is_not_followed(site: Site) -> None:
    rules = parse_rules([f"http://*.example.com:{site.port}"])
    private = parse_rules([f"http://docs.example.com:{site.port}"])
    site.answers["/a"] = (301, {"Location": site.url("/b", "other.example.com")}, b"")
    fetcher = make_fetcher(site, allowed=rules, private=private)
    _fails(fetcher, site.url("/a"), PermanentError, "address_not_allowed")
    assert [path for path, _ in site.asked] == ["/a"]


def test_redirects_in_a_circle_end(site: Site) -> None:
    site.answers["/a"] = (302, {"Location": "/a"}, b"")
    _fails(make_fetcher(site), site.url("/a"), PermanentError, "fetch_redirects")
    assert len(site.asked) == 6


def _endless(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b"x" * 10_000)


def _bomb(handler: http.server.BaseHTTPRequestHandler) -> Answer:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return 200, {"Content-Encoding": "gzip"}, packer.compress(b"\0" * 10_000_000) + packer.flush()


@pytest.mark.parametrize("answer", [(200, {}, b"x" * 100_001), _endless, _bomb], ids=["announced", "endless", "bomb"])
def test_more_than_the_limit_is_not_taken(site: Site, answer: Any) -> None:
    site.answers["/a"] = answer
    _fails(make_fetcher(site), site.url("/a"), Refused, "too_large")


def _drip_body(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(OSError):
        for _ in range(200):
            handler.wfile.write(b"x")
            time.sleep(0.05)


def _drip_headers(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    with contextlib.suppress(OSError):
        for number in range(200):
            handler.wfile.write(f"X-{number}: x\r\n".encode())
            time.sleep(0.05)


@pytest.mark.parametrize("answer", [_drip_body, _drip_headers], ids=["body", "headers"])
def test_who_sends_drop_by_drop_is_cut_off_when_the_time_is_over(site: Site, answer: Any) -> None:
    site.answers["/a"] = answer
    began = time.monotonic()
    _fails(make_fetcher(site, seconds=0.4), site.url("/a"), TransientError, "fetch_slow")
    assert time.monotonic() - began < 5


def _hang_up(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def _short(handler: http.server.BaseHTTPRequestHandler) -> Answer:
    handler.close_connection = True
    return 200, {"Content-Length": "100"}, b"short"


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        ((404, {}, b""), PermanentError, "fetch_status"),
        ((410, {}, b""), PermanentError, "fetch_status"),
        ((401, {}, b""), PermanentError, "fetch_status"),
        ((403, {}, b""), PermanentError, "fetch_status"),
        ((204, {}, b""), PermanentError, "fetch_status"),
        ((206, {}, b"half"), PermanentError, "fetch_status"),
        ((304, {}, b""), PermanentError, "fetch_status"),
        ((500, {}, b""), TransientError, "fetch_status"),
        ((503, {"Retry-After": "120"}, b""), TransientError, "fetch_status"),
        ((429, {"Retry-After": "soon"}, b""), TransientError, "fetch_status"),
        ((200, {"Content-Type": "video/mp4"}, b"x"), Refused, "unsupported"),
        ((200, {"Content-Encoding": "br"}, b"x"), PermanentError, "fetch_encoding"),
        (_short, TransientError, "fetch_failed"),
        (_hang_up, TransientError, "fetch_failed"),
    ],
)
def test_what_another_try_may_mend_is_tried_again_and_nothing_else(site: Site, answer: Any, kind: Any, code: str) -> None:
    site.answers["/a"] = answer
    error = _fails(make_fetcher(site), site.url("/a?sig=s3cret"), kind, code)
    if isinstance(error, TransientError):
        waits = not callable(answer) and answer[1].get("Retry-After") == "120"
        assert error.retry_after == (120.0 if waits else None)


def test_a_login_page_in_place_of_a_file_is_not_taken_for_it(site: Site) -> None:
    site.answers["/a"] = (200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>Please log in</html>")
    _fails(make_fetcher(site), site.url("/a"), PermanentError, "fetch_web_page", path="report.pdf")
    assert make_fetcher(site).fetch(site.url("/a"), path="page.html").body.size > 0
    assert make_fetcher(site).fetch(site.url("/a"), path="page").media_type == "text/html"


def test_a_name_that_cannot_be_resolved_or_a_port_that_is_closed_may_be_back_later(site: Site) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    _fails(make_fetcher(site, resolve=resolve), site.url("/a"), TransientError, "fetch_dns")
    _fails(make_fetcher(site, resolve=lambda host, port: []), site.url("/a"), TransientError, "fetch_dns")
    closed = Site(port=1)
    _fails(make_fetcher(closed), closed.url("/a"), TransientError, "fetch_failed")


def test_the_next_address_is_asked_when_the_first_does_not_answer(site: Site) -> None:
    site.answers["/a"] = (200, {}, b"text")
    fetcher = make_fetcher(site, resolve=lambda host, port: ["::1", "127.0.0.1"])
    assert fetcher.fetch(site.url("/a"), path="a.txt").body.size == 4


def _certificate(folder: Path, name: str) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption_algorithm=serialization.NoEncryption()
        )
    )
    return certificate, private


@pytest.mark.parametrize(
    ("name", "trusted", "taken"),
    [("docs.example.com", True, True), ("docs.example.com", False, False), ("other.example.com", True, False)],
)
def test_the_certificate_is_that_of_the_name_though_the_address_is_asked(
    tmp_path: Path, name: str, trusted: bool, taken: bool
) -> None:
    certificate, key = _certificate(tmp_path, name)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = ssl.create_default_context()
    if trusted:
        client.load_verify_locations(certificate)
    with serving_site(server) as site:
        site.answers["/a"] = (200, {}, b"text")
        fetcher = make_fetcher(site, tls=client)
        if taken:
            assert fetcher.fetch(site.url("/a", scheme="https"), path="a.txt").body.size == 4
        else:
            _fails(fetcher, site.url("/a", scheme="https"), PermanentError, "fetch_tls")
            assert site.asked == []


def test_a_fetcher_gives_what_came_in_pieces_as_one(site: Site) -> None:
    raw = bytes(range(256)) * 300
    site.answers["/a"] = (200, {}, raw)
    fetched = make_fetcher(site).fetch(site.url("/a"), path="a.bin")
    assert isinstance(fetched, Fetched)
    assert zlib.decompress(fetched.body.content) == raw
