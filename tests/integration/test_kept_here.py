"""`enrich = false`: none of a source's text reaches a paid service, whatever is done with it; and it is found by its words."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner, Result

from infra.cli import make_app
from infra.doctor_database import look_into_database
from ingest_worker import reprocessing
from ingest_worker.catalogue.documents import Observed, request_ingest
from ingest_worker.catalogue.sources import PUSH, ensure_folder_source, ensure_namespace, ensure_source, get_source
from ingest_worker.intake.push import Facts, Pushed, accept, confine_pushed
from ingest_worker.jobs.worker import Worker
from ingest_worker.parse.cage import ParserCage
from ingest_worker.reindexing import control
from ingest_worker.vector_upkeep import VectorKeeper
from query_server.assembly import make_service
from query_server.retrieve.rerank import OnDemand, Reranking
from query_server.service import SearchService
from shared.config import FolderSettings, Settings
from shared.embedding.endpoint import Endpoint
from shared.embedding.open import open_embedder
from shared.prices import Price, is_paid_service
from shared.source_settings import PushSettings
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import open_corpus, text_chunk
from tests.v1_embeddings import Server
from tests.versions import Library, open_library

PRICES = {name: Price(input=Decimal("0.02")) for name in ("small", "large")}
SECRET = "The zebrafish project costs nine million."


class Vault:
    """A folder that anybody may send away, and one whose text stays here."""

    def __init__(self, found: Library, server: Server) -> None:
        self.found = found
        self.server = server
        self.confined = FolderSettings(name="vault", root=found.root.parent / "vault", enrich=False)
        self.confined.root.mkdir()

    def take(self, name: str, text: str, **facts: Any) -> Any:
        """Put a file into the confined folder and do all that is due."""
        settings = self.confined.model_copy(update=facts)
        (settings.root / name).write_text(text)
        with self.found.connection.transaction():
            source = ensure_folder_source(self.found.connection, settings)
            number = ensure_namespace(self.found.connection, "default")
            document = request_ingest(self.found.connection, source, number, [Observed(name=name)]).documents[name]
        self.found.work()
        return document

    @property
    def sent(self) -> str:
        """All that reached the stand-in of the paid service."""
        return json.dumps(self.server.requests)


@contextmanager
def opened(database: Database, folder: Path, cage: ParserCage, server: Server, **more: Any) -> Iterator[Vault]:
    named: dict[str, Any] = {
        "embedding_provider": "openai",
        "embedding_base_url": server.url,
        "embedding_model": "small",
        "prices": PRICES,
        **more,
    }
    embedder = open_embedder(Settings(**named))
    with open_library(database.url, folder / "inbox", cage, embedder=lambda: embedder, **named) as found:
        yield Vault(found, server)


@pytest.fixture
def vault(database: Database, tmp_path: Path, cage: ParserCage, server: Server) -> Iterator[Vault]:
    with opened(database, tmp_path, cage, server) as found:
        yield found


@contextmanager
def searching(database: Database, settings: Settings) -> Iterator[SearchService]:
    url = SecretStr(database.reader_url)
    service = make_service(lambda: settings.model_copy(update={"query_database_url": url}), patient=True)
    try:
        yield service
    finally:
        service.close()


@pytest.fixture
def run(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    monkeypatch.setenv("DOCWELL_QUERY_DATABASE_URL", database.reader_url)
    monkeypatch.setenv("DOCWELL_REDIS_URL", f"unix://{tmp_path}/none.sock")
    return lambda *arguments: CliRunner().invoke(make_app(), list(map(str, arguments)))


@pytest.mark.parametrize(
    ("url", "price", "paid"),
    [
        ("https://api.openai.com/v1", None, True),
        ("http://ollama:11434/v1", None, True),
        ("http://ollama:11434/v1", "0", False),
        ("http://127.0.0.1:11434/v1", None, False),
        ("http://localhost:4000/v1", "0.02", True),  # a proxy that asks a paid service
        ("http://[::1]:11434/v1", None, False),
    ],
)
def test_a_service_is_paid_unless_it_is_on_this_machine_or_its_price_says_otherwise(
    url: str, price: str | None, paid: bool
) -> None:
    prices = {} if price is None else {"m": Price(input=Decimal(price))}
    assert is_paid_service(url, "m", prices) is paid


def test_nothing_of_a_source_that_keeps_its_text_is_sent_by_ingest_reprocess_or_reindex(vault: Vault, database: Database) -> None:
    found = vault.found
    document = vault.take("plan.md", f"# Plan\n\n{SECRET}\n")
    found.take("open.md", "Refunds are paid within five days.")
    assert found.standing(document)[:2] == ("indexed", True)
    vault.take("plan.md", f"# Plan\n\n{SECRET} And more: zebrafish eat well.\n")

    found.connection.execute("UPDATE docwell.version SET fingerprint = 'parse=0;' || fingerprint")
    plan = reprocessing.make_plan(found.connection, found.tools.settings)
    open_tokens = found.one("SELECT sum(tokens) FROM docwell.chunk WHERE text LIKE 'Refunds%%'")
    assert plan.embedding_money == open_tokens * Decimal("0.02") / 1_000_000
    assert plan.documents == 2
    reprocessing.request(found.connection, found.tools.settings)
    found.work()

    large = Endpoint(provider="openai", model="large", base_url=vault.server.url)
    estimate = control.estimate(found.connection, large, found.tools.settings)
    assert (estimate.passages, estimate.kept_here, estimate.tokens) == (2, 1, open_tokens)
    control.start(found.connection, large, found.tools.settings)
    vault.take("new.md", "A zebrafish came meanwhile.")
    vault.found.fill()
    status = control.status(found.connection, found.tools.settings)
    assert status is not None
    assert (status.state, status.lacking, status.kept_here, status.filled) == ("ready", 0, 2, 1)
    control.switch(found.connection)
    vault.take("newer.md", "Another zebrafish, after the switch.")
    assert "Refunds" in vault.sent
    assert "zebrafish" not in vault.sent

    with searching(database, found.tools.settings) as service:
        answer = service.search("nine million project")
        assert [one["path"] for one in answer["results"]][:1] == ["plan.md"]
        assert answer["results"][0]["matched_by"] == ["keyword"]
    assert SECRET not in vault.sent


def test_what_is_pushed_is_kept_here_from_the_first_document_on_and_sent_when_the_table_is_gone(
    vault: Vault, database: Database
) -> None:
    found, settings = vault.found, vault.found.tools.settings
    confined = settings.model_copy(update={"sources": (PushSettings(name="push", type="push", enrich=False),)})
    confine_pushed(found.connection, settings)
    assert get_source(found.connection, PUSH) is None, "nothing to say of what is not there"
    with closing(Worker(confined.model_copy(update={"database_url": SecretStr(database.url)}))) as worker:
        worker.work()
    body = SECRET.encode()
    sha256 = hashlib.sha256(body).digest()
    pushed = Pushed(
        namespace="default", path="plan.md", content=zlib.compress(body), sha256=sha256, size=len(body), facts=Facts()
    )
    document = accept(found.connection, pushed).document_id
    found.work()
    found.fill()
    assert found.standing(document)[:2] == ("indexed", True)
    assert "zebrafish" not in vault.sent
    confine_pushed(found.connection, settings)
    found.fill()
    assert "zebrafish" in vault.sent


def test_a_folder_that_once_bore_the_name_of_what_is_pushed_stays_confined(vault: Vault) -> None:
    found = vault.found
    ensure_source(found.connection, PUSH, kind="folder", namespace="default", root=vault.confined.root, enrich=False)
    confine_pushed(found.connection, found.tools.settings)
    assert not found.one("SELECT enrich FROM docwell.source WHERE name = %s", PUSH)


def test_commands_tell_which_passages_are_found_by_words_alone_and_why(
    vault: Vault, database: Database, run: Callable[..., Result], tmp_path: Path
) -> None:
    vault.take("plan.md", f"# Plan\n\n{SECRET}\n")
    settings = vault.found.tools.settings
    (tmp_path / "docwell.toml").write_text(
        f'embedding_provider = "openai"\nembedding_base_url = "{vault.server.url}"\nembedding_model = "small"\n'
        "[prices.small]\ninput = 0.02\n"
    )
    shown = json.loads(run("documents", "show", "plan.md", "--json").stdout)["document"]["without_vector"]
    assert [(one["code"], one["passages"]) for one in shown] == [("kept_here", 1)]
    assert "enrich = false" in run("documents", "show", "plan.md").stdout
    assert "1 passages (kept_here)" in run("status").stdout
    assert json.loads(run("status", "--json").stdout)["without_vector"][0]["documents"] == 1
    findings = {one.check: one for one in look_into_database(vault.found.connection, lambda: "", settings)}
    assert findings["searchable chunks"].status == "ok"
    assert "plan.md" in findings["passages without vectors"].finding
    why = json.loads(run("why", "plan.md", "--query", "zebrafish", "--json").stdout)
    embedded = next(stage for stage in why["stages"] if stage["stage"] == "embedded")
    assert embedded["verdict"] == "ok"
    assert "kept_here" in " ".join(embedded["evidence"])
    assert why["found"] is True
    assert SECRET not in vault.sent


def test_an_exception_that_is_made_on_purpose_fills_what_was_left_out(vault: Vault) -> None:
    vault.take("plan.md", SECRET)
    assert vault.found.searched() == set()
    vault.found.fill()
    assert vault.found.searched() == set()
    vault.take("other.md", "Something else.", embed="anyway")
    vault.found.fill()
    assert vault.found.searched() == {SECRET, "Something else."}
    assert vault.found.one("SELECT count(*) FROM docwell.without_vector") == 0


def test_text_that_another_source_has_too_goes_with_that_one(vault: Vault) -> None:
    vault.take("plan.md", SECRET)
    vault.found.take("same.md", SECRET)
    assert vault.found.searched() == {SECRET}
    assert vault.found.one("SELECT count(*) FROM docwell.without_vector") == 0


def test_the_settings_confine_a_source_before_its_row_says_so(
    database: Database, tmp_path: Path, cage: ParserCage, server: Server
) -> None:
    inbox = FolderSettings(name="inbox", root=tmp_path / "inbox", enrich=False)
    with opened(database, tmp_path, cage, server, sources=(inbox,)) as vault:
        vault.found.take("plan.md", SECRET)  # its row still says that it may leave
        assert SECRET not in vault.sent


def test_a_model_that_costs_nothing_gets_the_text_and_what_was_left_out_before(
    database: Database, tmp_path: Path, cage: ParserCage, server: Server
) -> None:
    with opened(database, tmp_path, cage, server) as vault:
        vault.take("plan.md", SECRET)
    (tmp_path / "vault" / "plan.md").unlink()
    (tmp_path / "vault").rmdir()
    with opened(database, tmp_path, cage, server, prices={"small": Price(input=Decimal(0))}) as vault:
        VectorKeeper(vault.found.tools.settings).tick(vault.found.tools.pool)
        vault.found.fill()
        assert vault.found.searched() == {SECRET}


@pytest.mark.parametrize("is_paid", [True, False])
def test_a_paid_reranker_does_not_get_it_and_it_keeps_its_place(database: Database, is_paid: bool) -> None:
    read: list[str] = []

    class Backwards:
        def scores(self, query: str, texts: Any) -> list[float]:
            read.extend(texts)
            return [float(place) for place in range(len(texts))]

    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
        for name, source in (("a.md", "inbox"), ("b.md", "vault"), ("c.md", "inbox")):
            add(corpus, name, text_chunk(f"alpha beta {name} " + "filler " * (ord(name[0]) - 96)), source=source)
        corpus.connection.execute("UPDATE docwell.source SET enrich = false WHERE name = 'vault'")
    reranking = Reranking(Backwards, limit_seconds=30.0, is_paid=is_paid)
    with serving(database, reranking=OnDemand(lambda: reranking)) as service:
        answer = service.search("alpha beta", limit=3)
    paths = [one["path"] for one in answer["results"]]
    assert any("b.md" in text for text in read) is not is_paid
    if is_paid:
        assert (paths, [one["score_kind"] for one in answer["results"]]) == (
            ["c.md", "b.md", "a.md"],
            ["rerank", "rrf", "rerank"],
        )
