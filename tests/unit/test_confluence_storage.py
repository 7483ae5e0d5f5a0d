"""Storage format to Markdown. Elements as of confluence.atlassian.com/doc/confluence-storage-format-790796544.html."""

from __future__ import annotations

import itertools
import re
import time
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_worker.parse.encoding import Decoded
from ingest_worker.parse.markdown import parse_markdown
from ingest_worker.sources.confluence.storage import mentioned, to_markdown
from shared.documents import ElementKind


def convert(storage: str, **people: str) -> str:
    return to_markdown(storage, title="", people=people).strip("\n")


def macro(name: str, body: str = "", **parameters: str) -> str:
    told = "".join(f'<ac:parameter ac:name="{key}">{value}</ac:parameter>' for key, value in parameters.items())
    return f'<ac:structured-macro ac:name="{name}" ac:schema-version="1">{told}{body}</ac:structured-macro>'


def rich(body: str) -> str:
    return f"<ac:rich-text-body>{body}</ac:rich-text-body>"


def plain(text: str) -> str:
    return f"<ac:plain-text-body><![CDATA[{text}]]></ac:plain-text-body>"


def test_the_title_leads_and_the_pages_headings_stand_below_it() -> None:
    assert (
        to_markdown("<h1>Setup</h1><p>Text</p><h6>Deep</h6>", title="Run  book")
        == "# Run book\n\n## Setup\n\nText\n\n###### Deep\n"
    )


def test_lists_keep_their_nesting_and_their_numbers() -> None:
    storage = (
        "<ul><li>one<ul><li>in one<ol><li>deepest</li></ol></li></ul></li><li><p>two</p></li></ul>"
        '<ol start="3"><li>three</li><li>four</li></ol>'
    )
    assert convert(storage) == "- one\n  - in one\n    1. deepest\n- two\n\n3. three\n4. four"


def test_tasks_are_done_or_open_and_their_bookkeeping_is_left_out() -> None:
    storage = (
        "<ac:task-list><ac:task><ac:task-id>17</ac:task-id><ac:task-status>complete</ac:task-status><ac:task-body>Order</ac:task-body>"
        "</ac:task><ac:task><ac:task-id>18</ac:task-id><ac:task-status>incomplete</ac:task-status>"
        "<ac:task-body><span>Pay</span></ac:task-body></ac:task></ac:task-list>"
    )
    assert convert(storage) == "- [x] Order\n- [ ] Pay"


def test_a_merged_cell_stands_in_each_row_that_it_covers() -> None:
    storage = (
        "<table><tbody><tr><th>Host</th><th>Port</th><th>Use</th></tr><tr><td rowspan='2'>db</td><td>5432</td><td>SQL</td></tr>"
        "<tr><td colspan='2'>none</td></tr></tbody></table>"
    )
    assert convert(storage) == "| Host | Port | Use |\n| --- | --- | --- |\n| db | 5432 | SQL |\n| db | none |  |"


def test_a_table_without_a_header_row_gets_an_empty_one() -> None:
    storage = "<table><tbody><tr><th>Owner</th><td>Ann</td></tr><tr><th>Since</th><td>May</td></tr></tbody></table>"
    assert convert(storage) == "|  |  |\n| --- | --- |\n| Owner | Ann |\n| Since | May |"


def test_a_cells_blocks_are_one_line_and_its_bars_do_not_end_it() -> None:
    cell = f"<p>a|b</p><ul><li>x</li><li>y</li></ul>{macro('code', plain('one' + chr(10) + 'two'))}<h3>Head</h3>"
    assert convert(f"<table><tbody><tr><td>{cell}</td><td>2</td></tr></tbody></table>").endswith(
        "| a\\|b<br>- x<br>- y<br>one<br>two<br>**Head** | 2 |"
    )


def test_a_table_of_one_column_is_a_frame() -> None:
    assert convert("<table><tbody><tr><td><h2>In</h2><p>a frame</p></td></tr></tbody></table>") == "### In\n\na frame"


def test_code_keeps_its_lines_its_language_and_its_fence() -> None:
    code = 'def f():\n    return "&amp; ```"'
    assert convert(macro("code", plain(code), language="python", title="f.py")) == f"**f.py**\n\n````python\n{code}\n````"


def test_code_in_a_lists_item_stays_in_it() -> None:
    storage = f"<ol><li><p>Run</p>{macro('code', plain('make' + chr(10) + 'run'), language='bash')}</li><li>Wait</li></ol>"
    assert convert(storage) == "1. Run\n\n   ```bash\n   make\n   run\n   ```\n2. Wait"


@pytest.mark.parametrize(("name", "label"), [("info", "Info"), ("note", "Note"), ("tip", "Tip"), ("warning", "Warning")])
def test_panels_say_what_they_are(name: str, label: str) -> None:
    assert convert(macro(name, rich("<p>Mind</p><p>this</p>"))) == f"**{label}:** Mind\n\nthis"
    assert convert(macro(name, rich("<p>Mind</p>"), title="Head")) == f"**{label}: Head**\n\nMind"


