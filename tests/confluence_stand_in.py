"""Confluence Cloud and Data Center on loopback: routes and shapes of their documentation, and refusals like their own.

Attachments come from a second server, another host to HTTP, which must never be sent the credentials. Faults come when they are
asked for (`fault`), or by chance (`fault_rate`, from a seeded source). Webhooks are sent with `send`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx

from shared.config import ConfluenceSettings
from tests.confluence_v1 import DataCenterRoutes, Refused
from tests.confluence_v2 import CloudRoutes
from tests.confluence_wiki import Json, Wiki

USER = "reader@example.com"
TOKEN = "a token of the reader"
KINDS = ("throttle", "error", "drop", "half")


@dataclass(kw_only=True)
class Fault:
    """Calls whose path fits `pattern` fail `times` times. Kinds: throttle, error, drop, half, slow, html."""

    kind: str
    pattern: str = ""
    times: int = 1
    status: int = 429
    retry_after: str | None = "7"
    seconds: float = 0.0


@dataclass(kw_only=True)
class StandIn:
    """A site that listens: `base` is its address as a source is given it."""

    wiki: Wiki
    deployment: str
    routes: CloudRoutes | DataCenterRoutes
    base: str = ""
    media: str = ""
    faults: list[Fault] = field(default_factory=list)
    fault_rate: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    calls: list[str] = field(default_factory=list)
    media_calls: list[dict[str, str]] = field(default_factory=list)
    repeat: bool = False  # the first result of a page comes again at the end of the page before
    anonymous: bool = False  # credentials that have run out make one a visitor
    before: Callable[[str], None] | None = None  # called before each answer, with its path

    def fault(self, kind: str, pattern: str = "", **more: Any) -> None:
        """Let the next calls fail."""
        self.faults.append(Fault(kind=kind, pattern=pattern, **more))

    def settings(self, **more: Any) -> ConfluenceSettings:
        """What a source needs to ask this site."""
        account: Json = {"username": USER} if self.deployment == "cloud" else {}
        return ConfluenceSettings.model_validate(
            {
                "type": "confluence",
                "name": "wiki",
                "namespace": "wiki",
                "deployment": self.deployment,
                "base_url": self.base,
                "api_token": TOKEN,
                "rate": 10_000,
                **account,
                **more,
            }
        )

    def send(self, url: str, event: tuple[str, Json], *, secret: str, client: httpx.Client) -> httpx.Response:
        """Deliver an event as the deployment does: Cloud to one address an event, with the token in it; Data Center signed."""
        kind, told = event
        body = json.dumps(told).encode()
        if self.deployment == "cloud":
            return client.post(f"{url}/{kind}", params={"token": secret}, content=body)
        digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        return client.post(url, content=body, headers={"X-Hub-Signature": f"sha256={digest}"})

    def next_fault(self, path: str) -> Fault | None:
        """What is to go wrong with this call."""
        for fault in self.faults:
            if fault.times > 0 and re.search(fault.pattern, path):
                fault.times -= 1
                return fault
        if self.fault_rate and self.chance.random() < self.fault_rate:
            return Fault(kind=self.chance.choice(KINDS), status=self.chance.choice((429, 503)), retry_after="0")
        return None

    @property
    def authorization(self) -> str:
        """The header that is right."""
        if self.deployment == "cloud":
            return "Basic " + base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
        return f"Bearer {TOKEN}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    site: StandIn

    def log_message(self, *_: Any) -> None:
        """Silence."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        site = self.site
        prefix = "/wiki" if site.deployment == "cloud" else "/confluence"
        path = unquote(parts.path).removeprefix(prefix)
        site.calls.append(path)
        if site.before is not None:
            site.before(path)
        fault = site.next_fault(path)
        if fault is not None and self._failed(fault):
            return
        if self.headers.get("Authorization") != site.authorization and not site.anonymous:
            self._send(401, b'{"message":"Client must be authenticated to access this resource."}')
            return
        if not parts.path.startswith(prefix + "/"):
            self._send(404, b"{}")
            return
        try:
            with site.wiki.lock:
                status, body, headers = self._answer(path, parse_qs(parts.query))
        except Refused as refusal:
            status, body, headers = (
                refusal.status,
                json.dumps({"statusCode": refusal.status, "message": str(refusal)}).encode(),
                {},
            )
        if fault is not None and fault.kind == "half":
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self._send(status, body, headers)

    def _answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, bytes, dict[str, str]]:
        site = self.site
        if site.anonymous and path == "/rest/api/user/current":
            return 200, b'{"type":"anonymous"}', {}
        file = re.fullmatch(
            r"/rest/api/content/\d+/child/attachment/att(\d+)/download"
            if site.deployment == "cloud"
            else r"/download/attachments/(\d+)/(.+)",
            path,
        )
        if file is not None:
            found = self._file(file)
            return 302, b"", {"Location": f"{site.media}/file/{found}?token=signed"}
        answer = site.routes.answer(path, query)
        if site.repeat and isinstance(answer, dict) and answer.get("results") and answer.get("_links", {}).get("next"):
            answer["results"] = [*answer["results"], answer["results"][0]]
        return 200, json.dumps(answer).encode(), {}

    def _file(self, match: re.Match[str]) -> int:
        wiki = self.site.wiki
        if self.site.deployment == "cloud":
            found = wiki.things.get(int(match[1]))
        else:
            page = wiki.things.get(int(match[1]))
            found = None if page is None else next((one for one in wiki.attachments(page) if one.title == match[2]), None)
        if found is None or not found.is_there:
            raise Refused(404, "No attachment")
        return found.thing_id

    def _failed(self, fault: Fault) -> bool:
        """Whether the fault is all that there is of an answer."""
        match fault.kind:
            case "throttle":
                self._send(fault.status, b"{}", {} if fault.retry_after is None else {"Retry-After": fault.retry_after})
            case "error":
                self._send(fault.status if fault.status >= 500 or fault.status in {401, 403} else 500, b"<html>oops</html>")
            case "drop":
                self.close_connection = True
            case "html":
                self._send(200, b"<!DOCTYPE html><html>Log in</html>")
            case "slow":
                time.sleep(fault.seconds)
                return False
            case _:
                return False
        return True

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class _MediaHandler(_Handler):
    """Where the bytes are. Whoever sends credentials is noted, and refused, as signed addresses do."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.site.media_calls.append({name.lower(): value for name, value in self.headers.items()})
        thing = self.site.wiki.things.get(int(parts.path.rpartition("/")[2]))
        if thing is None or "token=signed" not in parts.query or "Authorization" in self.headers:
            self._send(400, b"")
            return
        self._send(200, thing.data)


class _Server(ThreadingHTTPServer):
    """Says nothing of callers that hang up."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def confluence(deployment: str, clock: Callable[[], datetime]) -> Iterator[StandIn]:
    """A site of this deployment (`cloud`, `data_center`), listening."""
    wiki = Wiki(clock)
    wiki.deployment = deployment
    routes = CloudRoutes(wiki) if deployment == "cloud" else DataCenterRoutes(wiki)
    site = StandIn(wiki=wiki, deployment=deployment, routes=routes)
    servers = [_Server(("127.0.0.1", 0), type("Handler", (handler,), {"site": site})) for handler in (_Handler, _MediaHandler)]
    site.base, site.media = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    site.base += "/wiki" if deployment == "cloud" else "/confluence"
    if isinstance(routes, CloudRoutes):
        routes.base = site.base
    threads = [threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield site
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join(10)
            server.server_close()
