from __future__ import annotations

import time
from contextlib import suppress

import pytest

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.errors import Skipped
from ingest_worker.parse.html import TOO_DEEP
from ingest_worker.parse.parse import parse
from shared.documents import ElementKind, ParsedDocument
from shared.tokens import load_token_counter


def _page(body: str, head: str = "") -> ParsedDocument:
    return parse("page.html", f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>".encode())


def _told(body: str) -> list[tuple[str, str]]:
    return [(element.kind.value, element.text) for element in _page(body).elements]


def test_a_sentence_is_cited_by_its_headings_and_never_by_a_page_or_line() -> None:
    page = _page(
        f"<h1>Billing</h1><p>{'All of it is new. ' * 40}</p><h2>Cancelling <a class=headerlink>¶</a></h2>"
        f"<p>Refunds take five days. {'There are exceptions. ' * 20}</p>"
    )
    (chunk,) = [c for c in chunk_document(page, load_token_counter(), 64, 0) if "five days" in c.text]
    assert chunk.section == ("Billing", "Cancelling")
    assert (chunk.span.page_start, chunk.span.line_start) == (None, None)


def test_scripts_styles_navigation_and_hidden_text_are_left_out() -> None:
    body = (
        "<nav>Home | About</nav><script>var secret=1</script><style>p{}</style><p>Seen.<noscript>no</noscript></p>"
        "<p hidden>unseen</p><p style='display: none'>unseen</p><!-- unseen --><template>unseen</template>"
    )
    assert _told(body) == [("text", "Seen.")]


def test_a_page_that_is_all_navigation_is_not_empty() -> None:
    assert _told("<nav><ul><li><a href=x>Handbook</a></li></ul></nav>") == [("text", "- Handbook")]


def test_a_page_without_text_is_skipped_with_its_reason() -> None:
    with pytest.raises(Skipped) as caught:
        _page("<script>render()</script>")
    assert caught.value.code == "empty"


def test_lists_keep_their_order_depth_and_numbers() -> None:
    body = "<ol start=3><li>three<ul><li>inner<p>more</p></li></ul></li><li>four</li></ol>"
    assert _told(body) == [("text", "3. three\n  - inner\n    more\n4. four")]


def test_a_table_keeps_its_rows_spans_and_caption() -> None:
    body = (
        "<table><caption>Prices</caption><thead><tr><th>Plan<th>Price</tr></thead>"
        "<tr><td rowspan=2>Basic<td>5 €</tr><tr><td>6 € | yearly</tr><tr><td colspan=2>free</tr></table>"
    )
    assert _told(body) == [
        ("text", "Prices"),
        ("table", "| Plan | Price |\n| --- | --- |\n| Basic | 5 € |\n| Basic | 6 € \\| yearly |\n| free |  |"),
    ]


def test_a_table_that_only_makes_the_layout_is_text_in_its_order() -> None:
    body = "<table><tr><td><h1>News</h1><p>First.</p></td><td><table><tr><td>Second.</td></tr></table></td></tr></table>"
    assert _told(body) == [("heading", "News"), ("text", "First."), ("text", "Second.")]


def test_code_keeps_its_indentation_and_language() -> None:
    page = _page('<pre><code class="language-python">def f():\n    return 1\n</code></pre>')
    (element,) = page.elements
    assert (element.kind, element.language, element.text) == (ElementKind.CODE, "python", "def f():\n    return 1")


def test_inline_text_runs_on_and_breaks_break() -> None:
    assert _told("<p>pre<b>fix</b>ed <i>and</i>\n  so<br>on</p>loose<div>text</div>") == [
        ("text", "prefixed and so\non"),
        ("text", "loose"),
        ("text", "text"),
    ]


def test_the_title_of_the_page_is_the_documents_title() -> None:
    assert _page("<p>x", head="<title>Terms &amp; Conditions</title>").title == "Terms & Conditions"


@pytest.mark.parametrize(
    ("data", "codec", "text"),
    [
        ("<p>Grüße</p>".encode(), "utf-8", "Grüße"),
        ("<meta charset=utf-8><p>Grüße aus Köln</p>".encode("cp1252"), "cp1252", "Grüße aus Köln"),
        ("<meta charset='shift_jis'><p>日本</p>".encode("cp932"), "cp932", "日本"),
        ("\ufeff<p>Grüße</p>".encode("utf-16-le"), "utf-16", "Grüße"),
        ('<?xml version="1.0" encoding="iso-8859-7"?><html><p>αβγ δε</p></html>'.encode("iso8859-7"), "iso8859-7", "αβγ δε"),
        (b"<meta charset=nonsense><p>plain</p>", "utf-8", "plain"),
    ],
)
def test_the_codec_is_what_the_bytes_say_then_what_the_page_says(data: bytes, codec: str, text: str) -> None:
    page = parse("page.htm", data)
    assert (page.encoding, [element.text for element in page.elements]) == (codec, [text])


@pytest.mark.parametrize("tag", ["div", "b", "table><tr><td", "ul><li", "span"])
def test_a_tree_of_any_depth_gives_its_text_at_once(tag: str) -> None:
    began = time.thread_time()
    page = parse("deep.html", f"<p>before</p>{f'<{tag}>' * 30_000}needle<script>no()</script><p>after &amp; on</p>".encode())
    text = "\n".join(element.text for element in page.elements)
    assert [word in text for word in ("before", "needle", "after & on", "no()")] == [True, True, True, False]
    assert page.warnings in ((), (TOO_DEEP,))
    assert time.thread_time() - began < 5


@pytest.mark.parametrize(
    "text", ["<" * 200_000, "<p " * 100_000, "&" * 200_000, "<!--" * 50_000, "<a b='" + "x" * 300_000, "</" * 99_000]
)
def test_broken_pages_end_in_an_answer(text: str) -> None:
    began = time.thread_time()
    with suppress(Skipped):
        parse("broken.html", f"<p>word</p>{text}".encode())
    assert time.thread_time() - began < 5


def test_a_cell_that_claims_millions_of_columns_takes_none_of_them() -> None:
    ((_, text),) = _told("<table><tr><th>a<th>b</tr><tr><td colspan=99999999>x<td rowspan=99999999>y</tr></table>")
    assert len(text) < 1000


@pytest.mark.parametrize("nothing", ["\u200b", "\ufffd", "\ufffd\u200b"])
def test_a_text_of_characters_that_say_nothing_gives_no_chunk(nothing: str) -> None:
    counter = load_token_counter()
    for name in ("a.html", "a.tsv", "a.py", "a.md"):
        with suppress(Skipped):
            assert chunk_document(parse(name, nothing.encode()), counter) == ()
    assert [chunk.text for chunk in chunk_document(_page(f"<p>one</p><p>{nothing}</p>"), counter)] == [f"one\n\n{nothing}"]
