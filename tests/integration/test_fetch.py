"""Documents that a worker fetches from an address: within bounds, from the address that was checked, kept like pushed bytes."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import http.server
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ingest_worker.catalogue import erasures, fetches
from ingest_worker.intake.fetch import Fetched, Fetcher
from ingest_worker.intake.fetching import fetch_pending
from ingest_worker.intake.read import Refused
from ingest_worker.jobs import table as jobs
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import JobReport, Tools, run_job
from shared.config import Settings
from shared.database import connect, open_pool
from shared.embedding.bundled import bundled_model_dir
from shared.embedding.local import LocalEmbedder
from shared.errors import DocwellError, PermanentError, TransientError
from shared.hosts import parse_rules
from tests.api import Api, running_api
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus
from tests.delivering import AppliedSender
from tests.hooks import Sender, make_secret

Answer = tuple[int, dict[str, str], bytes]
Handle = Callable[[http.server.BaseHTTPRequestHandler], Answer | None]


@dataclass(kw_only=True)
class Site:
    """A web server on the loopback: `answers` by path; a callable writes for itself or returns an answer."""

    port: int = 0
    answers: dict[str, Answer | Handle] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def url(self, path: str, host: str = "docs.example.com", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@contextlib.contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            found = site.answers.get(self.path.partition("?")[0], (404, {}, b""))
            answer = found(self) if callable(found) else found
            if answer is None:
                return
            status, headers, body = answer
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A client that refuses the certificate is no error of the test."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    site.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as found:
        yield found


def _resolve_here(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def _fetcher(site: Site, **more: Any) -> Fetcher:
    rules = parse_rules([f"http://docs.example.com:{site.port}", f"https://docs.example.com:{site.port}"])
    given = {"allowed": rules, "private": rules, "max_bytes": 100_000, "seconds": 10.0, "resolve": _resolve_here, **more}
    return Fetcher(**given)


def _fails(fetcher: Fetcher, url: str, kind: type[DocwellError], code: str, path: str = "a.txt") -> DocwellError:
    with pytest.raises(kind) as error:
        fetcher.fetch(url, path=path)
    assert error.value.code == code, error.value
    assert "s3cret" not in str(error.value)
    return error.value


# ---- one address


def test_the_bytes_and_the_type_come_from_the_named_host(site: Site) -> None:
    site.answers["/a"] = (200, {"Content-Type": "Text/Markdown; charset=utf-8"}, b"# Hello")
    fetched = _fetcher(site).fetch(site.url("/a?sig=s3cret"), path="a.md")
    assert (zlib.decompress(fetched.body.content), fetched.body.size, fetched.media_type) == (b"# Hello", 7, "text/markdown")
    ((path, headers),) = site.asked
    assert path == "/a?sig=s3cret"
    assert headers["host"] == f"docs.example.com:{site.port}"
    assert headers["accept-encoding"] == "identity"
    assert not {"cookie", "authorization"} & headers.keys()


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_a_name_that_leads_inside_is_not_asked(site: Site, address: str) -> None:
    site.answers["/a"] = (200, {}, b"inner")
    fetcher = _fetcher(site, private=(), resolve=lambda host, port: ["93.184.216.34", address])
    error = _fails(fetcher, site.url("/a?sig=s3cret"), PermanentError, "address_not_allowed")
    assert "DOCWELL_FETCH_PRIVATE_HOSTS" in str(error)
    assert site.asked == []


def test_what_dns_says_after_the_check_does_not_matter(site: Site) -> None:
    """The name is resolved once; the connection goes to the address that was checked."""
    site.answers["/a"] = (200, {}, b"text")
    said = iter([["127.0.0.1"], ["169.254.169.254"]])
    assert _fetcher(site, resolve=lambda host, port: next(said)).fetch(site.url("/a"), path="a.txt").body.size == 4
    assert next(said) == ["169.254.169.254"]


def test_a_host_that_is_not_listed_is_not_even_resolved(site: Site) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise AssertionError(host)

    for host in ("evil.example", "127.0.0.1", "localhost"):
        _fails(_fetcher(site, resolve=resolve), site.url("/a?sig=s3cret", host), PermanentError, "host_not_allowed")
    assert site.asked == []


def test_a_redirect_is_followed_and_checked_like_the_first_address(site: Site) -> None:
    site.answers["/a"] = (302, {"Location": "/b?sig=s3cret"}, b"")
    site.answers["/b"] = (307, {"Location": site.url("/c")}, b"")
    site.answers["/c"] = (200, {}, b"text")
    assert _fetcher(site).fetch(site.url("/a"), path="a.txt").body.size == 4
    for target in ("http://evil.example/x?sig=s3cret", "http://169.254.169.254/latest", "file:///etc/passwd", "http://[", "//x"):
        site.answers["/a"] = (302, {"Location": target}, b"")
        with pytest.raises(PermanentError) as error:
            _fetcher(site).fetch(site.url("/a"), path="a.txt")
        assert error.value.code in {"host_not_allowed", "bad_url"}
        assert "s3cret" not in str(error.value)


def test_a_redirect_to_a_listed_name_that_leads_inside_is_not_followed(site: Site) -> None:
    rules = parse_rules([f"http://*.example.com:{site.port}"])
    private = parse_rules([f"http://docs.example.com:{site.port}"])
    site.answers["/a"] = (301, {"Location": site.url("/b", "other.example.com")}, b"")
    fetcher = _fetcher(site, allowed=rules, private=private)
    _fails(fetcher, site.url("/a"), PermanentError, "address_not_allowed")
    assert [path for path, _ in site.asked] == ["/a"]


def test_redirects_in_a_circle_end(site: Site) -> None:
    site.answers["/a"] = (302, {"Location": "/a"}, b"")
    _fails(_fetcher(site), site.url("/a"), PermanentError, "fetch_redirects")
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
    _fails(_fetcher(site), site.url("/a"), Refused, "too_large")


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
    _fails(_fetcher(site, seconds=0.4), site.url("/a"), TransientError, "fetch_slow")
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
    error = _fails(_fetcher(site), site.url("/a?sig=s3cret"), kind, code)
    if isinstance(error, TransientError):
        waits = not callable(answer) and answer[1].get("Retry-After") == "120"
        assert error.retry_after == (120.0 if waits else None)


def test_a_login_page_in_place_of_a_file_is_not_taken_for_it(site: Site) -> None:
    site.answers["/a"] = (200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>Please log in</html>")
    _fails(_fetcher(site), site.url("/a"), PermanentError, "fetch_web_page", path="report.pdf")
    assert _fetcher(site).fetch(site.url("/a"), path="page.html").body.size > 0
    assert _fetcher(site).fetch(site.url("/a"), path="page").media_type == "text/html"


def test_a_name_that_cannot_be_resolved_or_a_port_that_is_closed_may_be_back_later(site: Site) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    _fails(_fetcher(site, resolve=resolve), site.url("/a"), TransientError, "fetch_dns")
    _fails(_fetcher(site, resolve=lambda host, port: []), site.url("/a"), TransientError, "fetch_dns")
    closed = Site(port=1)
    _fails(_fetcher(closed), closed.url("/a"), TransientError, "fetch_failed")


def test_the_next_address_is_asked_when_the_first_does_not_answer(site: Site) -> None:
    site.answers["/a"] = (200, {}, b"text")
    fetcher = _fetcher(site, resolve=lambda host, port: ["::1", "127.0.0.1"])
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
    with serving(server) as site:
        site.answers["/a"] = (200, {}, b"text")
        fetcher = _fetcher(site, tls=client)
        if taken:
            assert fetcher.fetch(site.url("/a", scheme="https"), path="a.txt").body.size == 4
        else:
            _fails(fetcher, site.url("/a", scheme="https"), PermanentError, "fetch_tls")
            assert site.asked == []


# ---- from the event to the index


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url) as found:
        yield found


@pytest.fixture
def api(database: Database, site: Site) -> Iterator[Api]:
    allowed = f"http://docs.example.com:{site.port}"
    with running_api(database.url, webhook_secrets=make_secret(), fetch_allowed_hosts=allowed) as found:
        yield found


@pytest.fixture
def sender(api: Api, corpus: Corpus) -> Sender:
    return AppliedSender(client=api.client, connection=corpus.connection)


def _claim(corpus: Corpus) -> list[jobs.ClaimedJob]:
    return jobs.claim(corpus.connection, worker="test", lease_seconds=60, limit=10)


def _kept(corpus: Corpus, path: str) -> Any:
    row = corpus.connection.execute(
        "SELECT p.content, p.title, p.media_type, p.source_modified FROM docwell.document d"
        " JOIN docwell.pushed_content p USING (document_id) WHERE d.path = %s",
        (path,),
    ).fetchone()
    return None if row is None else (zlib.decompress(row[0]), *row[1:])


def test_an_event_with_an_address_is_stored_and_its_job_fetches(
    sender: Sender, corpus: Corpus, database: Database, site: Site
) -> None:
    site.answers["/a"] = (200, {"Content-Type": "text/markdown"}, b"# Hello")
    answer = sender.send(path="a", url=site.url("/a?sig=s3cret"), title="Greeting", source_modified="2026-11-01T00:00:00Z")
    assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
    assert site.asked == [], "nothing is fetched while the sender waits"
    claimed = _claim(corpus)
    with open_pool(database.url, name="test") as pool:
        assert fetch_pending(claimed, pool, Settings(), fetcher=_fetcher(site)) == {}
        assert fetch_pending(claimed, pool, Settings(), fetcher=_fetcher(site)) == {}
    assert _kept(corpus, "a") == (b"# Hello", "Greeting", "text/markdown", datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC))
    assert (len(site.asked), corpus.count("fetch")) == (1, 0)


def test_an_address_with_a_query_is_shown_to_nobody_and_one_without_is(sender: Sender, corpus: Corpus, site: Site) -> None:
    sender.send(path="a.md", url=site.url("/a?sig=s3cret"))
    sender.send(path="b.md", url=site.url("/b"))
    urls = dict(corpus.connection.execute("SELECT path, url FROM docwell.document").fetchall())
    assert urls == {"a.md": None, "b.md": site.url("/b")}


def test_a_host_that_is_not_listed_is_said_to_the_sender_at_once(sender: Sender, site: Site) -> None:
    for url in ("https://evil.example/a?sig=s3cret", "http://127.0.0.1/a?sig=s3cret"):
        response = sender.send(path="a.md", url=url)
        assert (response.status_code, response.json()["code"]) == (403, "host_not_allowed")
        assert "s3cret" not in response.text


def test_what_could_not_be_fetched_is_told_and_what_was_pushed_before_stays(
    sender: Sender, corpus: Corpus, database: Database, site: Site
) -> None:
    sender.send(path="a.md", content="old")
    sender.send(path="a.md", url=site.url("/gone"))
    sender.send(path="b.md", url=site.url("/b"))
    site.answers["/b"] = (200, {}, b"text")
    claimed = _claim(corpus)
    with open_pool(database.url, name="test") as pool:
        stopped = fetch_pending(claimed, pool, Settings(), fetcher=_fetcher(site))
    assert [error.code for error in stopped.values()] == ["fetch_status"]
    assert (_kept(corpus, "a.md")[0], _kept(corpus, "b.md")[0]) == (b"old", b"text")
    assert corpus.count("fetch") == 1, "another try fetches again"


def test_bytes_that_are_pushed_while_an_address_is_asked_win(
    sender: Sender, corpus: Corpus, database: Database, site: Site
) -> None:
    def overtaken(handler: http.server.BaseHTTPRequestHandler) -> Answer:
        assert sender.send(path="a.md", content="newer").status_code == 202
        return 200, {}, b"older"

    site.answers["/a"] = overtaken
    sender.send(path="a.md", url=site.url("/a"))
    with open_pool(database.url, name="test") as pool:
        assert fetch_pending(_claim(corpus), pool, Settings(), fetcher=_fetcher(site)) == {}
    assert _kept(corpus, "a.md")[0] == b"newer"


def test_a_deletion_forgets_the_address(sender: Sender, corpus: Corpus, database: Database, site: Site) -> None:
    sender.send(path="a.md", url=site.url("/a"))
    sender.send(action="delete", path="a.md")
    assert corpus.count("fetch") == 0


def test_erased_bytes_are_not_kept_when_they_are_fetched(sender: Sender, corpus: Corpus, database: Database, site: Site) -> None:
    site.answers["/a"] = (200, {}, b"erased")
    sender.send(path="a.md", url=site.url("/a"))
    with corpus.connection.transaction():
        place = erasures.Place(document_id=corpus.claim().document_id, source="push", namespace="team", path="other.md")
        erasures.block(corpus.connection, place, [hashlib.sha256(b"erased").digest()])
    corpus.connection.execute("UPDATE docwell.job SET state = 'queued', lease_token = NULL, lease_until = NULL")
    with open_pool(database.url, name="test") as pool:
        (error,) = fetch_pending(_claim(corpus), pool, Settings(), fetcher=_fetcher(site)).values()
    assert isinstance(error, Refused)
    assert (error.code, _kept(corpus, "a.md")) == ("erased", None)


def test_a_fetched_document_goes_all_the_way_and_an_unchanged_one_takes_its_new_title(database: Database, site: Site) -> None:
    embedder = LocalEmbedder(bundled_model_dir())
    site.answers["/a"] = (200, {"Content-Type": "text/markdown"}, b"# Billing\n\nPay on time.\n")
    rule = f"http://127.0.0.1:{site.port}"
    with (
        running_api(database.url, webhook_secrets=make_secret(), fetch_allowed_hosts=rule) as api,
        open_pool(database.url, name="test", autocommit=True) as pool,
        connect(database.url, autocommit=True) as connection,
        ParserCage(CageLimits()) as cage,
    ):
        here = AppliedSender(client=api.client, connection=connection)

        def work(settings: Settings) -> list[JobReport]:
            tools = Tools(settings=settings, pool=pool, cage=cage, embedder=lambda: embedder)
            with pool.connection() as connection:
                claimed = jobs.claim(connection, worker="test", lease_seconds=60)
            return [run_job(job, tools) for job in claimed]

        sent = here.send(path="a", url=site.url("/a", "127.0.0.1"))
        document_url = f"/v1/documents/by-id/{api.client.get(sent.headers['location']).json()['document_id']}"
        with pytest.raises(PermanentError, match="DOCWELL_FETCH_PRIVATE_HOSTS"):
            work(Settings(fetch_allowed_hosts=rule))
        with pool.connection() as connection:
            connection.execute("UPDATE docwell.job SET state = 'queued', lease_token = NULL, lease_until = NULL")
        settings = Settings(fetch_allowed_hosts=rule, fetch_private_hosts=rule)
        assert [report.result for report in work(settings)] == ["indexed"]
        document = api.client.get(document_url).json()
        assert (document["state"], document["title"], document["media_type"]) == ("indexed", "Billing", "text/markdown")

        assert here.send(path="a", url=site.url("/a", "127.0.0.1"), title="How we bill").status_code == 202
        assert [report.result for report in work(settings)] == ["unchanged"]
        document = api.client.get(document_url).json()
        assert (document["state"], document["title"]) == ("indexed", "How we bill")
        with pool.connection() as connection:
            assert fetches.pending(connection, [document["document_id"]]) == []


def test_a_large_document_is_told_as_skipped_with_the_cure(
    sender: Sender, corpus: Corpus, database: Database, site: Site
) -> None:
    site.answers["/a"] = (200, {}, b"x" * 2000)
    sender.send(path="a.md", url=site.url("/a"))
    with open_pool(database.url, name="test") as pool:
        (error,) = fetch_pending(_claim(corpus), pool, Settings(), fetcher=_fetcher(site, max_bytes=1000)).values()
    assert (error.code, "DOCWELL_MAX_BYTES" in str(error)) == ("too_large", True)


def test_a_fetcher_gives_what_came_in_pieces_as_one(site: Site) -> None:
    raw = bytes(range(256)) * 300
    site.answers["/a"] = (200, {}, raw)
    fetched = _fetcher(site).fetch(site.url("/a"), path="a.bin")
    assert isinstance(fetched, Fetched)
    assert zlib.decompress(fetched.body.content) == raw
