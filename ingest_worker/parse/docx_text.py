"""The text of a Word paragraph as its readers see it, and what hangs on it: notes, comments, text boxes, pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ingest_worker.parse.ooxml import relation_id
from ingest_worker.parse.xmltree import Node, attribute, child, children, descendants, local

# fmt: off
_LEFT_OUT: Final = frozenset((
    "pPr", "rPr", "del", "moveFrom", "delText", "instrText", "fldChar", "softHyphen", "sectPr", "tblPr", "trPr", "tcPr", "rt",
    "sdtPr", "sdtEndPr", "proofErr", "lastRenderedPageBreak",
))
# fmt: on
_MARKS: Final = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_PRIVATE: Final = 0xF000
"""Characters of symbol fonts stand from here on; what they look like is known to the font alone."""


@dataclass(slots=True)
class Found:
    """What was met on the way through paragraphs, by the ids of the parts that hold it."""

    footnotes: list[str] = field(default_factory=list)
    endnotes: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    boxes: list[Node] = field(default_factory=list)
    references: list[str] = field(default_factory=list)  # charts, diagrams and embedded files
    blips: list[str] = field(default_factory=list)  # the files of pictures
    pictures: int = 0

    def note(self, kind: str, name: str) -> str:
        """The mark of a note in the text."""
        notes = self.footnotes if kind == "footnoteReference" else self.endnotes
        notes.append(name)
        return f"[^{'' if notes is self.footnotes else 'e'}{name}]"


def paragraph_text(paragraph: Node, found: Found) -> str:
    """The text of a paragraph; what hangs on it is added to `found`."""
    parts: list[str] = []
    _gather(paragraph, parts, found)
    return "".join(parts).strip()


def chosen(alternatives: Node) -> Node | None:
    """The one of several forms of the same thing that is read: the first, else what stands there for old programs."""
    choice = child(alternatives, "Choice")
    fallback = child(alternatives, "Fallback")
    if choice is not None and (fallback is None or next(descendants(choice, "t", "docPr", "oMath"), None) is not None):
        return choice
    return fallback


def math_text(node: Node) -> str:
    """A formula on one line (Office Math, section 22.1)."""
    parts = {name: child(node, name) for name in ("num", "den", "e", "sup", "sub", "deg", "lim", "fName")}

    def of(name: str) -> str:
        part = parts[name]
        return "" if part is None else "".join(math_text(one) for one in children(part))

    def grouped(name: str) -> str:
        text = of(name)
        return text if len(text) < 2 or text.isalnum() else f"({text})"

    match local(node):
        case "t":
            return node.text or ""
        case "f":
            return f"{grouped('num')}/{grouped('den')}"
        case "sSup":
            return f"{of('e')}^{grouped('sup')}"
        case "sSub":
            return f"{of('e')}_{grouped('sub')}"
        case "sSubSup":
            return f"{of('e')}_{grouped('sub')}^{grouped('sup')}"
        case "rad":
            return f"√({of('e')})" if not of("deg") else f"root({of('deg')}, {of('e')})"
        case "func":
            return f"{of('fName')} {of('e')}"
        case "limLow" | "limUpp":
            return f"{of('e')}_{grouped('lim')}"
        case "nary":
            sign = attribute(child(node, "naryPr", "chr"), "val") or "∫"
            below, above = (f"_{grouped('sub')}" if of("sub") else ""), (f"^{grouped('sup')}" if of("sup") else "")
            return f"{sign}{below}{above} {of('e')}"
        case "d":
            inside = ", ".join("".join(math_text(one) for one in children(part)) for part in children(node, "e"))
            return f"({inside})"
        case name if name.endswith("Pr"):
            return ""
    return "".join(math_text(one) for one in children(node))


def _gather(node: Node, parts: list[str], found: Found) -> None:
    for one in children(node):
        name = local(one)
        if name == "t":
            parts.append(one.text or "")
        elif name in _MARKS:
            parts.append(_MARKS[name])
        elif name in _LEFT_OUT or (name == "r" and _is_hidden(one)):
            continue
        elif name in ("footnoteReference", "endnoteReference"):
            parts.append(found.note(name, attribute(one, "id") or ""))
        elif name == "commentReference":
            found.comments.append(attribute(one, "id") or "")
        elif name == "sym":
            parts.append(_symbol(attribute(one, "char")))
        elif name in ("oMath", "oMathPara"):
            parts.append(math_text(one))
        elif name == "AlternateContent":
            taken = chosen(one)
            if taken is not None:
                _gather(taken, parts, found)
        elif name == "txbxContent":
            found.boxes.append(one)
        else:
            _note_object(one, name, found)
            _gather(one, parts, found)


def _note_object(node: Node, name: str, found: Found) -> None:
    if name in ("blip", "imagedata"):
        found.pictures += 1
        found.blips.append(attribute(node, "embed") or relation_id(node))
    elif name in ("chart", "OLEObject"):
        found.references.append(attribute(node, "id") or "")
    elif name == "relIds":
        found.references.append(attribute(node, "dm") or "")


def _is_hidden(run: Node) -> bool:
    vanish = child(run, "rPr", "vanish")
    return vanish is not None and attribute(vanish, "val") not in ("0", "false", "off")


def _symbol(char: str | None) -> str:
    try:
        code = int(char or "", 16)
    except ValueError:
        return ""
    return chr(code) if 0x20 <= code < _PRIVATE else ""
