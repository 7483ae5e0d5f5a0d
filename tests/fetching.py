"""A web server on the loopback, and fetchers that take its name for one of the world."""

from __future__ import annotations

import contextlib
import http.server
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest_worker.intake.fetch import Fetcher
from shared.hosts import parse_rules

Answer = tuple[int, dict[str, str], bytes]
Handle = Callable[[http.server.BaseHTTPRequestHandler], Answer | None]


@dataclass(kw_only=True)
class Site:
    """A web server on the loopback: `answers` by path; a callable writes for itself or returns an answer."""

    port: int = 0
    answers: dict[str, Answer | Handle] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def url(self, path: str, host: str = "docs.example.com", scheme: str = "http") -> str:
        """An address of the server."""
        return f"{scheme}://{host}:{self.port}{path}"


@contextlib.contextmanager
def serving_site(tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    """The server, with TLS where a context is given."""
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


def resolve_here(host: str, port: int) -> Sequence[str]:
    """Every name is here."""
    return ["127.0.0.1"]


def make_fetcher(site: Site, **more: Any) -> Fetcher:
    """A fetcher that may ask this server."""
    rules = parse_rules([f"http://docs.example.com:{site.port}", f"https://docs.example.com:{site.port}"])
    given = {"allowed": rules, "private": rules, "max_bytes": 100_000, "seconds": 10.0, "resolve": resolve_here, **more}
    return Fetcher(**given)
