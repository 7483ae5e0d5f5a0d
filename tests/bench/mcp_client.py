"""A client of MCP over HTTP that costs next to nothing, so that a measurement is the server's: one connection, kept open."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PROTOCOL = "2025-11-25"


@dataclass(kw_only=True)
class Load:
    """What a number of clients saw: milliseconds of each call, in order of their ends, and the seconds of it all."""

    milliseconds: list[float] = field(default_factory=list)
    seconds: float = 0.0


def ask(
    url: str, call: Callable[[int], tuple[str, Mapping[str, Any]]], *, clients: int, calls: int, seconds: float = 3600
) -> Load:
    """`calls` calls in all by `clients` that each ask again as soon as they are answered; none begins after `seconds`.
    `call` gives the tool and the arguments of each.

    Raises:
        RuntimeError: a call was not answered with a result.
    """
    load = Load()
    numbers = iter(range(calls))

    async def everyone() -> None:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(_client(url, call, numbers, began + seconds, load))
        load.seconds = time.perf_counter() - began

    asyncio.run(everyone())
    return load


async def _client(
    url: str, call: Callable[[int], tuple[str, Mapping[str, Any]]], numbers: Iterator[int], until: float, load: Load
) -> None:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = (
        f"POST {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {PROTOCOL}\r\n"
    )
    try:
        for number in numbers:
            began = time.perf_counter()
            if began > until:
                return
            tool, arguments = call(number)
            params = {"name": tool, "arguments": arguments}
            body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await _answer(reader)
            load.milliseconds.append((time.perf_counter() - began) * 1000)
            if "result" not in answer or answer["result"].get("isError"):
                raise RuntimeError(f"the call was not answered: {json.dumps(answer)[:500]}")
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    size = next(int(line.partition(":")[2]) for line in head.split("\r\n") if line.startswith("content-length:"))
    answer: dict[str, Any] = json.loads(await reader.readexactly(size))
    return answer
