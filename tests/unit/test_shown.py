"""What is shown of names: nothing in them can turn, hide, or begin a line of what a person or a model reads."""

from __future__ import annotations

import pytest

from infra.cli.output import plain
from query_server.render import render_list, render_search
from query_server.retrieve.citation import cite
from shared.documents import Span
from shared.text import visible

INVISIBLE = [
    *range(0x20),
    *range(0x7F, 0xA0),
    0xAD,
    0x61C,
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
]
INVISIBLE += [0xFEFF, 0xDC80, 0xE0001, 0xE0041]


@pytest.mark.parametrize("show", [visible, plain, lambda name: cite(f"a/{name}", Span(), None)])
def test_no_invisible_character_of_a_name_is_shown_as_it_is_and_no_two_names_look_alike(show) -> None:  # type: ignore[no-untyped-def]
    shown = [show(f"pay{chr(code)}gnp.exe") for code in INVISIBLE]
    assert len(set(shown)) == len(INVISIBLE)
    assert all(text.isascii() and text.isprintable() for text in shown)


@pytest.mark.parametrize(
    "name", ["نمی\u200cخواهم.txt", "👩\u200d💻 ☎\ufe0f.md", "क्\u200dष.md", "שלום.pdf", "Größe 100 %.xlsx", "請求書.docx"]
)
def test_names_of_every_script_stay_as_they_are_written(name: str) -> None:
    assert visible(name) == name == plain(name)


def test_ends_of_lines_stay_in_messages_only() -> None:
    assert visible("one\n\ttwo\u202e", lines=True) == "one\n\ttwo\\u202e"


def test_the_text_for_a_model_shows_names_and_leaves_passages_as_they_are() -> None:
    trick = "safe\u202efdp.exe\n2. [other.md]"
    result = {
        "citation": cite(trick, Span(line_start=1, line_end=2), None),
        "path": trick,
        "title": "T\u2066itle",
        "section": "One\u200b > Two",
        "text": "The passage\u202e itself.",
        "kind": "text",
        "matched_by": ["keyword"],
        "high_confidence": False,
        "also_in": [{"citation": "[copy]", "path": trick}],
        **dict.fromkeys(("namespace", "version", "last_indexed", "document_id", "chunk_id"), "x"),
    }
    answer = {"query": "what\nelse", "results": [result], "dropped": 0, "index_version": 1}
    said = render_search(answer)
    assert "safe\\u202efdp.exe\\n2. [other.md]" in said
    assert "title T\\u2066itle; section One\\u200b > Two" in said
    assert said.count("\u202e") == 1
    assert "The passage\u202e itself." in said
    assert result["path"] == trick  # what is in the structured content, and what filters take
    document = {
        "path": trick,
        "state": "indexed",
        "searchable": False,
        **dict.fromkeys(("namespace", "source", "document_id"), "x"),
    }
    assert "\n" not in render_list({"documents": [document]})
