"""Captions of pictures: cut out in the cage, bought over the real SDK from a stand-in, searched in the real database."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from typing import Any

import anyio
import pytest
from mcp import Client
from PIL import Image

from ingest_worker.catalogue import ledger
from ingest_worker.enrich.again import ask
from ingest_worker.enrich.caption_again import ask_captions
from ingest_worker.enrich.model import AnthropicModel
from ingest_worker.enrich.step import Enricher
from query_server.access import NOBODY, Principal
from query_server.server import DocwellServer
from shared.errors import PermanentError
from tests.anthropic_stand_in import KEY
from tests.anthropic_wire import says
from tests.api import running_api
from tests.asking import serving
from tests.conftest import Database
from tests.pictures import PdfPage, chart, colour_of, describe, encoded, pdf, picture_in
from tests.studio import MARK, WORDS, Studio


def test_a_picture_is_found_by_its_caption_with_its_page_and_says_who_wrote_it(studio: Studio, database: Database) -> None:
    studio.write("sales.png", encoded(chart("teal")))
    (report,) = studio.take("sales.png")
    assert (report.result, report.chunks) == ("partial", 1)
    with serving(database) as service:
        (found,) = service.search("bar chart teal ground")["results"]
    assert found["kind"] == "caption"
    assert found["text"] == f"{MARK}\nA bar chart on a teal ground shows four quarters."
    assert found["citation"] == "[sales.png, page 1, picture described by a model]"
    assert found["page_start"] == 1
    state, code, reason, served, _ = studio.state("sales.png")
    assert (state, code, served) == ("partial", "captions_only", 1)
    assert reason.startswith("Its only page has no text")
    assert reason.endswith("What is searchable are captions of its pictures, written by a model.")
    with serving(database) as service:
        assert service.search("claude-haiku-4-5")["outcome"] == "no_match"  # the line that names the model is no word of it


def test_a_page_without_text_is_shown_whole_and_pictures_on_others_by_themselves(studio: Studio, database: Database) -> None:
    logo = chart("golden", (300, 300))
    pages = [
        PdfPage(text=f"{WORDS} One.", pictures=[(logo, (500, 700, 72, 72)), (chart("teal", (900, 600)), (72, 200, 300, 200))]),
        PdfPage(text=f"{WORDS} Two.", pictures=[(logo, (500, 700, 72, 72)), (chart("orchid", (40, 40)), (72, 200, 300, 300))]),
        PdfPage(pictures=[(chart("crimson", (600, 800)), (0, 0, 612, 792))]),
    ]
    studio.write("report.pdf", pdf(*pages))
    (report,) = studio.take("report.pdf")
    assert report.result == "partial"
    asked = sorted((colour_of(picture_in(one)), "Place: page" in one.text, WORDS in one.text) for one in studio.model.requests)
    # The logo once, the picture that is too small never; what stands on the page goes with its pictures.
    assert asked == [("crimson", True, False), ("golden", True, True), ("teal", True, True)]
    assert (studio.standing("report.pdf").state, studio.standing("report.pdf").with_caption) == ("complete", 3)
    _, code, reason, _, _ = studio.state("report.pdf")
    assert code == "pages_without_text"
    assert reason.startswith("2 of 3 pages had text")
    assert reason.endswith("Captions of its pictures, written by a model, are searchable too.")
    with serving(database) as service:
        (first, *_) = service.search("crimson ground")["results"]
        assert first["citation"] == "[report.pdf, page 3, picture described by a model]"
        pieces = service.read(str(studio.id_of("report.pdf")), page_start=1, page_end=1)["pieces"]
    assert [piece["kind"] for piece in pieces] == ["text", "caption", "caption"]


def test_what_was_described_costs_nothing_again(studio: Studio) -> None:
    picture = chart("teal")
    first = pdf(PdfPage(text=WORDS, pictures=[(picture, (72, 200, 300, 200))]))
    studio.write("a.pdf", first)
    studio.take("a.pdf")
    assert len(studio.model.requests) == 1
    (paid,) = ledger.totals_of(studio.connection, studio.id_of("a.pdf"))
    assert (paid.kind, paid.calls, paid.money > 0) == ("caption", 1, True)
    before = studio.captions("a.pdf")

    studio.take("a.pdf")
    studio.write("copy.pdf", first)
    studio.write("a.pdf", pdf(PdfPage(text=f"{WORDS} More.", pictures=[(picture, (72, 300, 240, 160))])))
    studio.write("photo.jpg", encoded(picture, "JPEG"))
    studio.take("a.pdf", "copy.pdf", "photo.jpg")
    assert len(studio.model.requests) == 1
    assert studio.state("a.pdf")[3] == 2
    assert studio.captions("a.pdf") == studio.captions("copy.pdf") == studio.captions("photo.jpg") == before

    # Other readers may not be told what was written beside words that they may not read.
    studio.write("secret.pdf", first)
    studio.take("secret.pdf", readers=["group:board"], source="board")
    assert len(studio.model.requests) == 2
    studio.set(caption_model="claude-sonnet-5")
    ask_captions(studio.connection, [studio.id_of("copy.pdf")], max_attempts=1)
    studio.work()
    assert len(studio.model.requests) == 3
    assert studio.model.requests[-1].body["model"] == "claude-sonnet-5"


def test_a_thumbnail_is_shown_to_those_who_may_read_its_caption(studio: Studio, database: Database) -> None:
    studio.write("sales.png", encoded(chart("teal", (900, 600))))
    studio.take("sales.png", readers=["group:board"], source="board")
    document = studio.id_of("sales.png")
    board = Principal(name="b", namespaces=frozenset({"default"}), names=frozenset({"group:board"}))
    staff = replace(board, names=frozenset({"group:staff"}))
    with serving(database) as service:
        (found,) = service.search("teal ground", principal=board)["results"]
        assert (service.search("teal ground", principal=staff)["results"], found["kind"]) == ([], "caption")
        assert _is_small_and_teal(service.thumbnail(found["chunk_id"], principal=board))
        resource = anyio.run(_read_resource, DocwellServer(service), f"knowledge://thumbnails/{found['chunk_id']}")
        assert resource.mime_type == "image/jpeg"
        assert _is_small_and_teal(base64.b64decode(resource.blob))
        for stranger in (staff, NOBODY):
            with pytest.raises(PermanentError, match="no picture"):
                service.thumbnail(found["chunk_id"], principal=stranger)
    with running_api(database.url, tokens=["one"]) as api:
        address = f"/v1/documents/by-id/{document}/chunks/{found['chunk_id']}/thumbnail"
        assert api.client.get(address).status_code == 401
        shown = api.client.get(address, headers={"Authorization": "Bearer one"})
        assert (shown.status_code, shown.headers["content-type"], shown.headers["x-content-type-options"]) == (
            *(200, "image/jpeg"),
            "nosniff",
        )
        assert _is_small_and_teal(shown.content)
        other = api.client.get(address.replace(found["chunk_id"], str(document)), headers={"Authorization": "Bearer one"})
        assert (other.status_code, other.json()["code"]) == (404, "unknown_thumbnail")


async def _read_resource(server: DocwellServer, uri: str) -> Any:
    async with Client(server) as client:
        return (await client.read_resource(uri)).contents[0]


def _is_small_and_teal(jpeg: bytes) -> bool:
    with Image.open(io.BytesIO(jpeg), formats=("JPEG",)) as image:
        return max(image.size) == 256 and colour_of(image) == "teal"


def test_contexts_and_captions_do_not_know_of_each_other(studio: Studio) -> None:
    """A model that places passages is shown the document's own words, and captions are not asked about."""

    def answer(received: Any) -> Any:
        return describe(received) if received.last_content[0]["type"] == "image" else says("It stands in a report.")

    studio.model.otherwise = answer
    key, url = KEY, studio.model.url
    enricher = Enricher(
        open_model=lambda settings: AnthropicModel(model=settings.context_model, api_key=key, base_url=url, retries=0)
    )
    studio.set(context_prefixes="on")
    studio.tools = replace(studio.tools, enricher=enricher)
    studio.write("a.pdf", pdf(PdfPage(text=WORDS, pictures=[(chart("teal"), (72, 200, 300, 200))])))
    studio.take("a.pdf")
    asked = [received.last_content[0]["type"] for received in studio.model.requests]
    assert sorted(asked) == ["image", "text"]
    # Contexts that are asked for again leave captions where they are.
    studio.connection.execute("DELETE FROM docwell.chunk_context")
    ask(studio.connection, [studio.id_of("a.pdf")], max_attempts=1)
    studio.work()
    assert [received.last_content[0]["type"] for received in studio.model.requests][2:] == ["text"]
    assert "teal" not in studio.model.requests[-1].text
    rows = studio.connection.execute("SELECT kind, context IS NOT NULL FROM docwell.chunk ORDER BY kind").fetchall()
    assert rows == [("caption", False), ("text", True)]
    enricher.close()
