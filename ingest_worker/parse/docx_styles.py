"""What styles and numbering of a Word document say of a paragraph: its level as a heading, its number in a list."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from ingest_worker.parse.xmltree import Node, attribute, child, children

_HEADING_NAME: Final = re.compile(r"heading (\d)")
_PLACE: Final = re.compile(r"%(\d)")
_MOST_PARENTS: Final = 20
_ROMAN: Final = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"))
_ROMAN_ONES: Final = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """A paragraph style: the level of a heading from 1, the list it belongs to, and whether it is the document's title."""

    level: int | None = None
    number_id: str | None = None
    depth: int = 0
    is_title: bool = False


def read_styles(tree: Node) -> dict[str, Style]:
    """The paragraph styles by their id. A style has what it does not say itself from the one that it is based on."""
    nodes = {attribute(style, "styleId") or "": style for style in children(tree, "style")}
    return {name: _style(nodes, name) for name in nodes}


def _style(nodes: dict[str, Node], name: str) -> Style:
    level: int | None = None
    number_id: str | None = None
    depth = 0
    is_title = False
    for _ in range(_MOST_PARENTS):
        node = nodes.get(name)
        if node is None:
            break
        title = (attribute(child(node, "name"), "val") or "").lower()
        is_title = is_title or title == "title"
        match = _HEADING_NAME.fullmatch(title)
        properties = child(node, "pPr")
        if level is None:
            level = int(match[1]) if match else outline_level(properties)
        if number_id is None:
            number_id, depth = list_place(properties)
        name = attribute(child(node, "basedOn"), "val") or ""
    return Style(level=1 if is_title else level, number_id=number_id, depth=depth, is_title=is_title)


def outline_level(properties: Node | None) -> int | None:
    """A paragraph's level in the outline from 1; the tenth is body text (ECMA-376 part 1, section 17.3.1.20)."""
    value = attribute(child(properties, "outlineLvl"), "val")
    return int(value) + 1 if value and value.isascii() and value.isdigit() and int(value) < 9 else None


def list_place(properties: Node | None) -> tuple[str | None, int]:
    """The list that a paragraph belongs to, and how deep in it, from 0."""
    numbering = child(properties, "numPr")
    depth = attribute(child(numbering, "ilvl"), "val") or "0"
    return attribute(child(numbering, "numId"), "val"), int(depth) if depth.isascii() and depth.isdigit() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    form: str
    text: str
    start: int


@dataclass(slots=True)
class _List:
    levels: dict[int, _Level]
    counts: dict[int, int] = field(default_factory=dict)


class Numbering:
    """Counts the items of a document's lists in the order in which they are met (section 17.9)."""

    def __init__(self, tree: Node | None) -> None:
        kinds: dict[str, _List] = {}
        for kind in children(tree, "abstractNum"):
            levels = {_number(attribute(level, "ilvl"), 0): _level(level) for level in children(kind, "lvl")}
            kinds[attribute(kind, "abstractNumId") or ""] = _List(levels)
        self._lists: dict[str, _List] = {}
        self._restarts: dict[str, dict[int, int]] = {}
        for node in children(tree, "num"):
            number_id = attribute(node, "numId") or ""
            found = kinds.get(attribute(child(node, "abstractNumId"), "val") or "")
            if found is not None:
                self._lists[number_id] = found
                self._restarts[number_id] = {
                    _number(attribute(override, "ilvl"), 0): _number(attribute(start, "val"), 1)
                    for override in children(node, "lvlOverride")
                    if (start := child(override, "startOverride")) is not None
                }

    def label(self, number_id: str, depth: int) -> str | None:
        """The label of the next item (`2.1.`, `-` for a bullet); None when the list does not exist or shows none."""
        found = self._lists.get(number_id)
        level = found.levels.get(depth) if found is not None else None
        if found is None or level is None:
            return None
        for at, start in self._restarts.pop(number_id, {}).items():
            found.counts[at] = start - 1
        found.counts[depth] = found.counts.get(depth, level.start - 1) + 1
        for deeper in [at for at in found.counts if at > depth]:
            del found.counts[deeper]
        if level.form == "bullet":
            return "-"
        if level.form == "none":
            return None

        def number_at(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            other = found.levels.get(at, level)
            return _written(found.counts.get(at, other.start), other.form)

        return _PLACE.sub(number_at, level.text).strip() or None


def _level(node: Node) -> _Level:
    return _Level(
        form=attribute(child(node, "numFmt"), "val") or "decimal",
        text=attribute(child(node, "lvlText"), "val") or "",
        start=_number(attribute(child(node, "start"), "val"), 1),
    )


def _written(number: int, form: str) -> str:
    if form in ("lowerLetter", "upperLetter") and number > 0:
        letter = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
        return letter.upper() if form == "upperLetter" else letter
    if form in ("lowerRoman", "upperRoman") and 0 < number < 4000:
        roman = _roman(number)
        return roman.upper() if form == "upperRoman" else roman
    return f"{number:02d}" if form == "decimalZero" else str(number)


def _roman(number: int) -> str:
    written = ""
    for value, letters in _ROMAN:
        count, number = divmod(number, value)
        written += letters * count
    return written + _ROMAN_ONES[number]


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else otherwise
