from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_worker.parse.encoding import decode
from ingest_worker.parse.markdown import parse_markdown
from shared.documents import ElementKind, ParsedDocument

_LINES = st.sampled_from(
    [
        "# Title", "## Part ##", "Setext", "===", "---", "text here", "  - item", "1. one", "> quote", "```python", "```", "~~~",
        "    indented", "| a | b |", "|---|---|", "| 1 | 2 |", "", "", "[ref]: http://x.test", "<div>", "</div>", "title: Front",
        "\tx", "####### no", "#", "***", "- [ ] task", "![i](x.png)",
    ]
)  # fmt: skip


def _parse(text: str) -> ParsedDocument:
    return parse_markdown(decode(text.encode()), "text/markdown")


@settings(max_examples=300, deadline=None)
@given(st.lists(_LINES, max_size=30))
def test_every_line_with_text_is_in_exactly_one_element(lines: list[str]) -> None:
    covered: list[int] = []
    for element in _parse("\n".join(lines)).elements:
        assert element.span.line_start is not None
        assert element.span.line_end is not None
        covered += range(element.span.line_start, element.span.line_end + 1)
    assert len(covered) == len(set(covered))
    assert {number for number, line in enumerate(lines, start=1) if line.strip()} <= set(covered)


def test_blocks_become_elements_with_their_lines() -> None:
    document = _parse("---\ntitle: The Plan\n---\n# Top\n\nText.\n\n| a |\n|---|\n| 1 |\n\n```py\nx\n```\n\nSub\n---\n")
    seen = [(e.kind, e.level, e.language, e.span.line_start, e.span.line_end) for e in document.elements]
    assert seen == [
        (ElementKind.TEXT, None, None, 1, 3),
        (ElementKind.HEADING, 1, None, 4, 4),
        (ElementKind.TEXT, None, None, 6, 6),
        (ElementKind.TABLE, None, None, 8, 10),
        (ElementKind.CODE, None, "py", 12, 14),
        (ElementKind.HEADING, 2, None, 16, 17),
    ]
    assert document.title == "The Plan"
    assert "title: The Plan" in document.elements[0].text


def test_the_first_heading_of_level_one_is_the_title() -> None:
    assert _parse("## Early\n\n# Real\n").title == "Real"


def test_forty_kilobytes_of_brackets_take_no_time() -> None:
    started = time.thread_time()
    assert _parse("[" * 40_000).elements
    assert time.thread_time() - started < 5
