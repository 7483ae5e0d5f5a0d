"""Writes small files of many formats, by hand, so that each test shows what is in its file."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from tests.compound import compound_file

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPES = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_A = "http://schemas.openxmlformats.org/drawingml/2006/main"
_P = "http://schemas.openxmlformats.org/presentationml/2006/main"
_S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def zipped(members: Mapping[str, str | bytes], *, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A ZIP file of these members, in their order."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as package:
        for name, content in members.items():
            package.writestr(name, content)
    return out.getvalue()


def relations(*targets: tuple[str, str]) -> str:
    """A part of references: `rId1`, `rId2`, … each of a kind and with its target."""
    rows = "".join(
        f'<Relationship Id="rId{i}" Type="{_OFFICE}/{kind}" Target="{target}"/>' for i, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{rows}</Relationships>'


# --- Word


def docx(
    body: str, *, parts: Mapping[str, str | bytes] | None = None, related: Sequence[tuple[str, str]] = (), strict: bool = False
) -> bytes:
    """A Word document with this body; `related` are the references of the document part, `parts` further members."""
    w = "http://purl.oclc.org/ooxml/wordprocessingml/main" if strict else _W
    root = relations(("officeDocument", "word/document.xml"))
    if strict:
        root = root.replace(_OFFICE, "http://purl.oclc.org/ooxml/officeDocument/relationships")
    namespaces = (
        f'xmlns:w="{w}" xmlns:r="{_OFFICE}" xmlns:a="{_A}" '
        'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
        'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" xmlns:v="urn:schemas-microsoft-com:vml"'
    )
    return zipped(
        {
            "[Content_Types].xml": _TYPES,
            "_rels/.rels": root,
            "word/document.xml": f"<w:document {namespaces}><w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": relations(*related),
            **(parts or {}),
        }
    )


def paragraph(text: str, *, style: str = "", extra: str = "") -> str:
    """A Word paragraph; `extra` is XML after its text."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{escape(text)}</w:t></w:r>{extra}</w:p>"


def word_part(root: str, content: str) -> str:
    """A part of a Word document beside the main one."""
    return f'<w:{root} xmlns:w="{_W}" xmlns:r="{_OFFICE}">{content}</w:{root}>'


STYLES = word_part(
    "styles",
    '<w:style w:type="paragraph" w:styleId="Kop1"><w:name w:val="heading 1"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="Kop2"><w:name w:val="heading 2"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="Mine"><w:name w:val="Mine"/><w:basedOn w:val="Kop2"/></w:style>',
)


# --- PowerPoint


def pptx(
    slides: Sequence[str],
    *,
    parts: Mapping[str, str | bytes] | None = None,
    related: Mapping[int, Sequence[tuple[str, str]]] | None = None,
) -> bytes:
    """A presentation of these slides' shapes; `related` are the references of a slide by its number."""
    namespaces = f'xmlns:p="{_P}" xmlns:a="{_A}" xmlns:r="{_OFFICE}"'
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": relations(("officeDocument", "ppt/presentation.xml")),
        "ppt/_rels/presentation.xml.rels": relations(*(("slide", f"slides/slide{i}.xml") for i in range(len(slides), 0, -1))),
        "ppt/presentation.xml": (
            f"<p:presentation {namespaces}><p:sldIdLst>"
            + "".join(f'<p:sldId id="{255 + i}" r:id="rId{len(slides) + 1 - i}"/>' for i in range(1, len(slides) + 1))
            + "</p:sldIdLst></p:presentation>"
        ),
    }
    for number, shapes in enumerate(slides, start=1):
        members[f"ppt/slides/slide{number}.xml"] = f"<p:sld {namespaces}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
        members[f"ppt/slides/_rels/slide{number}.xml.rels"] = relations(*(related or {}).get(number, ()))
    return zipped({**members, **(parts or {})})


def shape(*paragraphs: str, kind: str = "") -> str:
    """A shape with text; `kind` makes it a placeholder (`title`)."""
    place = f'<p:ph type="{kind}"/>' if kind else ""
    text = "".join(f"<a:p><a:r><a:t>{escape(one)}</a:t></a:r></a:p>" for one in paragraphs)
    return f"<p:sp><p:nvSpPr><p:nvPr>{place}</p:nvPr></p:nvSpPr><p:txBody>{text}</p:txBody></p:sp>"


# --- Excel


def xlsx(
    sheets: Mapping[str, str],
    *,
    styles: str = "",
    strings: Sequence[str] = (),
    strict: bool = False,
    states: Mapping[str, str] | None = None,
    parts: Mapping[str, str | bytes] | None = None,
) -> bytes:
    """A workbook of these sheets' rows, as XML."""
    ns = "http://purl.oclc.org/ooxml/spreadsheetml/main" if strict else _S
    office = "http://purl.oclc.org/ooxml/officeDocument/relationships" if strict else _OFFICE
    numbers = dict(enumerate(sheets, start=1))
    targets = [("worksheet", f"worksheets/sheet{number}.xml") for number in numbers] + [
        ("styles", "styles.xml"),
        ("sharedStrings", "sharedStrings.xml"),
    ]
    rows = "".join(
        f'<sheet name="{escape(name)}" sheetId="{number}" state="{(states or {}).get(name, "visible")}" r:id="rId{number}"/>'
        for number, name in numbers.items()
    )
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")).replace(_OFFICE, office),
        "xl/workbook.xml": f'<workbook xmlns="{ns}" xmlns:r="{office}"><sheets>{rows}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relations(*targets).replace(_OFFICE, office),
        "xl/styles.xml": f'<styleSheet xmlns="{ns}">{styles}</styleSheet>',
        "xl/sharedStrings.xml": f'<sst xmlns="{ns}">{"".join(f"<si><t>{escape(one)}</t></si>" for one in strings)}</sst>',
    }
    for number, content in enumerate(sheets.values(), start=1):
        members[f"xl/worksheets/sheet{number}.xml"] = f'<worksheet xmlns="{ns}"><sheetData>{content}</sheetData></worksheet>'
    return zipped({**members, **(parts or {})})


