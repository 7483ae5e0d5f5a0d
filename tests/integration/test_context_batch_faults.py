"""Batches of contexts that go wrong: lost orders, answers that stop or are unreadable; nothing is paid twice or lost."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import pytest

from infra.doctor_models import look_at_upkeep
from ingest_worker.api.metrics import Metrics
from ingest_worker.catalogue import batches
from ingest_worker.enrich.again import ask_for_due
from ingest_worker.enrich.batch_service import AnthropicBatches, Came
from shared.errors import ServiceUnavailable
from tests.anthropic_contexts import describe, passage_of
from tests.anthropic_stand_in import KEY
from tests.anthropic_wire import Fault, says
from tests.shop import BatchShop, Shop, sections


def _nobody_else(_shop: Shop) -> None:
    pass


def _a_stranger_with_as_many(shop: Shop) -> None:
    """Another program's batch of the same account, with as many requests."""
    count = int(shop.one("SELECT requests FROM docwell.context_batch")[0])
    shop.model.batches.order({f"stranger-{number}": {} for number in range(count)})
    shop.model.batches.cancel()


@pytest.mark.parametrize(
    ("fault", "meanwhile"),
    [
        (Fault(status=500), _nobody_else),
        (Fault(status=200, body=b"{"), _nobody_else),
        (Fault(status=0), _a_stranger_with_as_many),
    ],
)
def test_an_order_whose_answer_was_lost_is_neither_paid_twice_nor_lost(
    ordering: BatchShop, fault: Fault, meanwhile: Callable[[Shop], None]
) -> None:
    shop = ordering.shop
    shop.write("a.md", "# A\n\n" + "\n".join(sections(3)))
    shop.take("a.md")
    shop.model.batches.faults, shop.model.batches.arrives = [fault], meanwhile is _nobody_else
    ordering.tick()
    arrived = len(shop.model.batches.all)
    meanwhile(shop)
    ordering.tick()
    assert ordering.waiting()[1:] == (1, len(ordering.texts("a.md")))
    assert len(shop.model.batches.all) - arrived == (0 if meanwhile is _nobody_else else 1), "nothing is ordered again meanwhile"
    if meanwhile is not _nobody_else:
        ordering.tick(arrives_seconds=0.0)  # the list does not show it: it did not arrive
    ordering.bring()
    assert ordering.asked() == ordering.texts("a.md")
    assert ordering.paid() == len(ordering.asked())
    assert all(context for _, context in shop.served("a.md"))


def test_a_process_that_dies_between_writing_down_and_sending_loses_nothing(ordering: BatchShop) -> None:
    shop = ordering.shop
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    shop.take("a.md")

    class Dies(AnthropicBatches):
        def order(self, requests: Any) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ordering.tick(open_service=lambda _: Dies(model="m", api_key=KEY, base_url=shop.model.url))
    ordering.tick()
    assert (shop.model.batches.all, ordering.waiting()) == ([], (0, 1, 1))
    ordering.tick(arrives_seconds=0.0)
    ordering.bring()
    assert (ordering.paid(), len(ordering.asked())) == (1, 1)
    assert shop.standing("a.md").state == "complete"


def test_answers_that_stop_coming_in_the_middle_are_counted_once(ordering: BatchShop) -> None:
    shop = ordering.shop
    for name in ("a.md", "b.md", "c.md"):
        shop.write(name, f"# {name}\n\n" + "\n".join(sections(2)).replace("Sentence", f"Sentence of {name}"))
    shop.take("a.md", "b.md", "c.md")
    ordering.tick()
    shop.model.batches.finish(shop.model)

    class Stops(AnthropicBatches):
        def answers(self, service_id: str) -> Generator[Came]:
            for number, came in enumerate(super().answers(service_id)):
                if number == 3:
                    raise ServiceUnavailable("cut off")
                yield came
                yield came  # and some come twice

    stops = partial(Stops, model="claude-haiku-4-5", api_key=KEY, base_url=shop.model.url)
    ordering.tick(open_service=lambda _: stops(), answers_at_once=2)
    assert 1 <= ordering.paid() < len(ordering.asked())
    ordering.tick()
    shop.work()
    assert ordering.paid() == len(ordering.asked()) == len(ordering.texts("a.md", "b.md", "c.md"))
    assert all(shop.standing(name).state == "complete" for name in ("a.md", "b.md", "c.md"))


