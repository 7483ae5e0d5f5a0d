"""How long Confluence and Microsoft Graph wait for their 202 while two hundred of them send at once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from tests.bench.figures import spread
from tests.bench.ingesting import stub, stub_settings
from tests.bench.instance import running

SENDERS = 200
EACH = 5
_SECRET = "a secret of the sender"
_SOURCES = f"""
[[sources]]
name = "wiki"
type = "confluence"
deployment = "data_center"
base_url = "http://127.0.0.1:1"
api_token = "x"
webhook_secrets = "{_SECRET}"

[[sources]]
name = "drive"
type = "sharepoint"
tenant_id = "contoso.example"
client_id = "x"
client_secret = "x"
drives = ["b!x"]
login_url = "http://127.0.0.1:1"
graph_url = "http://127.0.0.1:1/v1.0"
client_state = "{_SECRET}"
"""

Made = tuple[str, dict[str, str], bytes]
"""Path, headers and body of a request."""


def _confluence(sender: int, number: int) -> Made:
    event = {"timestamp": 1788716539192 + number, "event": "page_updated", "page": {"id": 10_000 * sender + number}}
    body = json.dumps(event).encode()
    signature = hmac.new(_SECRET.encode(), body, hashlib.sha256).hexdigest()
    return "/v1/webhooks/confluence/wiki", {"X-Hub-Signature": f"sha256={signature}"}, body


def _graph(sender: int, number: int) -> Made:
    item = {
        "subscriptionId": f"{sender}-{number}",
        "clientState": _SECRET,
        "changeType": "updated",
        "resource": "drives/b!x/root",
        "resourceData": {"@odata.type": "#Microsoft.Graph.DriveItem"},
    }
    return "/v1/webhooks/sharepoint/drive", {"Content-Type": "application/json"}, json.dumps({"value": [item]}).encode()


def source_webhook_latency(senders: int = SENDERS, each: int = EACH) -> list[dict[str, Any]]:
    """`senders` on the loopback, each with a connection of its own, send `each` events one after the other; each event is new.

    The whole system runs beside them; the time is from the first byte sent to the end of the answer. Every event that was
    answered is counted in the database.
    """
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, stub() as url:
        config = Path(folder) / "docwell.toml"
        config.write_text(_SOURCES)
        with running({**stub_settings(url), "DOCWELL_CONFIG": str(config)}) as made:
            api = str(made.services["api_url"])
            for name, make in (("Confluence", _confluence), ("Microsoft Graph", _graph)):
                asyncio.run(_storm(api, make, 5, 2, first=senders))
                began = time.perf_counter()
                times = asyncio.run(_storm(api, make, senders, each))
                seconds = time.perf_counter() - began
                p99 = sorted(times)[int(0.99 * (len(times) - 1))]
                load = os.getloadavg()[0]
                rows.append(
                    {"measure": f"202 for {senders} senders of {name}, ms", **spread(times), "p99": p99}
                    | {"a second": len(times) / seconds, "load": load}
                )
            with psycopg.connect(str(made.services["database_url"])) as connection:
                count = connection.execute("SELECT count(*) FROM docwell.event").fetchone()
            rows.append(
                {"measure": "events stored, of those answered", "n": count[0] if count else 0, "p50": 2 * (senders * each + 10)}
            )
    return rows


async def _storm(api: str, make: Callable[[int, int], Made], senders: int, each: int, *, first: int = 0) -> list[float]:
    found = await asyncio.gather(*(_sender(api, make, first + number, each) for number in range(senders)))
    return [one for times in found for one in times]


async def _sender(api: str, make: Callable[[int, int], Made], sender: int, each: int) -> list[float]:
    """Speaks HTTP by hand: a client library would take more of the two cores than the server that is measured."""
    host, _, port = api.removeprefix("http://").rstrip("/").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    times = []
    for number in range(each):
        path, headers, body = make(sender, number)
        lines = {"Host": f"{host}:{port}", "Content-Length": str(len(body)), **headers}
        began = time.perf_counter()
        head = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        writer.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        text = await reader.readexactly(int(answer.partition("content-length: ")[2].partition("\r\n")[0]))
        times.append((time.perf_counter() - began) * 1000)
        if not answer.startswith("http/1.1 202") or b'"accepted"' not in text:
            raise RuntimeError(f"{answer} {text.decode()}")
    writer.close()
    await writer.wait_closed()
    return times
