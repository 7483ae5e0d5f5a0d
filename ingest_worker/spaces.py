"""Embedding spaces as a worker uses them: the one that searches use, and the one that is filled beside it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray
from psycopg import Connection
from psycopg.types.json import Jsonb

from ingest_worker.catalogue.vectors import Space
from ingest_worker.catalogue.without_vector import Gap
from ingest_worker.embedding import identify
from shared.config import Settings
from shared.database import Pool
from shared.embedding import probe
from shared.embedding.endpoint import Endpoint, endpoint_of
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.open import open_endpoint
from shared.embedding.probe import Probe
from shared.embedding.protocol import Embedder
from shared.embedding.spaces import (
    StoredModel,
    how_to_ask,
    is_renamed,
    mismatch,
    model_in,
    read_models,
    read_probes,
    refuse_swapped,
)
from shared.errors import ConfigurationError, DocwellError, Outage, TransientError

log = structlog.get_logger(__name__)

_REST_SECONDS = 60.0
"""After a failure of the second model documents are published without it for so long; what they lack is filled in later."""


class SpaceChanged(DocwellError):
    """Another space is the active one by now: embed for it, and publish again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A space, and who makes its vectors; `is_paid`: texts leave for a paid service with it."""

    space: Space
    model: str
    embedder: Embedder
    is_paid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceVectors:
    """A space, the vectors, by `Chunk.input_id`, that were made for it, and the inputs that stay without one, and why."""

    space: Space
    vectors: Mapping[uuid.UUID, NDArray[np.float32]]
    apart: Mapping[uuid.UUID, Gap] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Where vectors go: to the space that searches use, and to the one beside it while a reindex is open."""

    active: Target
    beside: Target | None = None


