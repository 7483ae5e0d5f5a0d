from __future__ import annotations

import io

import pptx as python_pptx
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.parse import parse
from shared.documents import ParsedDocument, Span
from shared.tokens import load_token_counter
from tests.compound import compound_file
from tests.making import pptx, shape


def _told(parsed: ParsedDocument) -> list[tuple[int | None, str, str]]:
    return [(element.span.slide, element.kind.value, element.text) for element in parsed.elements]


def test_a_sentence_is_cited_by_its_slide_in_the_order_of_the_show() -> None:
    slides = [
        shape("Plan", kind="title") + shape("First words."),
        shape("Second words."),
        shape("Costs", kind="title") + shape("We spend little."),
    ]
    parsed = parse("plan.pptx", pptx(slides))
    chunks = chunk_document(parsed, load_token_counter())
    assert [(chunk.span.slide, chunk.section) for chunk in chunks] == [(1, ("Plan",)), (2, ()), (3, ("Costs",))]
    assert "We spend little." in chunks[2].text
    assert (parsed.page_count, parsed.pages_with_text, parsed.title) == (3, 3, "Plan")


def test_titles_come_first_and_what_the_master_repeats_not_at_all() -> None:
    slide = shape("text") + shape("12 March", kind="dt") + shape("7", kind="sldNum") + shape("Title", kind="ctrTitle")
    assert _told(parse("a.pptx", pptx([slide]))) == [(1, "heading", "Title"), (1, "text", "text")]


def test_levels_groups_notes_comments_and_hidden_slides_are_read() -> None:
    inner = '<a:p><a:pPr lvl="1"/><a:r><a:t>below</a:t></a:r></a:p>'
    slide = "<p:grpSp>" + shape("above").replace("</p:txBody>", inner + "</p:txBody>") + "</p:grpSp>"
    shapes = shape("say this", kind="body") + shape("3", kind="sldNum")
    note = f'<p:notes xmlns:p="p" xmlns:a="a"><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:notes>'
    comment = '<p:cmLst xmlns:p="p"><p:cm><p:text>why?</p:text></p:cm></p:cmLst>'
    data = pptx(
        [slide],
        parts={"ppt/notesSlides/n1.xml": note, "ppt/comments/c1.xml": comment},
        related={1: [("comments", "../comments/c1.xml"), ("notesSlide", "../notesSlides/n1.xml")]},
    )
    assert _told(parse("a.pptx", data)) == [
        (1, "text", "above\n- below"),
        (1, "text", "Notes: say this"),
        (1, "text", "Comment: why?"),
    ]


def test_diagrams_and_embedded_documents_are_read() -> None:
    def framed(content: str) -> str:
        return f"<p:graphicFrame><a:graphic><a:graphicData>{content}</a:graphicData></a:graphic></p:graphicFrame>"

    frame = framed('<dgm:relIds xmlns:dgm="d" r:dm="rId1"/>')
    thing = framed('<p:oleObj r:id="rId2"/><p:oleObj r:id="rId2"/>')
    points = '<dgm:pt type="{}"><dgm:t><a:p><a:r><a:t>{}</a:t></a:r></a:p></dgm:t></dgm:pt>'
    both = points.format("node", "President") + points.format("pres", "no")
    diagram = f'<dgm:dataModel xmlns:dgm="d" xmlns:a="a"><dgm:ptLst>{both}</dgm:ptLst></dgm:dataModel>'
    native = b"\0" * 6 + b"notes.txt\0C:\\notes.txt\0" + b"\0\0\3\0" + b"\2\0\0\0x\0" + b"\x0c\0\0\0packed words"
    data = pptx(
        [frame + thing],
        parts={"ppt/diagrams/data1.xml": diagram, "ppt/embeddings/o.bin": compound_file({"\x01Ole10Native": native})},
        related={1: [("diagramData", "../diagrams/data1.xml"), ("oleObject", "../embeddings/o.bin")]},
    )
    parsed = parse("a.pptx", data)
    assert _told(parsed) == [(1, "text", "President"), (None, "text", "packed words")]
    assert parsed.elements[1].span == Span(attachment="notes.txt", line_start=1, line_end=1)


def test_a_slide_of_pictures_alone_is_a_page_without_text() -> None:
    picture = "<p:pic><p:blipFill><a:blip r:embed='rId1'/></p:blipFill></p:pic>"
    parsed = parse("a.pptx", pptx([shape("words"), picture, ""]))
    assert (parsed.page_count, parsed.pages_with_text) == (3, 2)


def test_a_presentation_of_another_writer_is_read_whole() -> None:
    made = python_pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[5])
    slide.shapes.title.text = "Figures"
    table = slide.shapes.add_table(2, 2, Inches(1), Inches(1), Inches(4), Inches(1)).table
    for at, text in enumerate(["k", "v", "rent", "5"]):
        table.cell(at // 2, at % 2).text = text
    data = CategoryChartData()
    data.categories = ["East", "West"]
    data.add_series("2024", (1.5, 2))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, Inches(1), Inches(2), Inches(4), Inches(3), data)
    slide.notes_slide.notes_text_frame.text = "Speak slowly"
    out = io.BytesIO()
    made.save(out)
    assert _told(parse("a.pptx", out.getvalue())) == [
        (1, "heading", "Figures"),
        (1, "table", "| k | v |\n| --- | --- |\n| rent | 5 |"),
        (1, "table", "|  | 2024 |\n| --- | --- |\n| East | 1.5 |\n| West | 2 |"),
        (1, "text", "Notes: Speak slowly"),
    ]
