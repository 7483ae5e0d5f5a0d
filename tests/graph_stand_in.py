"""Microsoft Graph and its token endpoint on loopback: only routes and shapes of its documentation, and refusals like its own.

Downloads come from a second server, as they do at Microsoft's: another host, which must not be sent the token.
Faults come when they are asked for (`fault`), or by chance (`fault_rate`, from a seeded source).
"""

from __future__ import annotations

import itertools
import json
import random
import re
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx

from tests.graph_drives import DeltaExpired, Json, StandInDrive, StandInSite, Thing

TENANT = "84bd8158-6d4d-4958-8b9f-9d6445542f95"
CLIENT_ID = "5f1c0f6e-0000-0000-0000-000000000001"
SECRET = "a secret of the application"
START = datetime(2026, 11, 30, 8, tzinfo=UTC)
LONGEST_LIFE = timedelta(minutes=42_300)
READS = {"Files.Read.All", "Sites.Read.All", "Files.ReadWrite.All", "Sites.FullControl.All"}
NAMES = ("throttle", "error", "drop", "half")


@dataclass(kw_only=True)
class Answer:
    """What goes over the wire."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class Fault:
    """Calls whose path fits `pattern` fail `times` times. Kinds: throttle, error, drop, half, slow."""

    kind: str
    pattern: str = ""
    times: int = 1
    status: int = 503
    retry_after: str | None = "7"
    seconds: float = 0.0


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str = "", headers: dict[str, str] | None = None, inner: str = "") -> None:
        super().__init__(message)
        error: Json = {"code": code, "message": message or code}
        if inner:
            error["innerError"] = {"code": inner}
        self.answer = _json({"error": error}, status=status, headers=headers or {})


def _json(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(status=status, body=json.dumps(value).encode(), headers={"Content-Type": "application/json", **(headers or {})})


class StandInGraph:
    """The tenant. `now` is its clock.

    `calls` are the calls so far as `METHOD path`, those within a batch too; `downloads` the ids of items whose bytes were sent;
    `leaked` the tokens that came to the wrong host.
    """

    def __init__(self, seed: int = 1) -> None:
        self.now = START
        self.sites: list[StandInSite] = []
        self.granted = set(READS)
        self.calls: list[str] = []
        self.faults: list[Fault] = []
        self.fault_rate = 0.0
        self.token_life = 3600
        self.resync_code = "resyncChangesApplyDifferences"
        self.subscriptions: dict[str, Json] = {}
        self.notices: list[Json] = []
        self.leaked: list[str] = []
        self.downloads: list[str] = []
        self.url = self.download_url = ""
        self.lock = threading.RLock()
        self._random = random.Random(seed)
        # Loading the system's certificates takes longer than a test.
        self._sender = httpx.Client(trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        self._tokens: dict[str, datetime] = {}
        self._links: dict[str, tuple[StandInDrive, str, datetime]] = {}
        self._numbers = itertools.count(1)

    def site(self, path: str = "/sites/marketing", host: str = "contoso.sharepoint.com") -> StandInSite:
        """A new site."""
        site = StandInSite(site_id=f"{host},{uuid.UUID(int=next(self._numbers))},{uuid.UUID(int=7)}", host=host, path=path)
        self.sites.append(site)
        return site

    def drive(self, site: StandInSite, name: str = "Documents") -> StandInDrive:
        """A new library of a site."""
        drive = StandInDrive(f"b!drive{next(self._numbers):04d}", name, site_url=f"https://{site.host}{site.path}", now=self.now)
        site.drives.append(drive)
        return drive

    def fault(self, kind: str, pattern: str = "", **values: Any) -> None:
        """The next calls that fit fail."""
        self.faults.append(Fault(kind=kind, pattern=pattern, **values))

    def close(self) -> None:
        """Nothing is sent any more."""
        self._sender.close()

    def pass_time(self, span: timedelta) -> None:
        """Let time go by: tokens and subscriptions end."""
        with self.lock:
            self.now += span
            for drive in self._drives():
                drive.now = self.now
            for one in [key for key, sub in self.subscriptions.items() if _moment(sub["expirationDateTime"]) <= self.now]:
                del self.subscriptions[one]

    def revoke_tokens(self) -> None:
        """The tokens given so far are worth nothing."""
        self._tokens.clear()

    def notify(self, drive: StandInDrive, *, lifecycle: str | None = None) -> None:
        """What Graph would send because of a change; `deliver` sends it."""
        for subscription_id, one in self.subscriptions.items():
            if one["resource"].strip("/") == f"drives/{drive.drive_id}/root":
                common = {
                    "subscriptionId": subscription_id,
                    "subscriptionExpirationDateTime": one["expirationDateTime"],
                    "clientState": one["clientState"],
                    "tenantId": TENANT,
                }
                what: Json = (
                    {"lifecycleEvent": lifecycle}
                    if lifecycle
                    else {
                        "changeType": "updated",
                        "resource": one["resource"].strip("/"),
                        "resourceData": {"@odata.type": "#Microsoft.Graph.DriveItem"},
                    }
                )
                self.notices.append({"to": one["lifecycleNotificationUrl" if lifecycle else "notificationUrl"], **common, **what})

    def deliver(self, *, shuffle: bool = False, lose: float = 0.0, repeat: float = 0.0) -> int:
        """Send what is waiting: in another order, some of it never, some of it twice. The number of those answered with 2xx."""
        notices, self.notices = self.notices, []
        if shuffle:
            self._random.shuffle(notices)
        taken = 0
        for notice in notices:
            if self._random.random() < lose:
                continue
            item = {name: value for name, value in notice.items() if name != "to"}
            for _ in range(2 if self._random.random() < repeat else 1):
                taken += self._sender.post(notice["to"], json={"value": [item]}, timeout=10).status_code in {200, 202, 204}
        return taken

    # The wire.

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """The answer to one call."""
        parts = urlsplit(target)
        path = unquote(parts.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        with self.lock:
            try:
                if path.endswith("/oauth2/v2.0/token"):
                    self.calls.append(f"{method} {path}")
                    return self._give_token(method, path, body)
                self._check_token(headers)
                inner = path.removeprefix("/v1.0")
                if inner == "/$batch":
                    self.calls.append(f"{method} {inner}")
                    return self._batch(method, body)
                return self._route(method, inner, query, headers, body)
            except Refusal as refusal:
                return refusal.answer

    def _give_token(self, method: str, path: str, body: bytes) -> Answer:
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        if method != "POST" or form.get("grant_type") != "client_credentials":
            return _json({"error": "unsupported_grant_type"}, status=400)
        if path != f"/{TENANT}/oauth2/v2.0/token":
            return _json({"error": "invalid_request", "error_description": "AADSTS90002: Tenant not found."}, status=400)
        if form.get("client_id") != CLIENT_ID or form.get("client_secret") != SECRET:
            text = "AADSTS7000215: Invalid client secret provided.\r\nTrace ID: 1"
            return _json({"error": "invalid_client", "error_description": text}, status=401)
        if form.get("scope") != f"{self.url}/.default":
            return _json({"error": "invalid_scope", "error_description": "AADSTS70011: The scope is not valid."}, status=400)
        token = f"token-{next(self._numbers)}"
        self._tokens[token] = self.now + timedelta(seconds=self.token_life)
        return _json({"token_type": "Bearer", "expires_in": self.token_life, "access_token": token})

    def _check_token(self, headers: dict[str, str]) -> None:
        ends = self._tokens.get(headers.get("authorization", "").removeprefix("Bearer "))
        if ends is None or ends <= self.now:
            raise Refusal(401, "InvalidAuthenticationToken", "Access token is empty, unknown or has expired.")

    def _needs(self, *permissions: str) -> None:
        if not self.granted & set(permissions):
            raise Refusal(403, "accessDenied", "Access denied")

    def _batch(self, method: str, body: bytes) -> Answer:
        requests = json.loads(body).get("requests")
        if method != "POST" or not isinstance(requests, list) or not requests or len(requests) > 20:
            raise Refusal(400, "BadRequest", "A batch has 1 to 20 requests.")
        if len({one["id"].lower() for one in requests}) != len(requests):
            raise Refusal(400, "BadRequest", "Ids must be unique.")
        responses = []
        for one in requests:
            parts = urlsplit(one["url"])
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            try:
                part = self._route(one["method"], unquote(parts.path), query, {}, b"", within=True)
            except Refusal as refusal:
                part = refusal.answer
            responses.append(
                {"id": one["id"], "status": part.status, "headers": part.headers, "body": json.loads(part.body or b"null")}
            )
        self._random.shuffle(responses)
        return _json({"responses": responses})

    def _route(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes, *, within: bool = False
    ) -> Answer:
        self.calls.append(f"{method} {path}")
        if within:
            self._fail_within(path)
        for pattern, verb, handler in self._routes():
            found = re.fullmatch(pattern, path)
            if found is not None and verb == method:
                return handler(*found.groups(), query=query, headers=headers, body=body)
        raise Refusal(400, "BadRequest", f"Resource not found for the segment of {path}.")

    def _fail_within(self, path: str) -> None:
        for fault in self.faults:
            if fault.kind == "within" and re.search(fault.pattern, path):
                fault.times -= 1
                self.faults = [one for one in self.faults if one.times > 0]
                headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
                raise Refusal(fault.status, "tooManyRequests" if fault.status == 429 else "serviceNotAvailable", headers=headers)

    def _routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [
            (r"/sites/([^/:]+):(/.+)", "GET", self._get_site),
            (r"/sites/([^/]+)", "GET", self._get_site),
            (r"/sites/([^/]+)/drives", "GET", self._get_site_drives),
            (r"/drives/([^/]+)", "GET", self._get_drive),
            (r"/drives/([^/]+)/root/delta", "GET", self._get_delta),
            (r"/drives/([^/]+)/root", "GET", self._get_root),
            (r"/drives/([^/]+)/items/([^/]+)", "GET", self._get_item),
            (r"/drives/([^/]+)/items/([^/]+)/children", "GET", self._get_children),
            (r"/drives/([^/]+)/items/([^/]+)/permissions", "GET", self._get_permissions),
            (r"/drives/([^/]+)/items/([^/]+)/content", "GET", self._get_content),
            (r"/subscriptions", "POST", self._post_subscription),
            (r"/subscriptions", "GET", self._get_subscriptions),
            (r"/subscriptions/([^/]+)", "GET", self._get_subscription),
            (r"/subscriptions/([^/]+)", "PATCH", self._patch_subscription),
            (r"/subscriptions/([^/]+)", "DELETE", self._delete_subscription),
            (r"/subscriptions/([^/]+)/reauthorize", "POST", self._reauthorize),
        ]

    def _drives(self) -> Iterator[StandInDrive]:
        for site in self.sites:
            yield from site.drives

    def _drive(self, drive_id: str) -> StandInDrive:
        self._needs(*READS)
        for drive in self._drives():
            if drive.drive_id == drive_id:
                return drive
        raise Refusal(404, "itemNotFound", "The resource could not be found.")

    def _thing(self, drive_id: str, item_id: str) -> tuple[StandInDrive, Thing]:
        drive = self._drive(drive_id)
        thing = drive.things.get(item_id)
        if thing is None:
            raise Refusal(404, "itemNotFound", "Item not found")
        return drive, thing

    def _get_site(self, host: str, path: str | None = None, **_: Any) -> Answer:
        self._needs("Sites.Read.All", "Sites.FullControl.All")
        for site in self.sites:
            if host == site.site_id or (host.lower() == site.host and (path or "").lower() == site.path.lower()):
                return _json({"id": site.site_id, "webUrl": f"https://{site.host}{site.path}"})
        raise Refusal(404, "itemNotFound", "Requested site could not be found")

    def _get_site_drives(self, site_id: str, **_: Any) -> Answer:
        self._needs("Sites.Read.All", "Sites.FullControl.All")
        for site in self.sites:
            if site.site_id == site_id:
                return _json({"value": [self._drive_json(drive) for drive in site.drives]})
        raise Refusal(404, "itemNotFound", "Requested site could not be found")

    def _get_drive(self, drive_id: str, **_: Any) -> Answer:
        return _json(self._drive_json(self._drive(drive_id)))

    def _drive_json(self, drive: StandInDrive) -> Json:
        ids = {"siteUrl": drive.site_url, "siteId": "s", "webId": "w", "listId": "l"}
        return {"id": drive.drive_id, "name": drive.name, "webUrl": f"{drive.site_url}/{drive.name}", "sharePointIds": ids}

    def _get_delta(self, drive_id: str, *, query: dict[str, str], headers: dict[str, str], **_: Any) -> Answer:
        drive = self._drive(drive_id)
        prefer = {part.strip().lower() for part in headers.get("prefer", "").split(",")}
        sharing = "deltashowsharingchanges" in prefer
        if sharing and not {"deltashowremovedasdeleted", "deltatraversepermissiongaps"} <= prefer:
            raise Refusal(400, "invalidRequest", "Must also prefer deltashowremovedasdeleted and deltatraversepermissiongaps.")
        here = f"{self.url}/v1.0/drives/{drive_id}/root/delta"
        try:
            values, following, latest = drive.delta(
                query.get("token"), hierarchical="hierarchicalsharing" in prefer, sharing=sharing
            )
        except DeltaExpired:
            raise Refusal(410, "resyncRequired", "Resync required", {"Location": here}, self.resync_code) from None
        page: Json = {"value": values}
        page["@odata.nextLink" if following else "@odata.deltaLink"] = f"{here}?token={following or latest}"
        return _json(page)

    def _get_root(self, drive_id: str, **_: Any) -> Answer:
        drive = self._drive(drive_id)
        return _json(drive.to_json(drive.things[drive.root]))

    def _get_item(self, drive_id: str, item_id: str, *, query: dict[str, str], **_: Any) -> Answer:
        drive, thing = self._thing(drive_id, item_id)
        found = drive.to_json(thing)
        if thing.kind == "file" and "$select" not in query:
            found["@microsoft.graph.downloadUrl"] = self._link(drive, thing)
        if "$select" in query:
            wanted = set(query["$select"].split(","))
            found = {name: value for name, value in found.items() if name in wanted}
        return _json(found)

    def _get_children(self, drive_id: str, item_id: str, *, query: dict[str, str], **_: Any) -> Answer:
        drive, thing = self._thing(drive_id, item_id)
        if thing.kind == "package":
            raise Refusal(400, "invalidRequest", "A notebook has no children here.")
        children = drive.children(thing.item_id)
        size = min(int(query.get("$top", "200")), drive.page_size)
        skip = int(query.get("$skiptoken", "0"))
        page: Json = {"value": [drive.to_json(one) for one in children[skip : skip + size]]}
        if skip + size < len(children):
            page["@odata.nextLink"] = (
                f"{self.url}/v1.0/drives/{drive_id}/items/{item_id}/children?$top={size}&$skiptoken={skip + size}"
            )
        return _json(page)

    def _get_permissions(self, drive_id: str, item_id: str, **_: Any) -> Answer:
        self._needs("Files.Read.All", "Files.ReadWrite.All", "Sites.FullControl.All")
        drive, thing = self._thing(drive_id, item_id)
        return _json({"value": drive.effective(thing)})

    def _get_content(self, drive_id: str, item_id: str, **_: Any) -> Answer:
        drive, thing = self._thing(drive_id, item_id)
        if thing.kind != "file":
            raise Refusal(400, "invalidRequest", "You cannot get content for a folder")
        return Answer(status=302, headers={"Location": self._link(drive, thing)})

    def _link(self, drive: StandInDrive, thing: Thing) -> str:
        name = f"tempauth{next(self._numbers)}"
        self._links[name] = (drive, thing.item_id, self.now + timedelta(hours=1))
        return f"{self.download_url}/download.aspx?tempauth={name}"

    def _post_subscription(self, *, body: bytes, headers: dict[str, str], **_: Any) -> Answer:
        self._needs("Files.ReadWrite.All")
        asked = json.loads(body)
        found = re.fullmatch(r"/?drives/([^/]+)/root", asked.get("resource", ""))
        if found is None or asked.get("changeType") != "updated":
            raise Refusal(400, "InvalidRequest", "The resource or its changeType is not supported.")
        self._drive(found.group(1))
        if len(asked.get("clientState", "")) > 128:
            raise Refusal(400, "InvalidRequest", "clientState has more than 128 characters.")
        self._check_life(asked.get("expirationDateTime", ""))
        resource = asked["resource"].strip("/")
        if any(one["resource"].strip("/") == resource for one in self.subscriptions.values()):
            raise Refusal(409, "Conflict", "A subscription already exists for this resource and change type.")
        for name in ("notificationUrl", "lifecycleNotificationUrl"):
            if name in asked:
                self._shake_hands(asked[name])
        subscription_id = str(uuid.UUID(int=self._random.getrandbits(128)))
        self.subscriptions[subscription_id] = {**asked, "id": subscription_id, "prefer": headers.get("prefer", "")}
        return _json(self._shown(subscription_id), status=201)

    def _shake_hands(self, url: str) -> None:
        token = f"Validation: a token & {next(self._numbers)} with ünusual characters"
        try:
            answer = self._sender.post(url, params={"validationToken": token}, headers={"Content-Type": "text/plain"}, timeout=10)
        except httpx.TransportError as error:
            raise Refusal(400, "ValidationError", f"Subscription validation request failed: {error}") from None
        plain = answer.headers.get("Content-Type", "").partition(";")[0] == "text/plain"
        if answer.status_code != 200 or not plain or answer.text != token:
            raise Refusal(400, "ValidationError", "Subscription validation request failed. The answer is wrong.")

    def _check_life(self, expires: str) -> None:
        if not expires or _moment(expires) <= self.now or _moment(expires) > self.now + LONGEST_LIFE:
            raise Refusal(400, "InvalidRequest", "Subscription expiration can only be 42300 minutes in the future.")

    def _shown(self, subscription_id: str) -> Json:
        return {
            **{name: value for name, value in self.subscriptions[subscription_id].items() if name != "prefer"},
            "clientState": None,
        }

    def _get_subscriptions(self, **_: Any) -> Answer:
        return _json({"value": [self._shown(one) for one in self.subscriptions]})

    def _known(self, subscription_id: str) -> Json:
        if subscription_id not in self.subscriptions:
            raise Refusal(404, "ResourceNotFound", "The object was not found.")
        return self.subscriptions[subscription_id]

    def _get_subscription(self, subscription_id: str, **_: Any) -> Answer:
        self._known(subscription_id)
        return _json(self._shown(subscription_id))

    def _patch_subscription(self, subscription_id: str, *, body: bytes, **_: Any) -> Answer:
        one = self._known(subscription_id)
        asked = json.loads(body)
        self._check_life(asked.get("expirationDateTime", ""))
        one["expirationDateTime"] = asked["expirationDateTime"]
        return _json(self._shown(subscription_id))

    def _delete_subscription(self, subscription_id: str, **_: Any) -> Answer:
        self._known(subscription_id)
        del self.subscriptions[subscription_id]
        return Answer(status=204)

    def _reauthorize(self, subscription_id: str, **_: Any) -> Answer:
        self._known(subscription_id)
        return Answer(status=204)

    def download(self, target: str, headers: dict[str, str]) -> Answer:
        """The other host."""
        if "authorization" in headers:
            self.leaked.append(headers["authorization"])
            return Answer(status=401)
        name = parse_qs(urlsplit(target).query).get("tempauth", [""])[0]
        with self.lock:
            drive, item_id, ends = self._links.get(name, (None, "", self.now))
            thing = None if drive is None or ends <= self.now else drive.things.get(item_id)
            if thing is None:
                return Answer(status=404)
            self.downloads.append(item_id)
            return Answer(status=200, body=thing.data)

    def pick_fault(self, target: str) -> Fault | None:
        """The fault of this call, if it has one."""
        with self.lock:
            for fault in self.faults:
                if fault.kind != "within" and re.search(fault.pattern, unquote(target)):
                    fault.times -= 1
                    self.faults = [one for one in self.faults if one.times > 0]
                    return fault
            if self._random.random() < self.fault_rate:
                return Fault(kind=self._random.choice(NAMES), status=self._random.choice([429, 500, 502, 503, 504, 509]))
            return None


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _handler(graph: StandInGraph, answer: Callable[[str, str, dict[str, str], bytes], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            fault = graph.pick_fault(self.path)
            if fault is not None and fault.kind == "slow":
                time.sleep(fault.seconds)
            if fault is not None and fault.kind == "drop":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if fault is not None and fault.kind in {"throttle", "error"}:
                status = 429 if fault.kind == "throttle" else fault.status
                told = {} if fault.retry_after is None or status in {500, 502, 504} else {"Retry-After": fault.retry_after}
                self.put(_json({"error": {"code": "activityLimitReached", "message": "Busy"}}, status=status, headers=told))
                return
            self.put(answer(self.command, self.path, headers, body), half=fault is not None and fault.kind == "half")

        def put(self, found: Answer, *, half: bool = False) -> None:
            lines = [f"HTTP/1.1 {found.status} X", f"Content-Length: {len(found.body)}"]
            lines += [f"{name}: {value}" for name, value in found.headers.items()]
            sent = found.body[: len(found.body) // 2] if half else found.body
            # One write: headers and body apart would wait for each other.
            self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1") + sent)
            if half:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_POST = do_PATCH = do_DELETE = serve  # noqa: N815

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go when they like."""


@contextmanager
def standing_in(graph: StandInGraph) -> Iterator[StandInGraph]:
    """Serve it; `url` and `download_url` are its addresses."""
    servers = [
        _Server(("127.0.0.1", 0), _handler(graph, graph.answer)),
        _Server(("127.0.0.1", 0), _handler(graph, lambda method, target, headers, body: graph.download(target, headers))),
    ]
    threads = [threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True) for server in servers]
    graph.url, graph.download_url = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    for thread in threads:
        thread.start()
    try:
        yield graph
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join(10)
        graph.close()
