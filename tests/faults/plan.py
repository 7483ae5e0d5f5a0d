"""What is done, in which order and when: all of it drawn from one seed. Nothing is done here."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Deed(StrEnum):
    """What happens to a document."""

    CREATE = "create"
    EDIT = "edit"
    MOVE = "move"
    EDIT_AND_MOVE = "edit and move"
    DELETE = "delete"
    RECREATE = "recreate"
    TOUCH = "touch"
    BURST = "burst of edits"


class Blow(StrEnum):
    """What is done to Docwell."""

    WORKER = "worker killed"
    CHILD = "worker process killed"
    CHILD_PAUSED = "worker process paused for longer than its lease"
    PARSER = "parser killed"
    WATCH = "watcher killed"
    SCHEDULER = "scheduler killed"
    API = "API killed"
    MCP = "MCP server killed"
    REDIS = "Redis killed"
    REDIS_FLUSHED = "Redis flushed"
    REDIS_HANGS = "Redis hangs"
    POSTGRES = "PostgreSQL killed"
    BACKEND = "PostgreSQL backend killed"
    EMBEDDER_AWAY = "embedder away"
    EMBEDDER_ERRORS = "embedder answers 500"
    EMBEDDER_LIMITS = "embedder answers 429"
    EVERYTHING = "everything killed"


DEEDS: Mapping[Deed, int] = {
    Deed.CREATE: 20,
    Deed.EDIT: 35,
    Deed.MOVE: 12,
    Deed.EDIT_AND_MOVE: 3,
    Deed.DELETE: 10,
    Deed.RECREATE: 8,
    Deed.TOUCH: 4,
    Deed.BURST: 8,
}
_RESTARTED = {
    Blow.WORKER: "worker",
    Blow.WATCH: "watch",
    Blow.SCHEDULER: "scheduler",
    Blow.API: "api",
    Blow.MCP: "mcp",
    Blow.REDIS: "redis",
    Blow.POSTGRES: "postgres",
}
MOST_RESTARTS = 3
"""Of one service within `RESTARTS_SECONDS`: from the fifth on the supervisor takes it for a crash loop and waits long."""
RESTARTS_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeedStep:
    """A deed, `after` seconds from the one before. `draw` (0.0-1.0) chooses the document among those that fit."""

    after: float
    deed: Deed
    draw: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BlowStep:
    """A blow, `after` seconds from the one before. What is paused or away is so for `lasting` seconds."""

    after: float
    blow: Blow
    draw: float
    lasting: float


def deeds(seed: int, *, every: float) -> Iterator[DeedStep]:
    """Deeds without end, one each `every` seconds on average, some of them together."""
    rng = random.Random(f"deeds {seed}")
    kinds, weights = list(DEEDS), list(DEEDS.values())
    while True:
        after = 0.0 if rng.random() < 0.3 else rng.expovariate(0.7 / every)
        yield DeedStep(after=after, deed=rng.choices(kinds, weights)[0], draw=rng.random())


def blows(seed: int, *, every: float) -> Iterator[BlowStep]:
    """Blows without end, one each `every` seconds on average: each kind once in random order, and then again."""
    rng = random.Random(f"blows {seed}")
    now = 0.0
    restarts: dict[str, list[float]] = {}
    while True:
        kinds = list(Blow)
        rng.shuffle(kinds)
        for blow in kinds:
            after = rng.uniform(0.3, 1.7) * every
            now += after
            service = _RESTARTED.get(blow)
            if service is not None:
                recent = [at for at in restarts.get(service, ()) if now - at < RESTARTS_SECONDS]
                if len(recent) >= MOST_RESTARTS:
                    now -= after
                    continue
                restarts[service] = [*recent, now]
            yield BlowStep(after=after, blow=blow, draw=rng.random(), lasting=rng.uniform(2.0, 8.0))
