"""Microsoft Graph and its token endpoint on loopback: only routes and shapes of its documentation, and refusals like its own.

Downloads come from a second server, as they do at Microsoft's: another host, which must not be sent the token.
Faults come when they are asked for (`fault`), or by chance (`fault_rate`, from a seeded source).
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.graph_drives import DeltaExpired, Json, StandInDrive, StandInSite, Thing
from tests.graph_subscriptions import TENANT, GraphSubscriptions
from tests.graph_wire import FAULTS, Answer, Fault, Refusal, Server, handler_of, json_answer

CLIENT_ID = "5f1c0f6e-0000-0000-0000-000000000001"
SECRET = "a secret of the application"
START = datetime(2026, 11, 30, 8, tzinfo=UTC)
READS = {"Files.Read.All", "Sites.Read.All", "Files.ReadWrite.All", "Sites.FullControl.All"}


class StandInGraph(GraphSubscriptions):
    """The tenant. `now` is its clock.

    `calls` are the calls so far as `METHOD path`, those within a batch too; `downloads` the ids of items whose bytes were sent;
    `leaked` the tokens that came to the wrong host.
    """

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed, START)
        self.sites: list[StandInSite] = []
        self.granted = set(READS)
        self.calls: list[str] = []
        self.faults: list[Fault] = []
        self.fault_rate = 0.0
        self.token_life = 3600
        self.resync_code = "resyncChangesApplyDifferences"
        self.leaked: list[str] = []
        self.downloads: list[str] = []
        self.url = self.download_url = ""
        self.lock = threading.RLock()
        self._tokens: dict[str, datetime] = {}
        self._links: dict[str, tuple[StandInDrive, str, datetime]] = {}

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

    def pass_time(self, span: timedelta) -> None:
        """Let time go by: tokens and subscriptions end."""
        with self.lock:
            self.now += span
            for drive in self._drives():
                drive.now = self.now
            self._end_old_ones()

    def revoke_tokens(self) -> None:
        """The tokens given so far are worth nothing."""
        self._tokens.clear()

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
            return json_answer({"error": "unsupported_grant_type"}, status=400)
        if path != f"/{TENANT}/oauth2/v2.0/token":
            return json_answer({"error": "invalid_request", "error_description": "AADSTS90002: Tenant not found."}, status=400)
        if form.get("client_id") != CLIENT_ID or form.get("client_secret") != SECRET:
            text = "AADSTS7000215: Invalid client secret provided.\r\nTrace ID: 1"
            return json_answer({"error": "invalid_client", "error_description": text}, status=401)
        if form.get("scope") != f"{self.url}/.default":
            return json_answer(
                {"error": "invalid_scope", "error_description": "AADSTS70011: The scope is not valid."}, status=400
            )
        token = f"token-{next(self._numbers)}"
        self._tokens[token] = self.now + timedelta(seconds=self.token_life)
        return json_answer({"token_type": "Bearer", "expires_in": self.token_life, "access_token": token})

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
        return json_answer({"responses": responses})

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
                return json_answer({"id": site.site_id, "webUrl": f"https://{site.host}{site.path}"})
        raise Refusal(404, "itemNotFound", "Requested site could not be found")

    def _get_site_drives(self, site_id: str, **_: Any) -> Answer:
        self._needs("Sites.Read.All", "Sites.FullControl.All")
        for site in self.sites:
            if site.site_id == site_id:
                return json_answer({"value": [self._drive_json(drive) for drive in site.drives]})
        raise Refusal(404, "itemNotFound", "Requested site could not be found")

    def _get_drive(self, drive_id: str, **_: Any) -> Answer:
        return json_answer(self._drive_json(self._drive(drive_id)))

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
        return json_answer(page)

    def _get_root(self, drive_id: str, **_: Any) -> Answer:
        drive = self._drive(drive_id)
        return json_answer(drive.to_json(drive.things[drive.root]))

    def _get_item(self, drive_id: str, item_id: str, *, query: dict[str, str], **_: Any) -> Answer:
        drive, thing = self._thing(drive_id, item_id)
        found = drive.to_json(thing)
        if thing.kind == "file" and "$select" not in query:
            found["@microsoft.graph.downloadUrl"] = self._link(drive, thing)
        if "$select" in query:
            wanted = set(query["$select"].split(","))
            found = {name: value for name, value in found.items() if name in wanted}
        return json_answer(found)

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
        return json_answer(page)

    def _get_permissions(self, drive_id: str, item_id: str, *, query: dict[str, str], **_: Any) -> Answer:
        self._needs("Files.Read.All", "Files.ReadWrite.All", "Sites.FullControl.All")
        drive, thing = self._thing(drive_id, item_id)
        listed, skip = drive.effective(thing), int(query.get("$skiptoken", "0"))
        end = skip + drive.permissions_page
        page: Json = {"value": listed[skip:end]}
        if end < len(listed):
            page["@odata.nextLink"] = f"{self.url}/v1.0/drives/{drive_id}/items/{item_id}/permissions?$skiptoken={end}"
        return json_answer(page)

    def _get_content(self, drive_id: str, item_id: str, **_: Any) -> Answer:
        drive, thing = self._thing(drive_id, item_id)
        if thing.kind != "file":
            raise Refusal(400, "invalidRequest", "You cannot get content for a folder")
        return Answer(status=302, headers={"Location": self._link(drive, thing)})

    def _link(self, drive: StandInDrive, thing: Thing) -> str:
        name = f"tempauth{next(self._numbers)}"
        self._links[name] = (drive, thing.item_id, self.now + timedelta(hours=1))
        return f"{self.download_url}/download.aspx?tempauth={name}"

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
                return Fault(kind=self._random.choice(FAULTS), status=self._random.choice([429, 500, 502, 503, 504, 509]))
            return None


@contextmanager
def one_library() -> Iterator[StandInGraph]:
    """A tenant with one site that has one library, listening."""
    stand_in = StandInGraph()
    stand_in.drive(stand_in.site())
    with standing_in(stand_in) as serving:
        yield serving


@contextmanager
def standing_in(graph: StandInGraph) -> Iterator[StandInGraph]:
    """Serve it; `url` and `download_url` are its addresses."""
    servers = [
        Server(("127.0.0.1", 0), handler_of(graph.pick_fault, graph.answer)),
        Server(
            ("127.0.0.1", 0), handler_of(graph.pick_fault, lambda method, target, headers, body: graph.download(target, headers))
        ),
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