def test_a_panel_of_the_cloud_editor_is_told_once() -> None:
    storage = (
        '<ac:adf-extension><ac:adf-node type="panel"><ac:adf-attribute key="panel-type">note</ac:adf-attribute><ac:adf-content>'
        "<p>Mind</p></ac:adf-content></ac:adf-node><ac:adf-fallback><div><p>Mind</p></div></ac:adf-fallback></ac:adf-extension>"
    )
    assert convert(storage) == "**Note:** Mind"


def test_an_expands_text_is_not_hidden() -> None:
    assert convert(macro("expand", rich("<p>inside</p>"), title="Details")) == "**Details**\n\ninside"


def test_a_status_a_date_and_an_emoticon_are_words_of_their_sentence() -> None:
    status = macro("status", colour="Green", title="DONE")
    storage = f"<p>It is {status} on <time datetime='2026-03-01'/> <ac:emoticon ac:name='tick'/></p>"
    assert convert(storage) == "It is [DONE] on 2026-03-01 ✅"
    storage = "<p><ac:emoticon ac:name='blue-star' ac:emoji-shortname=':rocket:' ac:emoji-fallback='🚀'/></p>"
    assert convert(storage) == "🚀"


def test_links_show_their_text_and_name_where_they_lead() -> None:
    page = '<ac:link><ri:page ri:space-key="OPS" ri:content-title="Restore" />{}</ac:link>'
    text = "<ac:plain-text-link-body><![CDATA[see <here>]]></ac:plain-text-link-body>"
    assert convert(f"<p>{page.format(text)}</p>") == "see <here> (OPS: Restore)"
    assert convert(f"<p>{page.format('')}</p>") == "OPS: Restore"
    same = '<ac:link><ri:page ri:content-title="Restore" /><ac:link-body><strong>restore</strong></ac:link-body></ac:link>'
    assert convert(f"<p>{same}</p>") == "**restore**"
    assert convert('<p><ac:link><ri:attachment ri:filename="plan 1.pdf" /></ac:link></p>') == "plan 1.pdf"
    assert convert('<p><a href="https://a.example/x?y=1&amp;z=2">there</a></p>') == "[there](https://a.example/x?y=1&z=2)"
    assert convert('<p><a href="https://a.example/x">https://a.example/x</a></p>') == "https://a.example/x"
    assert convert('<p><a href="javascript:alert(1)">no</a> <a href="#part">part</a></p>') == "no part"


def test_mentions_have_names_where_the_site_tells_them() -> None:
    mention = '<ac:link><ri:user ri:account-id="712020:ann" /></ac:link>'
    old = '<ac:link><ri:user ri:userkey="ff80" /></ac:link>'
    storage = f"<p>Ask {mention} or {old}</p>"
    assert mentioned(storage) == ("712020:ann", "ff80")
    assert to_markdown(storage, title="", people={"712020:ann": "Ann Lee"}) == "Ask @Ann Lee or @(name not shown)\n"


def test_images_have_their_words_and_their_file() -> None:
    assert convert('<ac:image ac:alt="Flow"><ri:attachment ri:filename="a 1.png" /></ac:image>') == "![Flow](<a 1.png>)"
    assert (
        convert('<ac:image><ri:url ri:value="https://x.example/i/b.png" /></ac:image>') == "![b.png](https://x.example/i/b.png)"
    )
    caption = '<ac:image><ri:attachment ri:filename="c.png"/><ac:caption><p>Figure one</p></ac:caption></ac:image>'
    assert convert(caption) == "![c.png](c.png) Figure one"


def test_layouts_give_their_cells_in_order() -> None:
    cells = "".join(f"<ac:layout-cell><p>{word}</p></ac:layout-cell>" for word in ("left", "right"))
    assert (
        convert(f'<ac:layout><ac:layout-section ac:type="two_equal">{cells}</ac:layout-section></ac:layout>') == "left\n\nright"
    )


def test_an_unknown_macro_keeps_its_body_and_names_its_file() -> None:
    assert convert(macro("mystery", rich("<p>kept</p>"), setting="42")) == "kept"
    assert convert(macro("view-file", file='<ri:attachment ri:filename="sheet.xlsx" />')) == "sheet.xlsx"
    assert convert(macro("toc", maxLevel="2")) == ""


def test_what_is_included_is_named_and_an_excerpt_is_text() -> None:
    page = '<ac:link><ri:page ri:content-title="Terms" /></ac:link>'
    include = f'<ac:structured-macro ac:name="include"><ac:parameter ac:name="">{page}</ac:parameter></ac:structured-macro>'
    assert convert(include) == "(Includes the page “Terms”)"
    assert convert(macro("excerpt", rich("<p>In short</p>"), hidden="true")) == "In short"


def test_text_that_looks_like_markdown_makes_no_structure() -> None:
    storage = "<p># no heading<br/>- no list<br/>3. no number<br/>---<br/>&gt; no quote<br/>```<br/>| no | table |</p>"
    parsed = parse_markdown(Decoded(text=convert(storage), codec="utf-8"), "text/markdown")
    assert {element.kind for element in parsed.elements} == {ElementKind.TEXT}
    assert "3\\. no number" in convert(storage)