@pytest.mark.parametrize("end", ["errored", "expired"])
def test_what_a_batch_does_not_bring_is_told_and_ordered_again_after_a_rest(ordering: BatchShop, end: str) -> None:
    shop = ordering.shop
    shop.write("a.md", "# A\n\n" + "\n".join(sections(4)))
    shop.take("a.md")
    ordering.tick()
    if end == "errored":
        shop.model.otherwise = lambda received: (
            Fault(status=400, message="no") if "m2n9." in passage_of(received) else describe(received)
        )
        ordering.bring()
    else:
        shop.model.batches.expire()
        ordering.tick()
        shop.work()
    lacking = {text for text, context in shop.served("a.md") if context is None}
    assert lacking
    assert (len(lacking) == len(ordering.texts("a.md"))) == (end != "errored")
    standing = shop.standing("a.md")
    assert (standing.reason_code, standing.failed) == (
        "passages_failed",
        {"request_refused" if end == "errored" else end: len(lacking)},
    )
    assert standing.next_try is not None
    assert ordering.paid() == len(ordering.texts("a.md")) - len(lacking)
    ordering.tick()
    assert len(shop.model.batches.all) == 1
    shop.assert_whole()

    shop.model.otherwise = describe
    shop.connection.execute("UPDATE docwell.enrichment SET due = now()")
    shop.connection.execute("UPDATE docwell.chunk_context SET created_at = now() - interval '2 hours' WHERE context IS NULL")
    assert ask_for_due(shop.connection, shop.tools.settings) == 1
    shop.work()
    ordering.tick()
    assert len(shop.model.batches.all[-1].requests) == len(lacking)
    ordering.bring()
    assert shop.standing("a.md").state == "complete"


def test_a_line_that_cannot_be_read_costs_the_others_nothing(ordering: BatchShop) -> None:
    shop = ordering.shop
    shop.write("a.md", "# A\n\n" + "\n".join(sections(4)))
    shop.take("a.md")
    ordering.tick()
    shop.model.otherwise = says("It stands\u2028in a tale.")
    shop.model.batches.finish(shop.model)
    shop.model.batches.all[0].spoilt = ("{", '{"custom_id": "NAME", "result": {"type": "succeeded", "message": null}}')
    ordering.tick()
    shop.work()
    standing = shop.standing("a.md")
    assert (standing.chunks - standing.with_context, standing.failed) == (2, {"no_answer": 1, "bad_answer": 1})
    assert ordering.waiting() == (0, 0, 0)


def _told(shop: Shop) -> str:
    """What the doctor says of batches."""
    found = look_at_upkeep(shop.connection, shop.tools.settings)
    return next(one.finding for one in found if one.check == "context batches")


def _metrics(shop: Shop) -> str:
    return Metrics(shop.tools.pool, shop.root).text().decode()


@pytest.mark.parametrize("fault", [Fault(status=529), Fault(status=404, message="no batches")])
def test_an_order_that_is_refused_is_free_to_be_ordered_again_and_says_why(ordering: BatchShop, fault: Fault) -> None:
    shop = ordering.shop
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    shop.take("a.md")
    ordering.tick(open_service=lambda _: AnthropicBatches(model="m", api_key=None, base_url=None))
    assert "ANTHROPIC_API_KEY" in (shop.standing("a.md").reason or "")
    shop.model.batches.faults = [fault]
    ordering.tick()
    assert ordering.waiting() == (1, 0, 0)
    assert fault.message in (shop.standing("a.md").reason or "")
    assert fault.message in _told(shop)
    assert "docwell_context_batch_failing 1.0" in _metrics(shop)
    shop.connection.execute("UPDATE docwell.enrichment SET order_due = now()")
    ordering.tick()
    assert "1 passages are in 1 batches" in _told(shop)
    said = _metrics(shop)
    assert "docwell_context_batch_failing 0.0" in said
    assert "docwell_context_batch_requests 1.0" in said
    assert batches.waiting(shop.connection).money > 0
    ordering.tick(open_service=lambda _: AnthropicBatches(model="m", api_key=KEY, base_url="http://127.0.0.1:9"))
    assert "cannot be reached" in _told(shop), "of those under way nothing is heard"
    ordering.bring()
    assert ordering.paid() == 1


def test_answers_that_were_thrown_away_are_ordered_again(ordering: BatchShop) -> None:
    shop = ordering.shop
    shop.write("a.md", "# A\n\nThe meadow is green.\n")
    shop.take("a.md")
    ordering.tick()
    shop.model.batches.expire()
    shop.model.batches.all[0].archived_at = shop.model.batches.all[0].ended_at
    ordering.tick()
    assert len(shop.model.batches.all) == 2
    ordering.bring()
    assert shop.standing("a.md").state == "complete"
