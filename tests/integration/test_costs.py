"""What paid services took: in the ledger, in what commands say, and before it is spent."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection
from typer.testing import CliRunner, Result

from infra.cli import make_app
from ingest_worker.catalogue import contexts, ledger
from ingest_worker.catalogue.contexts import Progress
from ingest_worker.catalogue.ledger import Entry
from ingest_worker.embedding import embed, record_embedding, shares_of
from ingest_worker.work import Work
from shared.config import Settings
from shared.embedding.openai_compatible import OpenAIEmbedder
from shared.errors import ConfigurationError
from shared.prices import Price, TokenUse, cost
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk
from tests.integration.test_embedder_openai import Server, error
from tests.pictures import chart, encoded

Run = Callable[..., Result]
PRICES = {"m": Price(input=Decimal("0.02"))}


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url) as found:
        yield found


@pytest.fixture
def run(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    monkeypatch.setenv("DOCWELL_REDIS_URL", f"unix://{tmp_path}/none.sock")
    return lambda *arguments: CliRunner().invoke(make_app(), list(map(str, arguments)))


def _json(result: Result) -> Any:
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def _pay(connection: Connection[Any], document: uuid.UUID, use: TokenUse, money: str | None = "0.5") -> None:
    paid = None if money is None else Decimal(money)
    ledger.record(connection, [Entry(document_id=document, kind="context", model="m", use=use, money=paid)])


def test_calls_add_up_by_day_source_kind_and_document(corpus: Corpus) -> None:
    first, second = corpus.add("a.md", [text_chunk("x")]), corpus.add("b.md", [text_chunk("y")], source="other")
    use = TokenUse(calls=1, input_tokens=10, output_tokens=5, cache_read_tokens=100, cache_write_tokens=50)
    for document in (first, first, second):
        _pay(corpus.connection, document, use)
    (total,) = ledger.totals_of(corpus.connection, first)
    assert (total.calls, total.input_tokens, total.cache_read_tokens, total.money) == (2, 20, 200, Decimal(1))
    assert [(one.source, one.calls) for one in ledger.totals_by_day(corpus.connection, days=1)] == [("inbox", 2), ("other", 1)]
    assert ledger.spent_today(corpus.connection, ["context"]).tokens == 3 * use.tokens
    assert ledger.spent_today(corpus.connection, ["caption"]).tokens == 0
    corpus.connection.execute("UPDATE docwell.ledger SET day = day - 40")
    assert ledger.totals_by_day(corpus.connection, days=30) == []
    assert ledger.spent_today(corpus.connection, ["context"]).tokens == 0
    assert ledger.spent_on(corpus.connection, first, ["context"]).tokens == 2 * use.tokens


def test_what_was_paid_stays_known_when_its_document_is_gone(corpus: Corpus) -> None:
    document = corpus.add("a.md", [text_chunk("x")])
    _pay(corpus.connection, document, TokenUse(calls=1, input_tokens=10))
    corpus.connection.execute("UPDATE docwell.document SET served_version_id = NULL")
    corpus.connection.execute("DELETE FROM docwell.document")
    (total,) = ledger.totals_by_day(corpus.connection, days=1)
    assert (total.source, total.calls) == ("inbox", 1)


def test_money_without_a_price_is_left_out_and_never_guessed(corpus: Corpus) -> None:
    use = TokenUse(calls=1, input_tokens=1_000_000, cache_read_tokens=1)
    assert cost({}, "m", use) is None
    assert cost(PRICES, "m", use) is None
    assert cost(PRICES, "m", TokenUse(calls=1, input_tokens=1_000_000)) == Decimal("0.02")
    document = corpus.add("a.md", [text_chunk("x")])
    _pay(corpus.connection, document, use, money=None)
    (total,) = ledger.totals_of(corpus.connection, document)
    assert (total.money, total.unpriced_calls) == (0, 1)


def test_a_budget_in_money_needs_every_price_of_its_model() -> None:
    with pytest.raises(ValueError, match="cache_write"):
        Settings(context_prefixes="on", enrich_daily_money="1", prices={"claude-haiku-4-5": {"input": 1, "output": 5}})  # type: ignore[arg-type]
    whole = {"input": 1, "output": 5, "cache_read": "0.1", "cache_write": "1.25"}
    Settings(context_prefixes="on", enrich_daily_money="1", prices={"claude-haiku-4-5": whole})  # type: ignore[arg-type]


def test_embeddings_of_a_service_are_counted_and_shared_among_the_documents_of_a_call(corpus: Corpus, server: Server) -> None:
    counts = {"a": 1, "b": 3}
    chunks = {name: [text_chunk(f"{name} {one} " + "w " * 50) for one in range(count)] for name, count in counts.items()}
    documents = {corpus.add(f"{name}.md", own): own for name, own in chunks.items()}
    embedder = OpenAIEmbedder(base_url=server.url, api_key="key", model="m", dimension=8)
    paid: list[TokenUse] = []
    inputs = {chunk.input_id: chunk for own in chunks.values() for chunk in own}

    def pay(use: TokenUse, embedded: Any) -> None:
        paid.append(use)
        record_embedding(corpus.connection, shares_of(TokenUse(calls=1, input_tokens=401), documents, embedded), "m", PRICES)

    assert embed(embedder, inputs, work=Work(), pay=pay).vectors.keys() == inputs.keys()
    embedder.close()
    assert paid == [TokenUse(calls=1, input_tokens=1)]
    small, large = (ledger.totals_of(corpus.connection, document)[0] for document in documents)
    assert (small.kind, small.model) == ("embedding", "m")
    assert small.input_tokens + large.input_tokens == 401
    assert 2.5 < large.input_tokens / small.input_tokens < 3.5
    assert (small.calls, large.calls) == (0, 1)
    assert small.money == small.input_tokens * Decimal("0.02") / 1_000_000


def test_embeddings_that_were_paid_are_counted_when_a_later_batch_fails(server: Server) -> None:
    embedder = OpenAIEmbedder(base_url=server.url, api_key="key", model="m", dimension=8, sleep=lambda _: None)
    server.before = lambda _, number: None if number == 1 else error(401, "no")
    inputs = {chunk.input_id: chunk for chunk in (text_chunk(f"{number}") for number in range(200))}
    paid: list[TokenUse] = []
    with pytest.raises(ConfigurationError):
        embed(embedder, inputs, work=Work(), pay=lambda use, _: paid.append(use))
    embedder.close()
    assert [use.calls for use in paid] == [1]


def test_commands_say_what_was_paid_and_how_far_contexts_have_come(run: Run, corpus: Corpus) -> None:
    document = corpus.add("a.md", [text_chunk("x")])
    _pay(corpus.connection, document, TokenUse(calls=2, input_tokens=1_200, output_tokens=80, cache_read_tokens=9_000))
    contexts.note_progress(
        corpus.connection,
        document,
        Progress(state="partial", chunks=5, with_context=3, reason_code="daily_budget", reason="No more today.", due_seconds=60),
    )
    shown = _json(run("documents", "show", document, "--json"))["document"]
    assert shown["costs"][0] | {"money": "0.5", "calls": 2, "cache_read_tokens": 9_000} == shown["costs"][0]
    assert (shown["contexts"]["state"], shown["contexts"]["with_context"]) == ("partial", 3)
    said = run("documents", "show", document).stdout
    assert "partial, 3 of 5 passages: No more today. The rest is asked for at" in said
    assert "context (m): 2 calls, 1,200 in, 9,000 from the cache, 80 out, 0.5 money" in said
    (row,) = _json(run("status", "--json"))["costs"]
    assert (row["source"], row["kind"], row["calls"], row["money"]) == ("inbox", "context", 2, "0.5")
    assert "10280" in run("status").stdout


@pytest.mark.parametrize("setting", ["DOCWELL_CONTEXT_PREFIXES", "DOCWELL_VISION_CAPTIONS"])
def test_contexts_and_captions_are_not_asked_for_while_they_are_off(
    run: Run, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    document = corpus.add("a.md", [text_chunk("x")])
    assert run("documents", "enrich", document).exit_code == 1
    monkeypatch.setenv(setting, "on")
    (job,) = _json(run("documents", "enrich", document, "--json"))["jobs"]
    assert job["job_id"] is not None
    assert corpus.claim().document_id == document


def test_an_estimate_says_what_a_load_would_cost_and_takes_nothing_in(
    run: Run, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.md").write_text("# A\n\n" + " ".join(f"word{number}x{one}" for one in range(3_000)))
    (folder / "chart.png").write_bytes(encoded(chart("teal")))
    (tmp_path / "docwell.toml").write_text(
        '[prices."claude-haiku-4-5"]\ninput = 1\noutput = 5\ncache_read = 0.1\ncache_write = 1.25\n'
    )
    found = _json(run("ingest", folder, "--estimate", "--json"))["estimate"]
    assert found["documents"] == 4
    assert (found["caption"]["calls"], found["caption"]["on"]) == (1, False)
    assert 0 < Decimal(found["caption"]["money"]) < Decimal("0.01")
    assert found["context"]["calls"] == found["chunks"] > 30
    assert found["context"]["on"] is False
    assert found["context"]["cache_read_tokens"] > 5 * found["context"]["input_tokens"]
    assert 0 < Decimal(found["context"]["money"]) < 1
    assert found["embedding"]["money"] == "0"
    assert corpus.count("document") == 0
    said = run("ingest", folder, "--estimate").stdout
    assert "captions by claude-haiku-4-5: about" in said
    assert "(off: this is what they would cost)" in said
