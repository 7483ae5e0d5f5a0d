"""What the database knows of embedding models: one space each, and which of them searches use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, LiteralString

from psycopg import Connection

from shared.embedding import probe
from shared.embedding.endpoint import Endpoint, endpoint_from_json
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.probe import Probe
from shared.embedding.protocol import Embedder
from shared.errors import ConfigurationError
from shared.prices import Price


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A space's model. `state`: `active`, which searches use; `filling`, kept up beside it; `retired`, only remembered.

    `endpoint` says how it is asked; None for a space of an older Docwell, whose model is the one that the settings name.
    """

    space_id: int
    fingerprint: str
    provider: str
    model: str
    dimension: int
    revision: str
    state: str
    endpoint: Endpoint | None
    crowded: bool = False
    paused: bool = False

    def is_paid(self, own: Endpoint, prices: Mapping[str, Price]) -> bool:
        """Whether texts that it embeds leave for a paid service. `own` is the settings' model: only it knows the address of a
        space of an older Docwell."""
        if self.provider != "openai":
            return False
        return replace(self.endpoint or own, provider=self.provider, model=self.model).is_paid(prices)

    def is_declared_by(self, endpoint: Endpoint) -> bool:
        """Whether an endpoint names this model, as far as can be said without asking it."""
        return endpoint.declares(provider=self.provider, model=self.model, dimension=self.dimension, revision=self.revision)


_MODELS: LiteralString = """
    SELECT space_id, fingerprint, provider, model, dimension, revision, state, endpoint, crowded, paused
    FROM docwell.embedding_space ORDER BY space_id
"""


def read_models(connection: Connection[Any]) -> list[StoredModel]:
    """All of them, those that are only remembered too."""
    return [
        StoredModel(
            space_id=row[0],
            fingerprint=row[1],
            provider=row[2],
            model=row[3],
            dimension=row[4],
            revision=row[5],
            state=row[6],
            endpoint=None if row[7] is None else endpoint_from_json(row[7]),
            crowded=row[8],
            paused=row[9],
        )
        for row in connection.execute(_MODELS).fetchall()
    ]


def read_probes(connection: Connection[Any], space_id: int) -> list[Probe]:
    """The probes of a space's model; none for a local one, which is known by its files."""
    row = connection.execute("SELECT probes FROM docwell.embedding_space WHERE space_id = %s", (space_id,)).fetchone()
    return probe.from_json(row[0]) if row else []


def model_in(models: Sequence[StoredModel], state: str) -> StoredModel | None:
    """The one in this state; `active` and `filling` are one model's at most."""
    return next((one for one in models if one.state == state), None)


def how_to_ask(
    wanted: StoredModel, models: Sequence[StoredModel], own: Endpoint, own_fingerprint: Callable[[], Fingerprint]
) -> Literal["own", "stored", "unknown"]:
    """Who makes vectors of the model `wanted`: the settings' own embedder, or one that is opened as the space remembers.

    `unknown`: the settings name a model of which the index has no space, so nobody changed it on purpose. `own_fingerprint` may
    ask a server; it is not called where the settings name another model that the index knows.
    """
    others = [one for one in models if one is not wanted]
    if not wanted.is_declared_by(own) and any(one.is_declared_by(own) for one in others) and wanted.endpoint is not None:
        return "stored"
    key = own_fingerprint().key
    if key == wanted.fingerprint:
        return "own"
    known = any(one.fingerprint == key for one in others)
    return "stored" if known and wanted.endpoint is not None else "unknown"


def mismatch(active: StoredModel, own: Fingerprint, *, is_same: bool) -> ConfigurationError:
    """The settings name a model that the index was not made with, and that it does not know. `is_same`: by another name only."""
    held = f"The index holds vectors of {active.model} ({active.provider}, {active.dimension} dimensions)"
    if is_same:
        return ConfigurationError(
            f"{held}, and the settings name {own.model}, which gives the same vectors: it is the same model under another name."
            " `docwell reindex adopt` takes the new name over, and nothing is embedded again.",
            code="embedding_renamed",
        )
    return ConfigurationError(
        f"{held}, the settings name {own.model} ({own.provider}, {own.dimension} dimensions); their vectors cannot be mixed. Set"
        " DOCWELL_EMBEDDING_PROVIDER and DOCWELL_EMBEDDING_MODEL back to go on as before, and change the model while everything"
        f" runs with `docwell reindex --provider {own.provider} --model {own.model}`; or begin with an empty database.",
        code="embedding_mismatch",
    )


def refuse_swapped(model: StoredModel, probes: Sequence[Probe], embedder: Embedder) -> None:
    """A model that has kept its name must give the vectors that are stored.

    Raises:
        ConfigurationError: it gives others.
        PermanentError, TransientError: as `Embedder.embed`.
    """
    if probes and not probe.is_same_model(embedder, probes):
        raise ConfigurationError(
            f"{model.model} gives other vectors than those of the index: its server holds another model under that name by now."
            " Nothing is compared or mixed. Give the server the model that it had, or fill the index anew with"
            f" `docwell reindex --model {model.model} --again`; searches in the mode `keyword` go on meanwhile.",
            code="embedding_swapped",
        )


def is_renamed(active: StoredModel, probes: Sequence[Probe], own: Fingerprint, embedder: Embedder) -> bool:
    """Whether this unknown model is the active one under another name: by its weights, or by its vectors.

    Raises:
        PermanentError, TransientError: as `Embedder.embed`.
    """
    if active.dimension != own.dimension or active.provider != own.provider:
        return False
    if own.provider == "local":
        return bool(own.revision) and active.revision == own.revision
    return bool(probes) and probe.is_same_model(embedder, probes)
