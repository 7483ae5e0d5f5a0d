"""Good files of each format, made by hand and rich in what their parsers look at, for spoiling."""

from __future__ import annotations

import io
import json
from email.message import EmailMessage

from PIL import Image

from tests.encrypting import odf_aes, odf_blowfish, odf_whole, xls_rc4, xls_rc4_cryptoapi, xls_xor
from tests.making import STYLES, cells, docx, epub, msg, odf, paragraph, pptx, relations, shape, word_part, xls, xlsx
from tests.unit.test_chunk_symbols import _PROGRAMS
from tests.unit.test_parse_pdf import make_pdf

PASSWORD = "s3cret"
"""Of the encrypted ones."""
_MARKDOWN = (
    b"---\ntitle: Plan\n---\n# Top\n\nText with `code` and [a link](x).\n\n1. One\n   - two\n\n   ```py\n   x = 1\n   ```\n\n"
    b"| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n\nSub\n---\n\n<Tabs>\n# In\n</Tabs>\n"
)
_PLAIN = "One line.\nAnother – größer.\n\f日本語の文。次の文。\n- item\n  - nested\n\n1. First. 2. Second.\n"
_HTML = (
    b"<!DOCTYPE html><html lang=en><head><meta charset=utf-8><title>Plan</title><base href=/x></head><body><nav>menu</nav>"
    b"<main><h1>Top <a class=headerlink>#</a></h1><p>Text<br>more <b>bold</b> &amp; &#x4e2d; <img alt=pic src=y></p>"
    b"<ul><li>one<ol start=3><li>two</ol></ul><pre><code class=language-py>x = 1\n</code></pre><dl><dt>a<dd>b</dl>"
    b"<table><caption>T</caption><tr><th colspan=2>a<th>b<tr><td rowspan=2>1<td>2<td><table><tr><td>in</table></table>"
    b"<template>t</template><svg><text>s</text></svg><math><mi>x</mi></math><details><summary>s</summary>d</details>"
    b"<script type=application/json>{}</script></main></body></html>"
)
_RTF = (
    rb"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Cyr;}{\f2\fcharset128 MS;}}"
    rb"{\stylesheet{\s0 Normal;}{\s1\outlinelevel0 Kop een;}{\s2 heading 2;}}{\info{\title Plan}}{\header\pard ACME\par}"
    rb"\pard\s1 Billing\par\pard Caf\'e9 {\f1\'cf\'f0} {\f2\'82\'a0\'83A} \u8364?5 {\uc2\u20320\'c4\'e3}\par"
    rb"{\listtext\'b7\tab}two\par Claim{\footnote\pard the law}{\field{\*\fldinst HYPERLINK x}{\fldrslt link}}{\v hidden}\par"
    rb"\trowd\cellx100\pard\intbl Plan\cell Price\cell\row{\pict\pngblip 89504e47}{\object{\objdata 0105}}\bin3 abc\par}"
)
_SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><title>Plan</title><desc>d</desc><text>one<tspan>two</tspan></text></svg>'


def good_files() -> dict[str, list[tuple[str, bytes]]]:
    """Files by the parser that reads them: their names and bytes."""
    return {
        "pdf": [("a.pdf", make_pdf([["Hello first", "line two"], [], ["Hello third"]], "My Report"))],
        "markdown": [("a.md", _MARKDOWN), ("a.mdx", _MARKDOWN)],
        "plain": [("a.txt", _PLAIN.encode(codec)) for codec in ("utf-8", "utf-16", "gb18030")],
        "source": [(f"a.{_ENDINGS.get(language, language)}", text.encode()) for language, text, _ in _PROGRAMS],
        "html": [("a.html", _HTML)],
        "delimited": [("a.csv", b'name,"sold, all"\nann,5\n"b\nb",6\n\n#x\n'), ("a.tsv", "größe\tb\n1\t2\n".encode("utf-16"))],
        "word": [("a.docx", _word())],
        "slides": [("a.pptx", _slides())],
        "sheets": [("a.xlsx", _sheets())],
        "workbook": [("a.xls", xls([["name", "sold"], [], ["ann", 5.0]])), ("a.ods", odf("spreadsheet", _ODS))],
        "open_document": [("a.odt", _open_text()), ("a.odp", odf("presentation", _ODP))],
        "rich_text": [("a.rtf", _RTF)],
        "epub": [("a.epub", epub({"a": "<h1>One</h1><p>x</p>", "b": "<p>y<img src=z></p>"}, titles={"a": "One", "b": "Two"}))],
        "mail": [("a.eml", _mail())],
        "outlook": [("a.msg", _outlook())],
        "notebook": [("a.ipynb", _notebook())],
        "encrypted": _encrypted(),
        "picture": [
            ("a.svg", _SVG),
            *((f"a.{kind}", _picture(kind)) for kind in ("png", "jpeg", "gif", "bmp", "tiff", "webp")),
            ("b.tif", _scan()),
        ],
    }


