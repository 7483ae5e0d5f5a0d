"""Contexts of passages: bought over the real SDK from a stand-in on loopback, kept and searched in the real database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ingest_worker.catalogue import ledger
from ingest_worker.enrich.again import ask, ask_for_due
from ingest_worker.erasure import erase
from ingest_worker.jobs.table import LeaseLost
from ingest_worker.parse.cage import ParserCage
from shared.config import Settings
from shared.database import connect
from shared.documents import Chunk
from shared.embedding.protocol import Embedder
from shared.errors import Outage, TransientError
from tests.anthropic_contexts import describe, passage_of
from tests.anthropic_stand_in import StandIn
from tests.anthropic_wire import Fault, Received, Reply, says
from tests.asking import WordEmbedder, serving
from tests.conftest import Database
from tests.shop import Shop, enricher_for, open_shop, sections


@pytest.fixture
def shop(database: Database, tmp_path: Path, cage: ParserCage, model: StandIn) -> Iterator[Shop]:
    with open_shop(database.url, tmp_path, cage, model) as found:
        yield found


def test_a_document_of_fifty_passages_is_read_from_the_cache_and_each_passage_is_asked_about_once(shop: Shop) -> None:
    shop.write("a.md", "# A\n\n" + "\n".join(sections(50)))
    (report,) = shop.take("a.md")
    assert report.result == "indexed"
    assert report.chunks >= 50
    asked = [passage_of(request) for request in shop.model.requests]
    assert sorted(asked) == sorted({text for text, _ in shop.served("a.md")})
    assert shop.model.requests[0].body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}
    writes = [usage for usage in shop.model.usages if usage["cache_creation_input_tokens"]]
    assert len(writes) == 1
    read = shop.model.total("cache_read_input_tokens")
    share = read / (read + shop.model.total("input_tokens") + shop.model.total("cache_creation_input_tokens"))
    assert share >= 0.9, f"{share:.3f}"
    assert 2 <= shop.model.most_together <= shop.tools.settings.enrich_concurrency
    assert shop.standing("a.md").state == "complete"
    (total,) = ledger.totals_of(shop.connection, shop.id_of("a.md"))
    assert (total.kind, total.calls, total.unpriced_calls) == ("context", len(asked), 0)
    assert total.cache_read_tokens == read
    assert total.input_tokens == shop.model.total("input_tokens")
    assert total.output_tokens == shop.model.total("output_tokens")
    wanted = total.input_tokens + 5 * total.output_tokens + Decimal("0.1") * read + Decimal("1.25") * total.cache_write_tokens
    assert total.money == wanted / 1_000_000
    shop.assert_whole()


def test_a_passage_is_found_by_its_context_and_shown_without_it(shop: Shop, database: Database) -> None:
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    shop.take("a.md")
    ((text, context),) = shop.served("a.md")
    assert context is not None
    assert "zwielicht" in context
    with serving(database) as service:
        [hit] = service.search("zwielicht")["results"]
    assert "keyword" in hit["matched_by"]
    assert hit["text"] == text
    assert "zwielicht" not in str(hit)


def test_unchanged_bytes_cost_nothing(shop: Shop) -> None:
    shop.write("a.md", "# A\n\n" + "\n".join(sections(4)))
    shop.take("a.md")
    before = len(shop.model.requests)
    (report,) = shop.take("a.md")
    assert report.result == "unchanged"
    assert len(shop.model.requests) == before


def test_an_edit_pays_for_its_own_passages_and_leaves_other_vectors_alone(shop: Shop) -> None:
    parts = sections(12)
    shop.write("a.md", "# A\n\n" + "\n".join(parts))
    shop.take("a.md")
    before, asked = shop.vectors(), len(shop.model.requests)
    old = {text for text, _ in shop.served("a.md")}
    parts[5] = parts[5].replace("m5n3", "a change", 1)
    shop.write("a.md", "# A\n\n" + "\n".join(parts))
    shop.take("a.md")
    new = {text for text, _ in shop.served("a.md")} - old
    assert 1 <= len(new) <= 4
    assert {passage_of(request) for request in shop.model.requests[asked:]} == new
    after = shop.vectors()
    assert len(after.keys() - before.keys()) == len(new)
    assert all(after[key] == before[key] for key in after.keys() & before.keys())
    shop.assert_whole()


def test_one_passage_that_fails_has_no_context_and_gets_it_when_the_scheduler_asks_again(shop: Shop) -> None:
    shop.model.otherwise = lambda received: (
        Fault(status=400, message="no") if "m2n9." in passage_of(received) else describe(received)
    )
    shop.write("a.md", "# A\n\n" + "\n".join(sections(5)))
    (report,) = shop.take("a.md")
    assert report.result == "indexed"
    lacking = [text for text, context in shop.served("a.md") if context is None]
    assert lacking
    assert all("m2n9." in text for text in lacking)
    standing = shop.standing("a.md")
    assert (standing.state, standing.reason_code) == ("partial", "passages_failed")
    assert standing.next_try is not None
    assert standing.failed == {"request_refused": len(set(lacking))}
    shop.assert_whole()

    assert ask_for_due(shop.connection, shop.tools.settings) == 0
    shop.model.otherwise = describe
    asked = len(shop.model.requests)
    shop.connection.execute("UPDATE docwell.enrichment SET due = now()")
    assert ask_for_due(shop.connection, shop.tools.settings) == 1
    (again,) = shop.work()
    assert (again.result, again.embedded) == ("indexed", len(set(lacking)))
    assert len(shop.model.requests) - asked == len(set(lacking))
    assert all(context for _, context in shop.served("a.md"))
    assert shop.standing("a.md").state == "complete"
    assert shop.one("SELECT latest_version, served_version, state FROM docwell.document") == (1, 1, "indexed")
    shop.assert_whole()
    (unchanged,) = shop.take("a.md")
    assert unchanged.result == "unchanged"


@pytest.mark.parametrize(
    ("text", "stop_reason", "code"),
    [
        ("", "end_turn", "empty_answer"),
        ("", "refusal", "refused"),
        ("!!!", "end_turn", "bad_answer"),
        ("x y", "max_tokens", "bad_answer"),
    ],
)
def test_an_answer_that_is_none_is_paid_recorded_and_fails_nothing(shop: Shop, text: str, stop_reason: str, code: str) -> None:
    shop.model.otherwise = says(*[text] if text else [], stop_reason=stop_reason)
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    (report,) = shop.take("a.md")
    assert report.result == "indexed"
    assert shop.standing("a.md").failed == {code: 1}
    assert ledger.totals_of(shop.connection, shop.id_of("a.md"))[0].calls == 1


def test_while_the_service_is_away_documents_do_not_wait_for_it(shop: Shop) -> None:
    shop.model.otherwise = Fault(status=529, retry_after=600)
    for name in ("a.md", "b.md"):
        shop.write(name, f"# {name}\n\n" + "\n".join(sections(5)))
    first, second = shop.take("a.md", "b.md")
    assert (first.result, second.result) == ("indexed", "indexed")
    assert len(shop.model.requests) == 1
    for name in ("a.md", "b.md"):
        standing = shop.standing(name)
        assert (standing.state, standing.reason_code, standing.with_context) == ("none", "unavailable", 0)
        assert standing.next_try is not None
    assert ledger.totals_of(shop.connection, shop.id_of("a.md")) == []
    shop.assert_whole()


def test_a_wrong_key_is_told_and_fails_nothing(shop: Shop) -> None:
    shop.tools = replace(shop.tools, enricher=enricher_for(shop.model, key="wrong"))
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    (report,) = shop.take("a.md")
    assert report.result == "indexed"
    assert shop.standing("a.md").reason_code == "key_refused"
    shop.tools = replace(shop.tools, enricher=enricher_for(shop.model, key=None))
    shop.write("b.md", "# B\n\nThe sea is blue.\n")
    shop.take("b.md")
    assert shop.standing("b.md").reason_code == "no_key"
    assert "ANTHROPIC_API_KEY" in (shop.standing("b.md").reason or "")


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ({"enrich_daily_tokens": 60_000}, "daily_budget"),
        ({"enrich_daily_money": "0.02"}, "daily_budget"),
        ({"enrich_document_tokens": 60_000}, "document_budget"),
    ],
)
def test_a_budget_stops_contexts_and_no_document(shop: Shop, limit: dict[str, Any], code: str) -> None:
    shop.set(**limit)
    shop.write("a.md", "# A\n\n" + "\n".join(sections(20)))
    (report,) = shop.take("a.md")
    assert report.result == "indexed"
    standing = shop.standing("a.md")
    assert (standing.state, standing.reason_code) == ("partial", code)
    assert 1 <= standing.with_context < standing.chunks
    assert (standing.next_try is None) == (code == "document_budget")
    (total,) = ledger.totals_of(shop.connection, shop.id_of("a.md"))
    tokens = total.input_tokens + total.output_tokens + total.cache_read_tokens + total.cache_write_tokens
    assert tokens <= limit.get("enrich_daily_tokens", limit.get("enrich_document_tokens", tokens))
    assert total.money <= Decimal(limit.get("enrich_daily_money", "1000"))
    shop.write("b.md", "# B\n\n" + "\n".join(sections(21)))
    (second,) = shop.take("b.md")
    assert second.result == "indexed"
    today = ledger.spent_today(shop.connection, ["context"])
    assert today.tokens <= limit.get("enrich_daily_tokens", today.tokens)
    assert today.money <= Decimal(limit.get("enrich_daily_money", "1000"))
    shop.assert_whole()


def test_nothing_of_a_source_without_enrichment_leaves(shop: Shop) -> None:
    shop.may_leave = False
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    (report,) = shop.take("a.md")
    assert report.result == "indexed"
    assert shop.model.requests == []
    ask(shop.connection, [shop.id_of("a.md")], max_attempts=5)
    shop.work()
    assert shop.model.requests == []
    assert shop.one("SELECT asked FROM docwell.enrichment") == (False,)


def test_off_is_the_default_and_sends_nothing(shop: Shop) -> None:
    assert Settings().context_prefixes == "off"
    shop.set(context_prefixes="off")
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    shop.take("a.md")
    assert shop.model.requests == []
    assert shop.one("SELECT count(*) FROM docwell.enrichment") == (0,)


def test_contexts_that_were_bought_stay_when_they_are_turned_off(shop: Shop) -> None:
    parts = sections(6)
    shop.write("a.md", "# A\n\n" + "\n".join(parts))
    shop.take("a.md")
    asked = len(shop.model.requests)
    shop.set(context_prefixes="off")
    parts[3] = parts[3].replace("m3n3", "a change", 1)
    shop.write("a.md", "# A\n\n" + "\n".join(parts))
    (report,) = shop.take("a.md")
    assert len(shop.model.requests) == asked
    served = shop.served("a.md")
    assert 1 <= sum(context is None for _, context in served) == report.embedded < len(served)
    shop.assert_whole()


def test_a_job_that_is_lost_in_the_middle_loses_nothing_that_was_paid(shop: Shop) -> None:
    shop.set(enrich_concurrency=3)

    def lose(received: Received) -> Reply:
        if received.number == 5:
            with connect(shop.connection.info.dsn, autocommit=True) as other:
                other.execute("UPDATE docwell.job SET lease_token = gen_random_uuid() WHERE state = 'running'")
        return describe(received)

    shop.model.otherwise = lose
    shop.write("a.md", "# A\n\n" + "\n".join(sections(12)))
    with pytest.raises(LeaseLost):
        shop.take("a.md")
    paid = len(shop.model.requests)
    assert 5 <= paid <= 8
    assert shop.one("SELECT sum(calls) FROM docwell.ledger") == (paid,)
    shop.model.otherwise = describe
    shop.connection.execute("UPDATE docwell.job SET state = 'queued', lease_token = NULL, next_run_at = now()")
    (report,) = shop.work()
    assert report.result == "indexed"
    asked = [passage_of(request) for request in shop.model.requests]
    assert len(asked) == len(set(asked)) == len({text for text, _ in shop.served("a.md")})
    assert shop.standing("a.md").state == "complete"
    shop.assert_whole()


def test_an_embedder_that_is_away_costs_no_context_twice(shop: Shop) -> None:
    class Away(WordEmbedder):
        def embed(self, texts: Sequence[str], role: Any) -> Any:
            raise TransientError("away", code="embedding_unreachable")

    here: Callable[[], Embedder] = shop.tools.embedder
    shop.tools = replace(shop.tools, embedder=Away)
    shop.write("a.md", "# A\n\n" + "\n".join(sections(4)))
    with pytest.raises(Outage):
        shop.take("a.md")
    asked = len(shop.model.requests)
    shop.tools = replace(shop.tools, embedder=here)
    shop.connection.execute("UPDATE docwell.job SET state = 'queued', next_run_at = now()")
    shop.work()
    assert asked == len(shop.model.requests) == len(shop.served("a.md"))


def test_documents_that_were_taken_without_contexts_get_them_when_a_person_asks(shop: Shop) -> None:
    shop.set(context_prefixes="off")
    shop.write("a.md", "# A\n\n" + "\n".join(sections(4)))
    shop.take("a.md")
    shop.set(context_prefixes="on")
    assert shop.take("a.md")[0].result == "unchanged"
    assert shop.model.requests == []
    queued = ask(shop.connection, [shop.id_of("a.md")], max_attempts=5)
    assert list(queued) == [shop.id_of("a.md")]
    (report,) = shop.work()
    assert report.embedded == report.chunks == len(shop.model.requests)
    assert all(context for _, context in shop.served("a.md"))
    assert shop.one("SELECT latest_version FROM docwell.document") == (1,)
    shop.assert_whole()


def test_a_passage_that_two_documents_share_is_paid_once_among_the_same_readers_only(shop: Shop) -> None:
    same = "# Same\n\nEvery page of the house ends with these words.\n"
    for name in ("a.md", "b.md", "c.md"):
        shop.write(name, same)
    shop.take("a.md")
    shop.take("b.md")
    assert len(shop.model.requests) == 1
    shop.take("c.md", readers=["group:board"], source="vault")
    assert len(shop.model.requests) == 2
    shop.assert_whole()


def test_a_document_that_is_too_long_is_shown_in_parts_with_its_outline(shop: Shop) -> None:
    shop.set(context_window_tokens=8_000)
    shop.write("a.md", "# A\n\n" + "\n".join(sections(40)))
    (report,) = shop.take("a.md")
    shown = {request.body["messages"][0]["content"][0]["text"] for request in shop.model.requests}
    assert len(shown) > 2
    assert all("Part 39" in text and "Part 0" in text for text in shown)
    for request in shop.model.requests:
        assert passage_of(request).split()[-1] in request.body["messages"][0]["content"][0]["text"]
    assert report.chunks == len(shop.model.requests)


def test_what_takes_too_long_is_published_and_goes_on_afterwards(shop: Shop) -> None:
    shop.set(enrich_seconds=0.000001)
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    (report,) = shop.take("a.md")
    assert report.result == "indexed"
    standing = shop.standing("a.md")
    assert (standing.reason_code, standing.next_try is not None) == ("time", True)


def test_an_erasure_takes_back_what_a_context_told_on_passages_of_others(shop: Shop) -> None:
    shop.write("a.md", "".join(sections(3)))
    shop.write("b.md", "".join(["## Part 0\n\nSomething else.\n\n", *sections(3)[1:]]))
    shop.take("a.md")
    shop.take("b.md")
    shared = {text for text, _ in shop.served("a.md")} & {text for text, _ in shop.served("b.md")}
    assert shared
    asked = len(shop.model.requests)
    assert any(context for text, context in shop.served("b.md") if text in shared)
    erase(shop.connection, shop.id_of("a.md"), max_bytes=1_000_000)
    assert any(context is None for text, context in shop.served("b.md") if text in shared)
    shop.work()
    assert len(shop.model.requests) > asked
    assert all(context for _, context in shop.served("b.md"))
    shop.assert_whole()


def test_contexts_of_a_document_that_is_deleted_go_with_it(shop: Shop) -> None:
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    shop.take("a.md")
    (shop.root / "a.md").unlink()
    shop.set(delete_grace_seconds=0)
    assert shop.take("a.md")[0].result == "deleted"
    assert shop.one("SELECT count(*) FROM docwell.chunk_context") == (0,)
    assert shop.one("SELECT count(*) FROM docwell.enrichment") == (0,)
    assert shop.one("SELECT sum(calls) FROM docwell.ledger") == (1,)


def test_a_context_is_no_part_of_a_passages_identity() -> None:
    plain = Chunk(kind="text", text="The meadow is green.", tokens=5)  # type: ignore[arg-type]
    told = replace(plain, context="It stands in a tale.")
    assert told.chunk_id == plain.chunk_id
    assert told.input_id != plain.input_id
    assert told.embedded_text == "It stands in a tale.\nThe meadow is green."