def cells(number: int, *values: str | float) -> str:
    """A row of texts and numbers from column A on."""
    row = ""
    for column, value in enumerate(values):
        where = f"{chr(ord('A') + column)}{number}"
        if isinstance(value, str):
            row += f'<c r="{where}" t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        else:
            row += f'<c r="{where}"><v>{value}</v></c>'
    return f'<row r="{number}">{row}</row>'


def xls(rows: Sequence[Sequence[str | float]], name: str = "Sheet1") -> bytes:
    """A workbook of Excel 97 (MS-XLS) with one sheet."""

    def record(kind: int, content: bytes) -> bytes:
        return struct.pack("<HH", kind, len(content)) + content

    sheet = record(0x809, struct.pack("<HHHHII", 0x600, 0x10, 0, 0, 0, 0))
    for number, row in enumerate(rows):
        for column, value in enumerate(row):
            if isinstance(value, str):
                sheet += record(0x204, struct.pack("<HHHHB", number, column, 0, len(value), 1) + value.encode("utf-16-le"))
            else:
                sheet += record(0x203, struct.pack("<HHHd", number, column, 0, value))
    sheet += record(0x0A, b"")
    head = record(0x809, struct.pack("<HHHHII", 0x600, 5, 0, 0, 0, 0))
    bound = struct.pack("<BB", len(name), 0) + name.encode("latin-1")
    offset = len(head) + 4 + 6 + len(bound) + 4
    book = head + record(0x85, struct.pack("<IH", offset, 0) + bound) + record(0x0A, b"") + sheet
    return compound_file({"Workbook": book.ljust(4096, b"\0")})


# --- OpenDocument, EPUB


_ODF = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
    'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" '
    'xmlns:presentation="urn:oasis:names:tc:opendocument:xmlns:presentation:1.0" xmlns:dc="http://purl.org/dc/elements/1.1/" '
    'xmlns:xlink="http://www.w3.org/1999/xlink"'
)


def odf(kind: str, content: str, *, parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """An OpenDocument file: `kind` is text, presentation or spreadsheet."""
    return zipped(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": (
                f"<office:document-content {_ODF}><office:body><office:{kind}>{content}</office:{kind}></office:body>"
                "</office:document-content>"
            ),
            "META-INF/manifest.xml": "<manifest/>",
            **(parts or {}),
        }
    )


def epub(
    chapters: Mapping[str, str], *, titles: Mapping[str, str] | None = None, parts: Mapping[str, str | bytes] | None = None
) -> bytes:
    """A book of these chapters (name to the body's HTML), with a table of contents of `titles` by name."""
    items = "".join(f'<item id="{name}" href="{name}.xhtml" media-type="application/xhtml+xml"/>' for name in chapters)
    spine = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    points = "".join(
        f'<navPoint><navLabel><text>{title}</text></navLabel><content src="{name}.xhtml#top"/></navPoint>'
        for name, title in (titles or {}).items()
    )
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
            "OEBPS/book.opf": (
                '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>The book</dc:title></metadata>'
                f'<manifest><item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>{items}</manifest>'
                f"<spine>{spine}</spine></package>"
            ),
            "OEBPS/toc.ncx": f"<ncx><navMap>{points}</navMap></ncx>",
            **{
                f"OEBPS/{name}.xhtml": f"<html><head><title>x</title></head><body>{body}</body></html>"
                for name, body in chapters.items()
            },
            **(parts or {}),
        }
    )


# --- Outlook


def msg(
    properties: Mapping[str, str | bytes], attachments: Sequence[tuple[str, bytes | Mapping[str, str | bytes]]] = ()
) -> bytes:
    """An Outlook message of these properties (number to text or bytes), with attachments: files, or other messages."""
    return compound_file(_msg_tree(properties, attachments, header=32))


def _msg_tree(
    properties: Mapping[str, str | bytes], attachments: Sequence[tuple[str, bytes | Mapping[str, str | bytes]]], *, header: int
) -> dict:
    # 09:30 on 5 March 2024, as the time of sending (PidTagClientSubmitTime).
    ticks = 133_541_046_000_000_000
    tree: dict = {"__properties_version1.0": b"\0" * header + struct.pack("<HHIQ", 0x40, 0x39, 6, ticks)}
    tree |= _streams(properties)
    for number, (name, content) in enumerate(attachments):
        folder: dict = {"__properties_version1.0": b"\0" * 8, **_streams({"3707": name})}
        if isinstance(content, bytes):
            folder |= _streams({"3701": content})
        else:
            folder["__substg1.0_3701000D"] = _msg_tree(content, (), header=24)
        tree[f"__attach_version1.0_#{number:08X}"] = folder
    return tree


def _streams(properties: Mapping[str, str | bytes]) -> dict[str, bytes]:
    return {
        f"__substg1.0_{number}{'001F' if isinstance(value, str) else '0102'}": value.encode("utf-16-le")
        if isinstance(value, str)
        else value
        for number, value in properties.items()
    }
