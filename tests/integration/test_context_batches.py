"""Contexts that are ordered in batches: over the real SDK from the stand-in's Message Batches API, into the real database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pydantic import SecretStr

from ingest_worker.catalogue import contexts, ledger
from ingest_worker.enrich.again import ask, ask_for_due
from ingest_worker.enrich.batch_keeper import keeping_batches
from ingest_worker.enrich.batch_orders import Pack
from ingest_worker.erasure import erase
from tests.anthropic_contexts import describe
from tests.anthropic_stand_in import KEY
from tests.anthropic_wire import says
from tests.conftest import Database
from tests.folders import eventually
from tests.shop import BatchShop, Shop, sections


def test_documents_are_served_at_once_and_get_their_contexts_at_half_the_price_when_the_batch_has_ended(
    ordering: BatchShop,
) -> None:
    shop = ordering.shop
    shop.write("a.md", "# A\n\n" + "\n".join(sections(4)))
    shop.write("b.md", "# B\n\nThe meadow is green.\n")
    assert [report.result for report in shop.take("a.md", "b.md")] == ["indexed", "indexed"]
    assert all(context is None for path in ("a.md", "b.md") for _, context in shop.served(path))
    assert (shop.standing("a.md").state, shop.standing("a.md").reason_code) == ("none", "batch")
    ordering.tick(gather_seconds=300.0)
    assert shop.model.batches.all == [], "it waits for others"
    ordering.tick()
    (batch,) = shop.model.batches.all
    passages = ordering.texts("a.md", "b.md")
    assert (len(batch.requests), ordering.waiting()) == (len(passages), (0, 1, len(passages)))
    ordering.tick()
    assert len(shop.model.batches.all) == 1
    assert shop.model.requests == []

    ordering.bring()
    assert ordering.asked() == passages
    assert all(context and "zwielicht" in context for path in ("a.md", "b.md") for _, context in shop.served(path))
    assert (shop.standing("a.md").state, shop.standing("a.md").reason_code) == ("complete", None)
    assert ordering.waiting() == (0, 0, 0)
    (total,) = ledger.totals_of(shop.connection, shop.id_of("b.md"))
    assert total.calls == 1
    assert total.money == (total.input_tokens + 5 * total.output_tokens) / Decimal(2_000_000)
    assert ledger.spent_today(shop.connection, ["context"]).tokens == shop.model.total("input_tokens") + shop.model.total(
        "output_tokens"
    )
    shop.assert_whole()
    assert [report.result for report in shop.take("a.md", "b.md")] == ["unchanged", "unchanged"]
    ordering.tick()
    assert len(shop.model.batches.all) == 1


def test_a_person_need_not_wait_until_what_failed_has_rested(ordering: BatchShop) -> None:
    shop = ordering.shop
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    shop.take("a.md")
    ordering.tick()
    shop.model.otherwise = says("!!!")
    ordering.bring()
    assert shop.standing("a.md").failed == {"bad_answer": 1}
    shop.model.otherwise = describe
    ask(shop.connection, [shop.id_of("a.md")], max_attempts=5, afresh=True)
    shop.work()
    ordering.tick()
    ordering.bring()
    assert (shop.standing("a.md").state, ordering.paid()) == ("complete", 2)


def _delete(shop: Shop) -> None:
    (shop.root / "a.md").unlink()
    shop.set(delete_grace_seconds=0)
    assert shop.take("a.md")[0].result == "deleted"


def _erase(shop: Shop) -> None:
    erase(shop.connection, shop.id_of("a.md"), max_bytes=1_000_000)


@pytest.mark.parametrize("go", [_delete, _erase])
def test_what_comes_for_a_document_that_went_is_paid_and_dropped(ordering: BatchShop, go: Callable[[Shop], None]) -> None:
    shop = ordering.shop
    shop.write("a.md", "".join(sections(3)))
    shop.write("b.md", "".join(["## Part 0\n\nSomething else.\n\n", *sections(3)[1:]]))
    shop.take("a.md", "b.md")
    assert set(ordering.texts("a.md")) & set(ordering.texts("b.md"))
    ordering.tick()
    both = ordering.texts("a.md", "b.md")
    assert len(shop.model.batches.all[0].requests) == len(both), "what both hold is ordered once"
    go(shop)
    ordering.bring()
    assert ordering.paid() == len(both)
    assert shop.one("SELECT count(*) FROM docwell.context_order") == (0,)
    held = "SELECT count(*) FROM docwell.chunk_context WHERE document_id <> %s"
    assert shop.one(held, shop.id_of("b.md")) == (0,)
    # What the other one holds too was ordered for the one that went: it is asked about again.
    for _ in range(2):
        shop.connection.execute("UPDATE docwell.enrichment SET order_due = now() WHERE order_due IS NOT NULL")
        ordering.tick()
        ordering.bring()
    assert all(context for _, context in shop.served("b.md"))
    shop.assert_whole()


def test_an_edit_while_a_batch_is_under_way_orders_its_own_passages_only(ordering: BatchShop) -> None:
    shop = ordering.shop
    parts = sections(6)
    shop.write("a.md", "# A\n\n" + "\n".join(parts))
    shop.take("a.md")
    ordering.tick()
    old = set(ordering.texts("a.md"))
    parts[3] = parts[3].replace("m3n3", "a change", 1)
    shop.write("a.md", "# A\n\n" + "\n".join(parts))
    shop.take("a.md")
    ordering.tick()
    new = set(ordering.texts("a.md")) - old
    assert len(shop.model.batches.all[1].requests) == len(new) < len(old)
    ordering.bring()
    assert ordering.asked() == sorted(old | new)
    assert all(context for _, context in shop.served("a.md"))
    shop.assert_whole()


def test_a_job_that_ends_while_answers_come_does_not_take_the_turn_to_publish_them(ordering: BatchShop) -> None:
    shop = ordering.shop
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    shop.take("a.md")
    ordering.tick()
    shop.model.batches.finish(shop.model)
    shop.set(context_batches="off")  # answers are kept all the same
    ordering.tick()
    contexts.note_progress(shop.connection, shop.id_of("a.md"), contexts.Progress(state="none", chunks=1, with_context=0))
    shop.set(context_batches="all")
    ordering.tick()
    shop.work()
    assert shop.standing("a.md").state == "complete"


@pytest.mark.parametrize("limit", [{"enrich_daily_money": "0.008"}, {"enrich_document_tokens": 12_000}])
def test_what_is_ordered_counts_for_budgets_before_it_comes(ordering: BatchShop, limit: dict[str, Any]) -> None:
    shop = ordering.shop
    shop.set(**limit)
    shop.write("a.md", "# A\n\n" + "\n".join(sections(8)))
    shop.take("a.md")
    ordering.tick()
    ordered = ordering.waiting()[2]
    assert 1 <= ordered < len(ordering.texts("a.md"))
    spent = ledger.spent_today(shop.connection, ["context"])
    assert 0 < spent.tokens <= limit.get("enrich_daily_tokens", spent.tokens)
    assert 0 < spent.money <= Decimal(limit.get("enrich_daily_money", "1"))
    ordering.bring()
    assert ledger.spent_today(shop.connection, ["context"]).tokens < spent.tokens, "the estimate was an upper one"
    ordering.tick()
    standing = shop.standing("a.md")
    assert standing.with_context >= ordered
    assert all(report.result == "unchanged" for report in shop.take("a.md"))
    if "enrich_document_tokens" not in limit:
        shop.set(context_batches="off")
        shop.write("b.md", "# B\n\n" + "\n".join(sections(30)))
        shop.take("b.md")
        assert ledger.spent_today(shop.connection, ["context"]).tokens <= limit.get("enrich_daily_tokens", 10**9)


def test_batches_have_bounds_and_a_document_may_need_several(ordering: BatchShop) -> None:
    shop = ordering.shop
    shop.write("a.md", "# A\n\n" + "\n".join(sections(7)))
    shop.take("a.md")
    ordering.tick(pack=lambda: Pack(most_requests=3))
    passages = ordering.texts("a.md")
    sizes = [len(batch.requests) for batch in shop.model.batches.all]
    assert (max(sizes), sum(sizes)) == (3, len(passages))
    ordering.bring()
    assert ordering.asked() == passages
    assert shop.standing("a.md").state == "complete"


def test_the_scheduler_looks_after_batches_beside_its_work(ordering: BatchShop, database: Database) -> None:
    shop = ordering.shop
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    shop.take("a.md")
    shop.connection.execute("UPDATE docwell.enrichment SET order_due = now() - interval '10 minutes'")
    settings = shop.tools.settings.model_copy(update={"anthropic_api_key": SecretStr(KEY), "anthropic_base_url": shop.model.url})
    stop = threading.Event()
    with keeping_batches(settings, database.url, stop, tick_seconds=0.02):
        eventually(lambda: ordering.waiting() == (0, 1, 1))
        eventually(lambda: shop.one("SELECT service_id IS NOT NULL FROM docwell.context_batch") == (True,))
        shop.model.batches.finish(shop.model)
        shop.connection.execute("UPDATE docwell.context_batch SET next_look = now()")
        eventually(lambda: bool(shop.work()))
        stop.set()
    assert shop.standing("a.md").state == "complete"


def test_what_waits_is_bought_on_the_way_when_batches_are_turned_off(ordering: BatchShop) -> None:
    shop = ordering.shop
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    shop.take("a.md")
    shop.set(context_batches="off")
    assert ask_for_due(shop.connection, shop.tools.settings) == 1
    shop.work()
    assert (shop.standing("a.md").state, ordering.waiting(), shop.model.batches.all) == ("complete", (0, 0, 0), [])


def test_a_long_document_is_asked_about_at_once_and_its_edit_in_a_batch_where_that_is_cheaper(ordering: BatchShop) -> None:
    shop = ordering.shop
    shop.set(context_batches="auto")
    parts = sections(40)
    shop.write("long.md", "# Long\n\n" + "\n".join(parts))
    shop.write("short.md", "# Short\n\nThe meadow is green.\n")
    shop.take("long.md", "short.md")
    assert (shop.standing("long.md").state, shop.standing("short.md").reason_code) == ("complete", "batch")
    shop.write("long.md", "# Long\n\n" + "\n".join(parts) + "\n## Last\n\nThe sea is blue.\n")
    shop.take("long.md")
    ordering.tick()
    assert ordering.waiting()[2] <= 4
    ordering.bring()
    assert shop.standing("long.md").state == shop.standing("short.md").state == "complete"