def _encrypted() -> list[tuple[str, bytes]]:
    text, book = odf("text", "<text:p>secret</text:p>"), xls([["secret", 5.0]])
    return [
        *((f"{number}.odt", lock(text, PASSWORD)) for number, lock in enumerate((odf_aes, odf_blowfish, odf_whole))),
        *((f"{number}.xls", lock(book, PASSWORD)) for number, lock in enumerate((xls_rc4, xls_rc4_cryptoapi, xls_xor))),
    ]


_ENDINGS = {
    "python": "py", "rust": "rs", "ruby": "rb", "javascript": "js", "typescript": "ts", "csharp": "cs", "haskell": "hs",
    "perl": "pl", "fortran": "f90", "elixir": "ex", "kotlin": "kt", "cobol": "cob", "commonlisp": "lisp", "clojure": "clj",
}  # fmt: skip


def _word() -> bytes:
    row = "<w:tr><w:tc><w:tcPr><w:gridSpan w:val='2'/><w:vMerge w:val='restart'/></w:tcPr>{}</w:tc><w:tc>{}</w:tc></w:tr>"
    table = f"<w:tbl>{row.format(paragraph('a'), paragraph('b'))}{row.format(paragraph('c'), paragraph('d'))}</w:tbl>"
    box = (
        "<w:r><w:pict><v:textbox><w:txbxContent><w:p><w:r><w:t>boxed</w:t></w:r></w:p></w:txbxContent></v:textbox></w:pict></w:r>"
    )
    refs = "<w:r><w:footnoteReference w:id='2'/></w:r><w:r><w:commentReference w:id='0'/></w:r>"
    listed = "<w:p><w:pPr><w:numPr><w:ilvl w:val='1'/><w:numId w:val='1'/></w:numPr></w:pPr><w:r><w:t>item</w:t></w:r></w:p>"
    maths = (
        "<w:p><m:oMath><m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f></m:oMath></w:p>"
    )
    changed = "<w:p><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del></w:p>"
    body = paragraph("Top", style="Kop1") + paragraph("text", extra=refs + box) + listed + table + maths + changed
    numbers = (
        "<w:abstractNum w:abstractNumId='0'><w:lvl w:ilvl='1'><w:numFmt w:val='decimal'/><w:lvlText w:val='%1.%2'/></w:lvl>"
        "</w:abstractNum><w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num>"
    )
    return docx(
        body + "<w:altChunk r:id='rId5'/>",
        parts={
            "word/styles.xml": STYLES,
            "word/footnotes.xml": word_part("footnotes", f"<w:footnote w:id='2'>{paragraph('the law')}</w:footnote>"),
            "word/comments.xml": word_part("comments", f"<w:comment w:id='0' w:author='Ann'>{paragraph('why?')}</w:comment>"),
            "word/numbering.xml": word_part("numbering", numbers),
            "word/chunk.html": _HTML,
        },
        related=[
            ("styles", "styles.xml"),
            ("footnotes", "footnotes.xml"),
            ("comments", "comments.xml"),
            ("numbering", "numbering.xml"),
            ("aFChunk", "chunk.html"),
        ],
    )


def _slides() -> bytes:
    row = "<a:tr><a:tc gridSpan='2'><a:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></a:txBody></a:tc></a:tr>"
    table = f"<a:tbl>{row.format('x')}{row.format('y')}</a:tbl>"
    table = f"<p:graphicFrame><a:graphic><a:graphicData>{table}</a:graphicData></a:graphic></p:graphicFrame>"
    notes = f'<p:notes xmlns:p="p" xmlns:a="a"><p:cSld><p:spTree>{shape("say this", kind="body")}</p:spTree></p:cSld></p:notes>'
    return pptx(
        [shape("Costs", kind="title") + shape("We grow.", "more") + f"<p:grpSp>{shape('in')}</p:grpSp>", table],
        parts={"ppt/notesSlides/notesSlide1.xml": notes},
        related={1: [("notesSlide", "../notesSlides/notesSlide1.xml")]},
    )


