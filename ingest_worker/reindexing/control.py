"""What a person does with a reindex: begin, look, pause, switch, go back, end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.types.json import Jsonb

from ingest_worker.catalogue import without_vector
from ingest_worker.catalogue.asking import Conflict
from ingest_worker.reindexing import table
from ingest_worker.reindexing.table import Filling, Progress
from ingest_worker.spaces import hold_alone, make_space, probes_of, remember
from shared.config import Settings
from shared.embedding.endpoint import Endpoint, endpoint_of
from shared.embedding.open import open_embedder, open_endpoint
from shared.embedding.protocol import Embedder
from shared.embedding.spaces import StoredModel, is_renamed, model_in, read_models, read_probes
from shared.prices import TokenUse, cost

MOST_DIMENSIONS = 4_000
"""What an HNSW index of pgvector takes of `halfvec`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a reindex takes: passages, their tokens by the bundled tokenizer, and the money; None when no price is set.

    `kept_here` of the passages stay without a vector: their sources let nothing go to a paid model.
    """

    model: str
    passages: int
    tokens: int
    money: Decimal | None
    kept_here: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reindex:
    """An open reindex. `state`: `filling`, `paused`, `ready` to be switched to, or `kept`, the former model, for going back.

    `lacking` passages have no vector yet, with so many `tokens` and so much `money` to go; `kept_here` and `refused` ones get
    none, since their sources let nothing go to a paid model, or since the model takes them in no way: `refused_documents` are
    some of the latter's. `problem`: why the newest batch failed.
    """

    state: str
    active: str
    model: str
    provider: str
    dimension: int
    passages: int
    lacking: int
    tokens: int
    money: Decimal | None
    problem: str | None
    since: datetime
    kept_here: int = 0
    refused: int = 0
    refused_documents: Sequence[str] = ()

    @property
    def filled(self) -> int:
        """Passages that have their vector."""
        return self.passages - self.lacking - self.kept_here - self.refused


def estimate(connection: Connection[Any], endpoint: Endpoint, settings: Settings) -> Estimate:
    """What filling a new space with this model takes; asks nobody."""
    confined = without_vector.confined_sources(settings)
    found = table.progress(connection, None, is_paid=endpoint.is_paid(settings.prices), confined=confined)
    return Estimate(
        model=endpoint.model or "local",
        passages=found.passages,
        tokens=found.tokens,
        money=_money(found, endpoint, settings),
        kept_here=found.kept_here,
    )


def start(connection: Connection[Any], endpoint: Endpoint, settings: Settings) -> Reindex:
    """Begin to fill a second space; workers do it when they have nothing else to do.

    Raises:
        Conflict: one is open already, nothing is indexed yet, or the index has this model.
        ConfigurationError, TransientError: the model cannot be asked; nothing was changed.
    """
    models = read_models(connection)
    active = model_in(models, "active")
    if active is None:
        raise Conflict("Nothing is indexed yet: set the model in the settings, and begin with it.", code="nothing_indexed")
    if model_in(models, "filling") is not None:
        raise Conflict(
            "A reindex is open already: `docwell reindex status` shows it, `docwell reindex drop` ends it.", code="reindex_open"
        )
    embedder = open_endpoint(endpoint, settings)
    try:
        fingerprint = embedder.fingerprint
        if fingerprint.dimension > MOST_DIMENSIONS:
            raise Conflict(
                f"{fingerprint.model} gives {fingerprint.dimension} dimensions; an index takes {MOST_DIMENSIONS}. Add --dimension"
                " where the model can shorten its vectors.",
                code="dimension_too_large",
            )
        probes = probes_of(embedder, endpoint)
    finally:
        _close(embedder)
    known = next((one for one in models if one.fingerprint == fingerprint.key), None)
    if known is not None and known.state == "active":
        raise Conflict(
            f"The index holds vectors of {fingerprint.model} already. If its server gives other vectors by now, add --again.",
            code="same_model",
        )
    if known is not None and not _forget(connection, known):
        raise Conflict("The former vectors of this model are being removed: try again in a minute.", code="being_removed")
    with connection.transaction():
        make_space(connection, fingerprint, endpoint, probes, state="filling")
        own = endpoint_of(settings)
        if active.endpoint is None and active.is_declared_by(own):
            # From an older Docwell: only the settings knew how its model is asked, and they will change.
            connection.execute(
                "UPDATE docwell.embedding_space SET endpoint = %s WHERE space_id = %s", (Jsonb(own.to_json()), active.space_id)
            )
    found = status(connection, settings)
    assert found is not None  # noqa: S101 - it was made just now
    return found


def status(connection: Connection[Any], settings: Settings) -> Reindex | None:
    """The open reindex, counted anew; None when none is open."""
    found = table.filling(connection)
    if found is None:
        return None
    models = read_models(connection)
    active = model_in(models, "active")
    wanted = next(one for one in models if one.space_id == found.space_id)
    counted = table.progress(connection, found.space_id)
    endpoint = wanted.endpoint or Endpoint(provider=wanted.provider, model=wanted.model)
    return Reindex(
        state=_state(found, counted),
        active=active.model if active else "none",
        model=found.model,
        provider=found.provider,
        dimension=found.dimension,
        passages=counted.passages,
        lacking=counted.lacking,
        tokens=counted.tokens,
        money=_money(counted, endpoint, settings),
        problem=found.problem,
        since=found.changed_at,
        kept_here=counted.kept_here,
        refused=counted.refused,
        refused_documents=_refused_documents(connection, found) if counted.refused else (),
    )


def pause(connection: Connection[Any], *, paused: bool) -> None:
    """Stop asking the second model, or go on.

    Raises:
        Conflict: no reindex is open.
    """
    found = _open(connection)
    connection.execute(
        "UPDATE docwell.embedding_space SET paused = %s, look_at = now() WHERE space_id = %s", (paused, found.space_id)
    )


_ACTIVATE: LiteralString = """
    UPDATE docwell.embedding_space SET state = 'active', paused = false, problem = NULL, changed_at = now()
    WHERE space_id = %s