def test_entities_are_characters_and_a_lone_ampersand_is_itself() -> None:
    assert convert("<p>caf&eacute;&nbsp;&amp;&nbsp;R&D &lt;x&gt; &hellip; &#8364; &#1;</p>") == "café & R&D <x> … €"


def test_what_is_not_well_formed_is_given_as_its_text() -> None:
    assert convert("<p>one <b>two</p> &nbsp; <![CDATA[a < b]]>").split("\n\n") == ["one", "two", "a < b"]


def test_what_is_nested_without_end_is_given_as_its_text() -> None:
    assert convert("<div>" * 5000 + "deep" + "</div>" * 5000) == "deep"


# Every word of a made-up page is another one, so that one that is lost is missed.
_TAGS = st.sampled_from(("strong", "em", "u", "s", "code", "span", "sub", "sup", "ac:inline-comment-marker"))
_WORD = "\x00"  # stands for the next word


def _in(tag: str, body: str) -> str:
    return f"<{tag}>{body}</{tag}>"


_INLINE = st.recursive(
    st.sampled_from(
        (
            _WORD,
            f"{_WORD}<br/>{_WORD}",
            f'<a href="https://x.example/">{_WORD}</a>',
            f'<ac:link><ri:page ri:content-title="{_WORD}"/></ac:link>',
            f'<ac:link ac:anchor="x"><ri:attachment ri:filename="{_WORD}"/><ac:link-body>{_WORD}</ac:link-body></ac:link>',
            f"<ac:link><ri:page ri:content-title='T'/>{_in('ac:plain-text-link-body', f'<![CDATA[{_WORD}]]>')}</ac:link>",
            macro("status", title=_WORD),
            f'<time datetime="2026-01-01"/>{_WORD}',
            f'<ac:image ac:alt="{_WORD}"><ri:attachment ri:filename="{_WORD}"/></ac:image>',
            f"<ac:placeholder>{_WORD}</ac:placeholder>",
        )
    ),
    lambda inner: st.one_of(st.builds(_in, _TAGS, inner), st.builds("{} {}".format, inner, inner)),
    max_leaves=4,
)
_BLOCK_TAGS = st.sampled_from(("p", "div", "h1", "h3", "blockquote", "pre", "li", "td"))


def _table(cells: list[str], across: int, down: int) -> str:
    written = [f"<td colspan='{across}' rowspan='{down}'>{cell}</td>" for cell in cells]
    rows = "".join(_in("tr", "".join(written[first : first + 2])) for first in range(0, len(written), 2))
    return f"<table><tbody>{rows}</tbody></table>"


def _tasks(bodies: list[str]) -> str:
    tasks = (f"<ac:task><ac:task-id>1</ac:task-id><ac:task-body>{body}</ac:task-body></ac:task>" for body in bodies)
    return f"<ac:task-list>{''.join(tasks)}</ac:task-list>"


_BLOCKS = st.recursive(
    st.one_of(st.builds(_in, _BLOCK_TAGS, _INLINE), _INLINE, st.just(macro("code", plain(f"{_WORD}\n  {_WORD}"), title=_WORD))),
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds(
            lambda name, body: macro(name, rich(body), title=_WORD), st.sampled_from(("info", "panel", "expand", "other")), inner
        ),
        st.builds(
            lambda tag, items: _in(tag, "".join(_in("li", item) for item in items)),
            st.sampled_from(("ul", "ol")),
            st.lists(inner, max_size=3),
        ),
        st.builds(_table, st.lists(inner, min_size=1, max_size=4), st.integers(1, 3), st.integers(1, 3)),
        st.builds(_tasks, st.lists(inner, max_size=2)),
        st.builds(
            lambda body: f"<ac:layout><ac:layout-section><ac:layout-cell>{body}</ac:layout-cell></ac:layout-section></ac:layout>",
            inner,
        ),
        st.builds(lambda body: macro("excerpt", rich(body)) + "&nbsp;" + escape("a & b"), inner),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(_BLOCKS)
def test_no_word_of_a_page_is_lost(storage: str) -> None:
    numbers = itertools.count()
    storage = re.sub(_WORD, lambda _: f"w{next(numbers)}w", storage)
    markdown = convert(storage)
    assert {f"w{number}w" for number in range(next(numbers))} <= set(re.findall(r"w\d+w", markdown))


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="<>/&;! [CDATA]pbrac:li\"'=x\n", max_size=200))
def test_no_input_breaks_it(storage: str) -> None:
    convert(storage)


@pytest.mark.parametrize(
    "storage",
    [
        f"<p>{'-' * 200_000}x</p>",
        f"<p>{'|:' * 100_000}x</p>",
        f"<!--{'<![CDATA[' * 50_000}-->",
        f"<p>{'<!--' * 50_000}",
    ],
    ids=["dashes", "bars", "CDATA in a comment", "open comments"],
)
def test_the_time_for_a_page_grows_with_its_length_and_no_faster(storage: str) -> None:
    began = time.process_time()
    convert(storage)
    assert time.process_time() - began < 5.0, "a quadratic pattern would take minutes"