def _sheets() -> bytes:
    formats = (
        "<numFmts><numFmt numFmtId='200' formatCode='0.0%'/></numFmts><cellXfs><xf numFmtId='0'/><xf numFmtId='200'/></cellXfs>"
    )
    odd = (
        "<row r='4'><c r='A4' s='1'><v>0.5</v></c><c r='B4' t='s'><v>0</v></c><c r='C4' t='b'><v>1</v></c>"
        "<c t='e'><v>#N/A</v></c></row>"
    )
    return xlsx(
        {"Data": cells(1, "name", "sold") + cells(2, "ann", 5) + odd, "More": cells(7, "x")},
        styles=formats,
        strings=["shared"],
        states={"More": "hidden"},
        parts={
            "xl/worksheets/_rels/sheet1.xml.rels": relations(("comments", "../comments1.xml")),
            "xl/comments1.xml": (
                "<comments><authors><author>Ann</author></authors><commentList><comment ref='B7' authorId='0'><text>"
                "<r><t>ask</t></r></text></comment></commentList></comments>"
            ),
        },
    )


_ODS = (
    '<table:table table:name="D"><table:table-row table:number-rows-repeated="2"><table:table-cell office:value-type="string">'
    '<text:p>a</text:p></table:table-cell><table:table-cell table:number-columns-repeated="3" office:value-type="float" '
    'office:value="5"><text:p>5</text:p></table:table-cell></table:table-row></table:table>'
)
_ODP = (
    '<draw:page><draw:frame presentation:class="title"><draw:text-box><text:p>Costs</text:p></draw:text-box></draw:frame>'
    "<draw:frame><draw:image/></draw:frame><presentation:notes><draw:frame><draw:text-box><text:p>say</text:p></draw:text-box>"
    "</draw:frame></presentation:notes></draw:page><draw:page/>"
)


def _open_text() -> bytes:
    note = (
        "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>law</text:p></text:note-body></text:note>"
    )
    cell = '<table:table-cell table:number-columns-repeated="2"><text:p>k</text:p></table:table-cell>'
    return odf(
        "text",
        f'<text:h text:outline-level="1">Top</text:h><text:p>Claim{note}<text:s text:c="2"/>on</text:p>'
        "<text:list><text:list-item><text:p>one</text:p></text:list-item></text:list>"
        f"<table:table><table:table-row>{cell}</table:table-row></table:table>"
        '<text:p><draw:frame><draw:object xlink:href="./Object 1"/></draw:frame></text:p>',
        parts={
            "meta.xml": '<m xmlns:dc="d"><dc:title>The plan</dc:title></m>',
            "styles.xml": '<s xmlns:style="st" xmlns:text="t"><style:header><text:p>ACME</text:p></style:header></s>',
            "Object 1/content.xml": '<c xmlns:table="t"><table:table><table:table-row/></table:table></c>',
        },
    )


def _mail() -> bytes:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Ann Müller <ann@example.org>", "bob@example.org", "The offer für Bob"
    mail["Date"] = "Tue, 05 Mar 2024 09:30:00 +0100"
    mail.set_content("Dear Bob,\n\n> you asked\n\nyes. größer\n")
    mail.add_alternative(_HTML.decode(), subtype="html")
    mail.add_attachment(_MARKDOWN, maintype="text", subtype="markdown", filename="pläne.md")
    mail.add_attachment(_sheets(), maintype="application", subtype="x", filename="q1.xlsx")
    return mail.as_bytes()


def _outlook() -> bytes:
    return msg(
        {"0037": "The offer", "0C1A": "Ann", "0E04": "Bob", "1000": "Dear Bob", "1013": _HTML},
        [("a.md", _MARKDOWN), ("inner", {"0037": "Older", "1000": "older text"})],
    )


def _notebook() -> bytes:
    output = {"output_type": "execute_result", "data": {"text/plain": ["1\n"], "text/html": "<table><tr><td>1</table>"}}
    stream = {"output_type": "stream", "name": "stdout", "text": "out\n"}
    wrong = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mx"]}
    book = {
        "cells": [
            {"cell_type": "markdown", "source": ["# Model\n", "text\n"]},
            {"cell_type": "code", "source": "x = 1\n", "outputs": [output, stream, wrong]},
        ],
        "metadata": {"kernelspec": {"language": "python"}},
        "nbformat": 4,
    }
    return json.dumps(book).encode()


def _scan() -> bytes:
    out = io.BytesIO()
    page = Image.new("1", (40, 20), 1)
    page.save(out, "TIFF", save_all=True, append_images=[page, page], compression="group4")
    return out.getvalue()


def _picture(kind: str) -> bytes:
    out = io.BytesIO()
    Image.new("L", (40, 20), 255).save(out, kind)
    return out.getvalue()