class Models:
    """The embedders of this process beyond the settings' own, each checked once against what is stored. For one thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._opened: dict[str, Embedder] = {}
        self._checked: set[str] = set()
        self._rest_until = 0.0

    def targets(self, pool: Pool, own: Callable[[], Embedder], settings: Settings) -> Targets:
        """The spaces in use; the first one is made with the settings' own model when the index has none yet.

        Raises:
            ConfigurationError: the index was made with another model, and nobody changed it on purpose; the message has the cure.
            Outage: the model is away.
        """
        with pool.connection() as connection:
            models = read_models(connection)
        active = model_in(models, "active")
        if active is None:
            embedder = own()
            fingerprint = identify(embedder)
            endpoint = endpoint_of(settings)
            probes = probes_of(embedder, endpoint)
            with pool.connection() as connection:
                make_space(connection, fingerprint, endpoint, probes, state="active")
                models = read_models(connection)
            active = model_in(models, "active")
            if active is None:
                raise ConfigurationError("No embedding space could be made.", code="no_embedding_space")
        target = self.target(pool, active, models, own, settings)
        return Targets(active=target, beside=self._beside(pool, models, own, settings))

    def target(
        self, pool: Pool, wanted: StoredModel, models: list[StoredModel], own: Callable[[], Embedder], settings: Settings
    ) -> Target:
        """A space with its embedder, of which it is sure that it makes the vectors of that space.

        Raises:
            ConfigurationError, Outage: as `targets`.
        """
        embedder = self._open(pool, wanted, models, own, settings)
        if wanted.fingerprint not in self._checked:
            try:
                self._check(pool, wanted, embedder, settings)
            except TransientError as error:
                raise Outage(str(error), code=error.code, retry_after=error.retry_after) from error
            self._checked.add(wanted.fingerprint)
        space = Space(space_id=wanted.space_id, crowded=wanted.crowded)
        is_paid = wanted.is_paid(endpoint_of(settings), settings.prices)
        return Target(space=space, model=wanted.model, embedder=embedder, is_paid=is_paid)

    def beside_failed(self, error: DocwellError) -> None:
        """The second model is left alone for a while."""
        self._rest_until = self._clock() + _REST_SECONDS
        log.warning("second_model_failed", code=error.code, error=str(error), cure="What it missed is filled in later.")

    def close(self) -> None:
        """Close the connections of the embedders that were opened here."""
        for embedder in self._opened.values():
            close = getattr(embedder, "close", None)
            if close is not None:
                close()
        self._opened.clear()

    def _open(
        self, pool: Pool, wanted: StoredModel, models: list[StoredModel], own: Callable[[], Embedder], settings: Settings
    ) -> Embedder:
        known = self._opened.get(wanted.fingerprint)
        if known is not None:
            return known
        how = how_to_ask(wanted, models, endpoint_of(settings), lambda: identify(own()))
        if how == "own":
            return own()
        if how == "stored" and wanted.endpoint is not None:
            embedder = self._opened[wanted.fingerprint] = open_endpoint(wanted.endpoint, settings)
            return embedder
        embedder = own()
        with pool.connection() as connection:
            probes = read_probes(connection, wanted.space_id)
        try:
            is_same = is_renamed(wanted, probes, identify(embedder), embedder)
        except TransientError as error:
            raise Outage(str(error), code=error.code, retry_after=error.retry_after) from error
        raise mismatch(wanted, identify(embedder), is_same=is_same)

    def _check(self, pool: Pool, wanted: StoredModel, embedder: Embedder, settings: Settings) -> None:
        """Compare a model behind an API with its probes; one without any, of an older Docwell, gets them now."""
        found = embedder.fingerprint
        if found.key != wanted.fingerprint:
            raise mismatch(wanted, found, is_same=False)
        endpoint = wanted.endpoint or endpoint_of(settings)
        if endpoint.provider != "openai" or found.provider != "openai":
            return
        with pool.connection() as connection:
            probes = read_probes(connection, wanted.space_id)
        refuse_swapped(wanted, probes, embedder)
        if not probes or wanted.endpoint is None:
            probes = probes or probe.take_probes(embedder)
            with pool.connection() as connection:
                remember(connection, wanted.space_id, found, endpoint, probes)

    def _beside(self, pool: Pool, models: list[StoredModel], own: Callable[[], Embedder], settings: Settings) -> Target | None:
        wanted = model_in(models, "filling")
        if wanted is None or wanted.paused or self._clock() < self._rest_until:
            return None
        try:
            return self.target(pool, wanted, models, own, settings)
        except DocwellError as error:
            self.beside_failed(error)
            return None


_LOCK = "SELECT pg_advisory_xact_lock{}(hashtextextended('docwell.embedding_space', 0))"
_SHARED = _LOCK.format("_shared")
_ALONE = _LOCK.format("")
_STATES = "SELECT space_id, state FROM docwell.embedding_space WHERE state <> 'retired'"


def hold_spaces(connection: Connection[Any], active: Space, beside: Space | None) -> Space | None:
    """Keep which space is which until we commit; the first statement of a transaction that writes vectors, so that whoever
    switches waits for nobody who waits for him. Returns `beside` while it still is.

    Raises:
        SpaceChanged: `active` is the active one no more.
    """
    connection.execute(_SHARED)
    states = dict(connection.execute(_STATES).fetchall())
    if states.get(active.space_id) != "active":
        raise SpaceChanged("The index was switched to another embedding model.", code="space_changed")
    return beside if beside is not None and states.get(beside.space_id) == "filling" else None


def hold_beside(connection: Connection[Any], beside: Space) -> None:
    """Keep this space beside the active one until we commit; the first statement of its transaction, as `hold_spaces`.

    Raises:
        SpaceChanged: it is no longer filled.
    """
    connection.execute(_SHARED)
    if dict(connection.execute(_STATES).fetchall()).get(beside.space_id) not in {"filling", "active"}:
        raise SpaceChanged("The reindex was ended.", code="space_changed")


def hold_alone(connection: Connection[Any]) -> None:
    """Let nobody write vectors until we commit."""
    connection.execute(_ALONE)


def probes_of(embedder: Embedder, endpoint: Endpoint) -> list[Probe]:
    """The probes of a model whose weights nobody can see; a local one is known by its files.

    Raises:
        Outage: it is away.
    """
    if endpoint.provider != "openai" or identify(embedder).provider != "openai":
        return []
    try:
        return probe.take_probes(embedder)
    except TransientError as error:
        raise Outage(str(error), code=error.code, retry_after=error.retry_after) from error


_REMEMBER = """
    UPDATE docwell.embedding_space SET endpoint = %(endpoint)s, revision = %(revision)s, probes = %(probes)s
    WHERE space_id = %(space)s
"""


def remember(
    connection: Connection[Any], space_id: int, fingerprint: Fingerprint, endpoint: Endpoint, probes: list[Probe]
) -> None:
    """Keep how a space's model is asked, and its probes."""
    stored = {"endpoint": Jsonb(endpoint.to_json()), "revision": fingerprint.revision, "probes": Jsonb(probe.to_json(probes))}
    connection.execute(_REMEMBER, {"space": space_id, **stored})


def make_space(
    connection: Connection[Any], fingerprint: Fingerprint, endpoint: Endpoint, probes: list[Probe], *, state: str
) -> int:
    """A new space, or the one that this model has already; returns its id."""
    with connection.transaction():
        named = (fingerprint.key, fingerprint.provider, fingerprint.model, fingerprint.dimension, state)
        made = connection.execute("SELECT docwell.create_embedding_space(%s, %s, %s, %s, %s)", named).fetchone()
        if made is None:
            raise ConfigurationError("No embedding space could be made.", code="no_embedding_space")
        remember(connection, made[0], fingerprint, endpoint, probes)
        connection.execute("UPDATE docwell.embedding_space SET round_empty = true WHERE space_id = %s", (made[0],))
        return int(made[0])
