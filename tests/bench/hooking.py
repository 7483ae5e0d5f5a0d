"""How long a sender of webhooks waits for its 202 while two hundred send at once."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx

from tests.bench.figures import spread
from tests.bench.ingesting import stub, stub_settings
from tests.bench.instance import running
from tests.hooks import headers, make_secret

SENDERS = 200
EACH = 10
_PATIENCE_SECONDS = 600.0


def webhook_latency(senders: int = SENDERS, each: int = EACH) -> list[dict[str, Any]]:
    """`senders` on the loopback, each with a connection of its own, send `each` signed documents, one after the other.

    The whole system runs beside them, with the stub embedder; the time is from the first byte sent to the end of the answer.
    """
    with stub() as url, running({**stub_settings(url), "DOCWELL_WEBHOOK_SECRETS": make_secret()}) as made:
        api = str(made.services["api_url"])
        asyncio.run(_storm(api, 5, 2, "warm-up"))
        began = time.perf_counter()
        times = asyncio.run(_storm(api, senders, each, "measured"))
        seconds = time.perf_counter() - began
        indexed = _until_indexed(api, senders * each + 10)
    ordered = sorted(times)
    return [
        {
            "measure": f"202 of {senders} senders at once, ms",
            **spread(times),
            "p99": ordered[int(0.99 * (len(ordered) - 1))],
            "a second": len(times) / seconds,
        },
        {"measure": "from the last answer until all are indexed, s", "p50": indexed},
    ]


async def _storm(api: str, senders: int, each: int, name: str) -> list[float]:
    found = await asyncio.gather(*(_sender(api, f"{name}/{number}", each) for number in range(senders)))
    return [one for times in found for one in times]


async def _sender(api: str, folder: str, each: int) -> list[float]:
    """Speaks HTTP by hand: a client library would take more of the two cores than the server that is measured."""
    host, _, port = api.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    times = []
    for number in range(each):
        event = {
            "action": "upsert",
            "namespace": "hooks",
            "path": f"{folder}-{number}.md",
            "content": f"# {folder}\n\n{number}\n" * 20,
        }
        body = json.dumps(event).encode()
        lines = {"Host": f"{host}:{port}", "Content-Length": str(len(body)), **headers(make_secret(), body)}
        began = time.perf_counter()
        head = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        writer.write(f"POST /v1/webhooks/generic HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answer.partition("content-length: ")[2].partition("\r\n")[0])
        text = await reader.readexactly(length)
        times.append((time.perf_counter() - began) * 1000)
        if not answer.startswith("http/1.1 202"):
            raise RuntimeError(f"{answer} {text.decode()}")
    writer.close()
    await writer.wait_closed()
    return times


def _until_indexed(api: str, documents: int) -> float:
    began = time.perf_counter()
    with httpx.Client(base_url=api, timeout=20.0, trust_env=False) as client:
        while True:
            counts = client.get("/v1/status").json()["documents"]["by_state"]
            if counts.get("indexed", 0) >= documents:
                return time.perf_counter() - began
            if time.perf_counter() - began > _PATIENCE_SECONDS:
                raise TimeoutError(f"not all were indexed: {counts}")
            time.sleep(0.1)
