"""What a PDF holds beside the text of its pages: filled-in fields, notes, dynamic forms (XFA), attached files."""

from __future__ import annotations

import ctypes
import re
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, Final

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from ingest_worker.parse.file import File
from ingest_worker.parse.inside import Inside, attachment_name, read_inside
from ingest_worker.parse.xmltree import Node, child, children, descendants, local, parse_xml
from shared.documents import Element, ElementKind
from shared.text import clean_text

_NOTES: Final = frozenset(
    (
        pdfium_c.FPDF_ANNOT_TEXT,
        pdfium_c.FPDF_ANNOT_FREETEXT,
        pdfium_c.FPDF_ANNOT_HIGHLIGHT,
        pdfium_c.FPDF_ANNOT_UNDERLINE,
        pdfium_c.FPDF_ANNOT_SQUIGGLY,
        pdfium_c.FPDF_ANNOT_STRIKEOUT,
        pdfium_c.FPDF_ANNOT_STAMP,
        pdfium_c.FPDF_ANNOT_CARET,
        pdfium_c.FPDF_ANNOT_SQUARE,
        pdfium_c.FPDF_ANNOT_CIRCLE,
        pdfium_c.FPDF_ANNOT_LINE,
        pdfium_c.FPDF_ANNOT_POLYGON,
    )
)
_MARKED: Final = frozenset((pdfium_c.FPDF_FORMFIELD_CHECKBOX, pdfium_c.FPDF_FORMFIELD_RADIOBUTTON))
_WRITTEN: Final = frozenset(
    (pdfium_c.FPDF_FORMFIELD_TEXTFIELD, pdfium_c.FPDF_FORMFIELD_COMBOBOX, pdfium_c.FPDF_FORMFIELD_LISTBOX)
)
_MOST_ON_A_PAGE: Final = 2_000
_AMPERSAND: Final = re.compile(rb"&(?!#?\w+;)")
_INDEX: Final = re.compile(r"\[\d+\]$")


def page_notes(page: pdfium.PdfPage) -> tuple[str, ...]:
    """The notes on a page, and its filled-in fields as lines `label: value`. Neither is part of a page's text layer."""
    count = min(pdfium_c.FPDFPage_GetAnnotCount(page), _MOST_ON_A_PAGE)
    notes: list[str] = []
    fields: list[str] = []
    for index in range(count):
        annotation = pdfium_c.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        try:
            kind = pdfium_c.FPDFAnnot_GetSubtype(annotation)
            if kind == pdfium_c.FPDF_ANNOT_WIDGET and page.formenv is not None:
                fields.append(_field(page.formenv, annotation))
            elif kind in _NOTES:
                notes.append(_string(pdfium_c.FPDFAnnot_GetStringValue, annotation, b"Contents"))
        finally:
            pdfium_c.FPDFPage_CloseAnnot(annotation)
    filled = "\n".join(field for field in fields if field)
    return tuple(note for note in (*notes, filled) if note.strip())


def attached_files(document: pdfium.PdfDocument, file: File, inside: Inside) -> None:
    """Read the files that are attached to a PDF, each cited by its name."""
    for index in range(document.count_attachments()):
        fallback = f"attachment {index + 1}"
        try:
            attachment = document.get_attachment(index)
            name = attachment_name(attachment.get_name(), fallback)
            data = bytes(attachment.get_data())
        except pdfium.PdfiumError as error:
            inside.unread.append(f"{fallback} could not be read: {error}")
            continue
        read_inside(file, name, data, inside)


def is_dynamic_form(document: pdfium.PdfDocument) -> bool:
    """Whether the document is a form that only some programs draw (XFA), whose page is a placeholder that says to wait."""
    return bool(document.get_formtype() == pdfium_c.FORMTYPE_XFA_FULL)


def dynamic_form(document: pdfium.PdfDocument) -> list[Element]:
    """The texts and the filled-in fields of a dynamic form (XFA 3.3), in order. It has no pages before something draws it.

    Raises:
        Unreadable: `damaged`, its parts are no XML.
    """
    packets = dict(_packets(document))
    if b"<" not in packets.get("template", b""):
        return []
    values: dict[str, deque[str]] = defaultdict(deque)
    if packets.get("datasets"):
        for node in descendants(_tree(packets["datasets"], "The form's data"), "*"):
            if not len(node) and (node.text or "").strip():
                values[local(node)].append(_text(node))
    shown = (_shown(node, values) for node in descendants(_tree(packets["template"], "The form"), "draw", "field"))
    return [Element(kind=ElementKind.TEXT, text=text) for text in shown if text]


def _tree(packet: bytes, what: str) -> Node:
    # Programs write ampersands as they are, which is no XML.
    return parse_xml(_AMPERSAND.sub(b"&amp;", packet.strip(b"\0 \r\n\t")), what)


def _shown(node: Node, values: dict[str, deque[str]]) -> str:
    if local(node) == "draw":
        return _text(child(node, "value"))
    label = _text(child(node, "caption", "value"))
    waiting = values.get(node.get("name") or "")
    value = waiting.popleft() if waiting else _text(child(node, "value"))
    return f"{label}: {value}" if label and value else label or value


def _text(node: Node | None) -> str:
    if node is None or any(local(one) == "image" for one in children(node)):
        return ""
    return " ".join(clean_text("".join(node.itertext())).split())


def _packets(document: pdfium.PdfDocument) -> Iterator[tuple[str, bytes]]:
    for index in range(min(pdfium_c.FPDF_GetXFAPacketCount(document), 100)):
        length = pdfium_c.FPDF_GetXFAPacketName(document, index, None, 0)
        name = ctypes.create_string_buffer(length)
        pdfium_c.FPDF_GetXFAPacketName(document, index, name, length)
        size = ctypes.c_ulong()
        pdfium_c.FPDF_GetXFAPacketContent(document, index, None, 0, size)
        content = ctypes.create_string_buffer(size.value)
        pdfium_c.FPDF_GetXFAPacketContent(document, index, content, size.value, size)
        yield name.value.decode("utf-8", "replace"), content.raw


def _field(form: Any, annotation: Any) -> str:
    kind = pdfium_c.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in _MARKED:
        value = "yes" if pdfium_c.FPDFAnnot_IsChecked(form, annotation) else ""
    elif kind in _WRITTEN:
        value = _string(pdfium_c.FPDFAnnot_GetFormFieldValue, form, annotation)
    else:
        value = ""
    if not value.strip():
        return ""
    label = _string(pdfium_c.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
    if not label:
        name = _string(pdfium_c.FPDFAnnot_GetFormFieldName, form, annotation)
        label = _INDEX.sub("", name.rpartition(".")[2])
    return f"{label}: {value}" if label else value


def _string(call: Any, *arguments: Any) -> str:
    """A string of pdfium's, UTF-16 with a NUL at its end; `call` is asked twice, for its length in bytes first."""
    length = call(*arguments, None, 0)
    if length <= 2:
        return ""
    buffer = ctypes.create_string_buffer(length)
    call(*arguments, ctypes.cast(buffer, ctypes.POINTER(pdfium_c.FPDF_WCHAR)), length)
    return " ".join(clean_text(buffer.raw[: length - 2].decode("utf-16-le", "ignore")).split())