"""
_SET_ASIDE: LiteralString = """
    UPDATE docwell.embedding_space SET state = 'filling', filled_to = NULL, round_empty = true, complete_at = NULL,
        paused = false, problem = NULL, look_at = now(), changed_at = now()
    WHERE state = 'active'
"""
_RAISE: LiteralString = """
    UPDATE docwell.audience SET version = version + 1
    WHERE audience_id IN (SELECT audience_id FROM docwell.audience ORDER BY audience_id FOR NO KEY UPDATE)
"""


def retry(connection: Connection[Any]) -> int:
    """Ask models again for the passages that they have refused; returns how many."""
    return without_vector.retry_refused(connection)


def switch(connection: Connection[Any], *, back: bool = False, accept_missing: bool = False) -> str:
    """Let searches use the other space, in one step for all servers; returns its model. The one before is kept up beside it.

    With `accept_missing` passages that its model has refused are found by their words alone from then on.

    Raises:
        Conflict: no reindex is open, passages lack vectors, or the other way is wanted.
    """
    found = _open(connection)
    if back != found.is_former:
        hint = "`docwell reindex switch`" if back else "`docwell reindex back`"
        raise Conflict(f"{found.model} is {'the new' if back else 'the former'} model: {hint} goes to it.", code="other_way")
    _refuse_lacking(connection, found, accept_missing=accept_missing)
    with connection.transaction():
        hold_alone(connection)
        # Nobody writes now: what is counted holds.
        found = _open(connection)
        _refuse_lacking(connection, found, accept_missing=accept_missing)
        # There is one of each state at any time, so one of them steps out of the way. Nobody sees it do so.
        connection.execute("UPDATE docwell.embedding_space SET state = 'retired' WHERE space_id = %s", (found.space_id,))
        connection.execute(_SET_ASIDE)
        connection.execute(_ACTIVATE, (found.space_id,))
        # Pages of an answer never mix two models: cursors of before say that they have expired.
        connection.execute(_RAISE)
    return found.model


def drop(connection: Connection[Any]) -> str:
    """End the reindex: the space beside the active one goes; returns its model. Its vectors are removed a minute later.

    Raises:
        Conflict: no reindex is open.
    """
    with connection.transaction():
        hold_alone(connection)
        found = _open(connection)
        connection.execute(
            "UPDATE docwell.embedding_space SET state = 'retired', changed_at = now() WHERE space_id = %s", (found.space_id,)
        )
    return found.model


def adopt(connection: Connection[Any], settings: Settings, *, own: Callable[[Settings], Embedder] = open_embedder) -> str:
    """Take over the name by which the settings call the active model; returns it. Nothing is embedded again.

    Raises:
        Conflict: nothing is indexed, the index has that name, or the model gives other vectors.
    """
    models = read_models(connection)
    active = model_in(models, "active")
    if active is None:
        raise Conflict("Nothing is indexed yet.", code="nothing_indexed")
    embedder = own(settings)
    try:
        fingerprint = embedder.fingerprint
        if fingerprint.key == active.fingerprint:
            raise Conflict(f"The index knows the model as {fingerprint.model} already.", code="same_model")
        if not is_renamed(active, read_probes(connection, active.space_id), fingerprint, embedder):
            raise Conflict(
                f"{fingerprint.model} does not give the vectors of {active.model}: it is another model."
                f" `docwell reindex --model {fingerprint.model}` changes to it while everything runs.",
                code="other_model",
            )
    finally:
        _close(embedder)
    known = next((one for one in models if one.fingerprint == fingerprint.key), None)
    if known is not None and not _forget(connection, known):
        raise Conflict(f"{fingerprint.model} has a space of its own: `docwell reindex drop` ends it.", code="reindex_open")
    with connection.transaction():
        hold_alone(connection)
        connection.execute(
            "UPDATE docwell.embedding_space SET fingerprint = %s, model = %s WHERE space_id = %s",
            (fingerprint.key, fingerprint.model, active.space_id),
        )
        remember(connection, active.space_id, fingerprint, endpoint_of(settings), read_probes(connection, active.space_id))
        connection.execute(_RAISE)
    return fingerprint.model


def _open(connection: Connection[Any]) -> Filling:
    found = table.filling(connection)
    if found is None:
        raise Conflict("No reindex is open: `docwell reindex --model …` begins one.", code="no_reindex")
    return found


_MOST_NAMED = 10


def _refused_documents(connection: Connection[Any], found: Filling) -> list[str]:
    return without_vector.documents_with(connection, found.space_id, without_vector.REFUSED, limit=_MOST_NAMED)


def _refuse_lacking(connection: Connection[Any], found: Filling, *, accept_missing: bool) -> None:
    counted = table.progress(connection, found.space_id)
    if counted.lacking:
        why = f" The newest batch failed: {found.problem}" if found.problem else ""
        paused = " It is paused: `docwell reindex resume` goes on." if found.paused else ""
        raise Conflict(
            f"{counted.lacking} of {counted.passages} passages have no vector of {found.model} yet: after a switch searches would"
            f" miss them. Workers fill them when no job is due; `docwell reindex status` shows how far it is.{paused}{why}",
            code="not_complete",
        )
    if counted.refused and not accept_missing:
        raise Conflict(
            f"{found.model} has refused {counted.refused} of {counted.passages} passages, those of"
            f" {', '.join(_refused_documents(connection, found))} among them. `docwell reindex retry` asks again;"
            " --accept-missing switches without them: searches then find them by their words, and not by meaning.",
            code="refused_passages",
        )


def _state(found: Filling, counted: Progress) -> str:
    if found.is_former:
        return "kept"
    if found.paused:
        return "paused"
    return "filling" if counted.lacking else "ready"


def _forget(connection: Connection[Any], known: StoredModel) -> bool:
    """Whether the row of a model whose vectors are gone could be taken away, so that it may have a space again."""
    query = "DELETE FROM docwell.embedding_space WHERE space_id = %s AND is_dropped"
    return connection.execute(query, (known.space_id,)).rowcount > 0


def _money(found: Progress, endpoint: Endpoint, settings: Settings) -> Decimal | None:
    if endpoint.provider == "local":
        return Decimal(0)
    return cost(settings.prices, endpoint.model or "", TokenUse(input_tokens=found.tokens))


def _close(embedder: Embedder) -> None:
    close = getattr(embedder, "close", None)
    if close is not None:
        close()
