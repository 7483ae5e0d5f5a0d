"""What stands within a line: marks, links, mentions, images, emoticons, dates, and macros that are part of a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lxml.etree import _Element as Node

from ingest_worker.sources.confluence.storage_text import People, around, collapse, inline_code, linked, squeeze, target
from ingest_worker.sources.confluence.storage_tree import attribute, child, children, first_text, local, parameters, whole_text

if TYPE_CHECKING:
    from ingest_worker.sources.confluence.storage_blocks import Writer

INLINE: Final = frozenset(
    (
        *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "cite", "code", "del", "dfn", "em", "font", "i", "img", "ins"),
        *("kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var"),
        *(
            "link",
            "image",
            "emoticon",
            "inline-comment-marker",
            "placeholder",
            "link-body",
            "plain-text-link-body",
            "caption-text",
        ),
        *("page", "blog-post", "attachment", "url", "user", "space", "content-entity", "shortcut", "adf-mark"),
    )
)
_INLINE_MACROS: Final = frozenset(("status", "anchor", "jira", "inc-drawio-inline", "emoji", "highlight", "color", "date"))
_MARKS: Final = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~", "strike": "~~"}
_EMOTICONS: Final = {
    "smile": "🙂",
    "sad": "🙁",
    "cheeky": "😛",
    "laugh": "😀",
    "wink": "😉",
    "thumbs-up": "👍",
    "thumbs-down": "👎",
    "information": "ℹ️",
    "tick": "✅",
    "cross": "❌",
    "warning": "⚠️",
    "plus": "➕",
    "minus": "➖",
    "question": "❓",
    "light-on": "💡",
    "light-off": "💡",
    "yellow-star": "⭐",
    "red-star": "⭐",
    "green-star": "⭐",
    "blue-star": "⭐",
    "heart": "❤️",
    "broken-heart": "💔",
}
NAME_HIDDEN = "@(name not shown)"
"""In place of a person whom a page mentions and whose name the site does not tell."""


def is_inline_macro(macro: Node) -> bool:
    """Whether a macro is part of a sentence."""
    name = attribute(macro, "name")
    if name in _INLINE_MACROS:
        return True
    output = parameters(macro).get("atlassian-macro-output-type")
    if output is not None and (output.text or "").strip().upper() == "INLINE":
        return not any(
            local(one) in {"p", "ul", "ol", "table", "h1", "h2", "h3", "task-list", "layout"} for one in macro.iterdescendants()
        )
    return False


class Inline:
    """Writes what stands in lines. Line ends in what it returns are line breaks of the page."""

    def __init__(self, people: People, writer: Writer) -> None:
        self._people = people
        self._writer = writer

    def text(self, text: str | None) -> str:
        """Text between elements."""
        return squeeze(text) if text else ""

    def children(self, node: Node) -> str:
        """All that stands in an element."""
        return self.text(node.text) + "".join(self.element(one) + self.text(one.tail) for one in node)

    def element(self, node: Node) -> str:
        """One element. A block that stands where only lines may stand becomes lines."""
        name = local(node)
        if name in _MARKS:
            return around(_MARKS[name], self.children(node))
        match name:
            case "br":
                return "\n"
            case "code" | "tt" | "samp" | "kbd":
                return inline_code(self.children(node))
            case "a":
                return linked(self.children(node), attribute(node, "href"))
            case "link":
                return self._link(node)
            case "image" | "img":
                return self._image(node)
            case "emoticon":
                return self._emoticon(node)
            case "time":
                shown = collapse(self.children(node))
                date = attribute(node, "datetime")
                return " ".join(part for part in (date, shown if shown != date else "") if part)
            case "structured-macro" | "macro" if is_inline_macro(node):
                return self._macro(node)
        if name in RESOURCES:
            return self.resource(node)
        if name in INLINE:
            return self.children(node)
        return "\n" + "\n".join(self._writer.block(node)) + "\n"

    def verbatim(self, node: Node) -> str:
        """As `children`, with the spaces and line ends as they are."""
        parts = [node.text or ""]
        for one in node:
            name = local(one)
            if name == "br":
                parts.append("\n")
            elif name in _TELLING or name in RESOURCES:
                parts.append(self.element(one).strip("\n"))
            else:
                parts.append(self.verbatim(one))
            parts.append(one.tail or "")
        return "".join(parts)

    def resource(self, node: Node | None) -> str:
        """What a resource identifier (`ri:`) names: a page by its title, a file by its name, a person by theirs."""
        if node is None:
            return ""
        match local(node):
            case "page" | "blog-post":
                title, space = attribute(node, "content-title"), attribute(node, "space-key")
                return f"{space}: {title}" if space and title else title or space
            case "attachment":
                return attribute(node, "filename")
            case "url":
                return attribute(node, "value")
            case "user":
                return self.person(node)
            case "space":
                return attribute(node, "space-key")
            case "shortcut":
                return ":".join(part for part in (attribute(node, "key"), attribute(node, "parameter")) if part)
        return self.children(node)

    def person(self, node: Node) -> str:
        """A mention."""
        for name in ("account-id", "userkey", "username"):
            found = self._people.get(attribute(node, name))
            if found:
                return "@" + collapse(found)
        return NAME_HIDDEN

    def _link(self, node: Node) -> str:
        body = child(node, "link-body", "plain-text-link-body")
        shown = collapse(self.children(body)) if body is not None else ""
        resource = next((one for one in children(node) if local(one) in RESOURCES), None)
        others = "".join(self.element(one) for one in children(node) if one is not body and one is not resource)
        if resource is not None and local(resource) == "url":
            return linked(shown, attribute(resource, "value")) + others
        named = self.resource(resource)
        if not shown:
            return (named or attribute(node, "anchor")) + others
        if not named or resource is None or local(resource) == "user" or _same(shown, resource):
            return shown + others
        return f"{shown} ({named}){others}"

    def _image(self, node: Node) -> str:
        resource = next((one for one in children(node) if local(one) in RESOURCES), None)
        source = self.resource(resource) if resource is not None else attribute(node, "src")
        alt = collapse(attribute(node, "alt") or attribute(node, "title") or source.rpartition("/")[2])
        title = collapse(attribute(node, "title"))
        caption = child(node, "caption")
        below = collapse(self.children(caption)) if caption is not None else ""
        if source.lower().startswith(("data:", "javascript:")):
            source = ""
        image = f"![{alt}]({target(source)})" if source else alt
        return " ".join(part for part in (image, title if title != alt else "", below) if part)

    @staticmethod
    def _emoticon(node: Node) -> str:
        fallback = attribute(node, "emoji-fallback") or attribute(node, "emoji-shortname")
        name = attribute(node, "name")
        return fallback or _EMOTICONS.get(name, f":{name}:" if name else "")

    def _macro(self, node: Node) -> str:
        name = attribute(node, "name")
        told = parameters(node)
        if name == "status":
            text = collapse(whole_text(told.get("title")))
            return f"[{text}]" if text else ""
        if name == "anchor":
            return ""
        if name == "jira":
            key, query = collapse(whole_text(told.get("key"))), collapse(whole_text(told.get("jqlQuery")))
            return key or (f"(Jira issues: {query})" if query else "")
        body = child(node, "rich-text-body", "plain-text-body")
        if body is not None:
            return self.children(body)
        return collapse(first_text(told, "date", "title", ""))


_TELLING: Final = frozenset(
    ("link", "image", "img", "emoticon", "time", "structured-macro", "macro", "table", "task-list", "adf-extension")
)
"""Elements that tell something beside their text."""

RESOURCES: Final = frozenset(("page", "blog-post", "attachment", "url", "user", "space", "content-entity", "shortcut"))
"""Resource identifiers."""


def _same(shown: str, resource: Node) -> bool:
    names = (attribute(resource, "content-title"), attribute(resource, "filename"))
    return collapse(shown).strip("*~`").casefold() in {collapse(name).casefold() for name in names}
