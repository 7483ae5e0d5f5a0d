"""Captions that could not be had, or are not wanted any more: no document waits or fails for them, and they go with it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from ingest_worker.catalogue import captions
from ingest_worker.enrich.caption_again import ask_captions, ask_for_due_captions
from ingest_worker.erasure import erase
from tests.anthropic_wire import Fault, says
from tests.pictures import PdfPage, chart, colour_of, describe, encoded, pdf, picture_in
from tests.studio import WORDS, Studio, captioner_for


def test_one_picture_that_fails_leaves_the_others_and_is_asked_for_again_without_a_new_version(studio: Studio) -> None:
    def but_teal(received: Any) -> Any:
        return Fault(status=400, message="no") if colour_of(picture_in(received)) == "teal" else describe(received)

    studio.model.otherwise = but_teal
    pages = [PdfPage(text=WORDS, pictures=[(chart(name), (72, 200, 300, 200))]) for name in ("crimson", "teal", "golden")]
    studio.write("a.pdf", pdf(*pages))
    (report,) = studio.take("a.pdf")
    assert report.result == "indexed"
    found = studio.standing("a.pdf")
    assert (found.state, found.with_caption, found.reason_code) == ("partial", 2, "pictures_failed")
    assert found.next_try is not None

    assert ask_for_due_captions(studio.connection, studio.tools.settings) == 0
    studio.model.otherwise = describe
    studio.connection.execute("UPDATE docwell.captioning SET due = now()")
    asked = len(studio.model.requests)
    assert ask_for_due_captions(studio.connection, studio.tools.settings) == 1
    (again,) = studio.work()
    assert (again.result, len(studio.model.requests) - asked) == ("indexed", 1)
    assert [text.split()[5] for text in studio.captions("a.pdf")] == ["crimson", "teal", "golden"]
    assert studio.state("a.pdf")[3:] == (1, 1)
    assert (studio.standing("a.pdf").state, studio.standing("a.pdf").next_try) == ("complete", None)
    assert ask_for_due_captions(studio.connection, studio.tools.settings) == 0


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Fault(status=529), "unavailable"),
        (Fault(status=429, retry_after=90), "rate_limit"),
        (Fault(status=0), "unreachable"),
        (Fault(status=401), "key_refused"),
        (Fault(status=402), "unpaid"),
        (Fault(status=200, body=b"{"), "bad_response"),
        (Fault(status=200, body=b'{"error": {"message": "slow down"}}'), "bad_response"),
        (says("", stop_reason="refusal"), "pictures_failed"),
        (says("???"), "pictures_failed"),
    ],
)
def test_what_the_service_does_not_give_fails_no_document(studio: Studio, answer: Any, code: str) -> None:
    studio.model.otherwise = answer
    studio.write("a.pdf", pdf(PdfPage(text=WORDS, pictures=[(chart("teal"), (72, 200, 300, 200))])))
    studio.write("b.png", encoded(chart("golden")))
    reports = studio.take("a.pdf", "b.png")
    assert sorted(report.result for report in reports) == ["indexed", "needs_ocr"]
    assert (studio.standing("a.pdf").state, studio.standing("a.pdf").reason_code) == ("none", code)
    assert studio.standing("a.pdf").next_try is not None

    studio.model.otherwise = describe
    studio.tools = replace(studio.tools, captioner=captioner_for(studio.model))
    studio.connection.execute("UPDATE docwell.captioning SET due = now()")
    assert ask_for_due_captions(studio.connection, studio.tools.settings) == 2
    studio.work()
    assert (len(studio.captions("a.pdf")), len(studio.captions("b.png"))) == (1, 1)
    assert studio.state("b.png")[:2] == ("partial", "captions_only")


def test_what_one_model_said_stays_until_another_one_has_said_something(studio: Studio) -> None:
    picture = (chart("teal"), (72, 200, 300, 200))
    studio.write("a.pdf", pdf(PdfPage(text=WORDS, pictures=[picture])))
    studio.take("a.pdf")
    studio.set(caption_model="claude-sonnet-5")
    studio.model.otherwise = Fault(status=529)
    studio.write("a.pdf", pdf(PdfPage(text=f"{WORDS} More.", pictures=[picture])))
    studio.take("a.pdf")
    assert studio.captions("a.pdf") == ["A bar chart on a teal ground shows four quarters."]
    assert (studio.standing("a.pdf").state, studio.standing("a.pdf").with_caption) == ("none", 1)


def test_budgets_stop_captions_and_nothing_else(studio: Studio) -> None:
    studio.set(enrich_daily_tokens=2_500, enrich_concurrency=1)
    pages = [PdfPage(text=WORDS, pictures=[(chart(name), (72, 200, 300, 200))]) for name in ("crimson", "teal", "golden")]
    studio.write("a.pdf", pdf(*pages))
    (report,) = studio.take("a.pdf")
    found = studio.standing("a.pdf")
    assert (report.result, found.state, found.reason_code) == ("indexed", "partial", "daily_budget")
    assert 0 < len(studio.model.requests) < 3
    assert found.next_try is not None
    with pytest.raises(ValueError, match="a budget in money needs the price of other: input and output"):
        studio.set(caption_model="other", enrich_daily_money=Decimal(1))


def test_nothing_is_cut_out_or_sent_where_captions_are_off_or_the_source_keeps_its_text(studio: Studio) -> None:
    studio.may_leave = False
    studio.write("a.png", encoded(chart("teal")))
    assert [report.result for report in studio.take("a.png")] == ["needs_ocr"]
    studio.may_leave = True
    studio.set(vision_captions="off")
    studio.write("b.png", encoded(chart("golden")))
    assert [report.result for report in studio.take("b.png")] == ["needs_ocr"]
    assert studio.model.requests == []
    assert captions.standing(studio.connection, studio.id_of("b.png")) is None

    # A person asks for those of documents that were taken without; turned off again, what was bought stays.
    studio.set(vision_captions="on")
    assert len(ask_captions(studio.connection, [studio.id_of("b.png")], max_attempts=1)) == 1
    studio.work()
    assert len(studio.captions("b.png")) == 1
    studio.set(vision_captions="off")
    studio.take("b.png", readers=["group:staff"])
    assert (len(studio.captions("b.png")), len(studio.model.requests)) == (1, 1)


def test_decoration_is_no_passage_and_is_asked_about_once(studio: Studio) -> None:
    studio.model.otherwise = says("DECORATION.")
    studio.write("a.pdf", pdf(PdfPage(text=WORDS, pictures=[(chart("teal"), (72, 200, 300, 200))])))
    studio.take("a.pdf")
    found = studio.standing("a.pdf")
    assert (found.state, found.with_caption, found.decoration, studio.captions("a.pdf")) == ("complete", 0, 1, [])
    ask_captions(studio.connection, [studio.id_of("a.pdf")], max_attempts=1)
    studio.work()
    assert len(studio.model.requests) == 1


def test_an_erasure_takes_captions_and_thumbnails_also_those_that_were_lent(studio: Studio) -> None:
    picture = chart("teal", (900, 600))
    studio.write("a.pdf", pdf(PdfPage(text=f"{WORDS} Of a.", pictures=[(picture, (72, 200, 300, 200))])))
    studio.take("a.pdf")
    studio.write("b.pdf", pdf(PdfPage(text=f"{WORDS} Of b.", pictures=[(picture, (72, 200, 300, 200))])))
    studio.write("c.jpg", encoded(picture, "JPEG"))
    studio.take("b.pdf", "c.jpg")
    assert len(studio.model.requests) == 1
    image = studio.one("SELECT image FROM docwell.thumbnail LIMIT 1")[0]
    assert bytes(image).startswith(b"\xff\xd8")
    (studio.root / "a.pdf").unlink()
    receipt = erase(studio.connection, studio.id_of("a.pdf"), max_bytes=10_000_000)
    assert (receipt.removed.captions, receipt.removed.thumbnails, receipt.queued) == (3, 1, 2)
    for table in ("caption", "thumbnail"):
        assert studio.one(f"SELECT count(*) FROM docwell.{table}")[0] == 0
    assert studio.captions("b.pdf") == []
    assert studio.one("SELECT searchable FROM docwell.document WHERE path = 'c.jpg'")[0] is False
    assert studio.one("SELECT count(*) FROM docwell.chunk WHERE kind = 'caption'")[0] == 0

    # They get captions of their own.
    studio.work()
    assert len(studio.model.requests) == 2
    assert (len(studio.captions("b.pdf")), len(studio.captions("c.jpg"))) == (1, 1)


def test_a_deleted_document_takes_its_captions_along_and_a_changed_one_those_of_pictures_that_went(studio: Studio) -> None:
    studio.set(keep_versions=1)
    one, two = chart("teal"), chart("golden")
    studio.write("a.pdf", pdf(PdfPage(text=WORDS, pictures=[(one, (72, 200, 300, 200)), (two, (72, 450, 300, 200))])))
    studio.take("a.pdf")
    studio.write("a.pdf", pdf(PdfPage(text=f"{WORDS} More.", pictures=[(two, (72, 450, 300, 200))])))
    studio.take("a.pdf")
    assert [text.split()[5] for text in studio.captions("a.pdf")] == ["golden"]
    studio.write("a.pdf", pdf(PdfPage(text=f"{WORDS} Still more.", pictures=[(two, (72, 450, 300, 200))])))
    studio.take("a.pdf")
    assert len(studio.model.requests) == 2
    assert studio.one("SELECT count(*) FROM docwell.caption")[0] == studio.one("SELECT count(*) FROM docwell.thumbnail")[0] == 1
    (studio.root / "a.pdf").unlink()
    studio.set(delete_grace_seconds=0)
    studio.take("a.pdf")
    for table in ("caption", "captioning", "thumbnail", "chunk"):
        assert studio.one(f"SELECT count(*) FROM docwell.{table}")[0] == 0
