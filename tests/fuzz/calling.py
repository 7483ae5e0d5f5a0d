"""Arguments for the MCP tools, drawn from the tools' own input schemas: what fits, what is just beyond, and what never fits."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Call = tuple[str, dict[str, Any]]
"""A tool's name and its arguments, as JSON has them. Texts may hold halves of surrogate pairs, which JSON can write."""

NASTY_TEXTS = (
    "",
    " ",
    "\x00",
    "a\x00b",
    "\ud800",
    "\udfff\ud800 x",
    "\x1b[2J\r\n\t\x7f\x85\u2028",
    "\u202e\u200b\ufeff\U000e0041",
    "e" + "\u0301" * 500,
    "\U0010ffff" * 60,
    "x" * 1_000,
    "x" * 1_001,
    "x" * 10_000,
    "x" * 10_001,
    "漢" * 9_999,
    '"' * 999,
    '"a" ' * 200,
    "-" * 500,
    "%_%\\",
    "' OR 1=1; --",
    "$1 %s %(x)s {0}",
    "*" * 999,
    "**/" * 300,
    "[" * 400,
    "[!]" * 300,
    "[z-a]",
    "[[:alpha:]]",
    "(a|b)+{2,}\\1",
    "?" * 999,
    "../../etc/shadow",
    "/",
    "NULL",
    "NaN",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.999999-23:59",
    "2026-02-30",
    "2026-11-29T10:00:00Z",
    "infinity",
    "2026-W01-1",
    "deleted",
    "indexed",
    "00000000-0000-0000-0000-000000000000",
    "{urn:uuid:ffffffff-ffff-ffff-ffff-ffffffffffff}",
)
EDGES = (-(10**30), -(2**63) - 1, -(2**31) - 1, -1, 0, 1, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 10**30, 2**128 - 1, 2**128)
BEYOND: Sequence[Any] = (*EDGES, math.inf, -math.inf, math.nan, 1e300, 0.5, "x", "7", None, True, [], {}, "\ud800")
STRANGE: Sequence[Any] = (None, True, False, 1.5, -0.0, 1e308, [], {}, [[]], [None], {"a": 1}, "5", [["x"] * 60], ["x"] * 51)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a client has seen: ids, and answers that go on, each as the call and its cursor."""

    ids: Sequence[str]
    pages: Sequence[tuple[Call, str]]


def calls(schemas: Mapping[str, Mapping[str, Any]], known: Known) -> st.SearchStrategy[Call]:
    """A call of any tool; `schemas` are the input schemas by the tool's name."""
    drawn = [_call(name, schema, known) for name, schema in schemas.items()]
    return st.one_of(*drawn, _going_on(known), _swapped(known))


def _call(name: str, schema: Mapping[str, Any], known: Known) -> st.SearchStrategy[Call]:
    required = set(schema.get("required", ()))
    properties = {key: _value(part, known) for key, part in schema["properties"].items()}
    usual = st.fixed_dictionaries(
        {key: one for key, one in properties.items() if key in required},
        optional={key: one for key, one in properties.items() if key not in required},
    )
    # Beside the usual one: without what is required, or with a name that there is not.
    odd = st.dictionaries(st.one_of(st.sampled_from([*properties]), st.text(max_size=5)), _text(known), max_size=3)
    return st.tuples(st.just(name), st.integers(0, 9).flatmap(lambda number: odd if number == 0 else usual))


def _value(schema: Mapping[str, Any], known: Known) -> st.SearchStrategy[Any]:
    """What the schema takes, nine times in ten; else anything."""
    fitting = _fitting(schema, known)
    return st.integers(0, 9).flatmap(lambda number: st.sampled_from(STRANGE) if number == 0 else fitting)


def _fitting(schema: Mapping[str, Any], known: Known) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.one_of(st.sampled_from(schema["enum"]), st.just("none of them"))
    match schema.get("type"):
        case "integer":
            least, most = schema.get("minimum", -(2**63)), schema.get("maximum", 2**63)
            return st.one_of(
                st.integers(least, most), st.sampled_from((least, least - 1, most, most + 1)), st.sampled_from(EDGES)
            )
        case "array":
            return st.lists(_fitting(schema.get("items", {}), known), max_size=schema.get("maxItems", 5) + 1)
        case _:
            return _text(known)


def _text(known: Known) -> st.SearchStrategy[str]:
    cursors = [cursor for _, cursor in known.pages]
    return st.one_of(
        st.sampled_from(NASTY_TEXTS), st.sampled_from([*known.ids, *cursors]), st.text(st.characters(codec=None), max_size=40)
    )


def _going_on(known: Known) -> st.SearchStrategy[Call]:
    """A call that goes on with its own cursor after somebody has been at it."""
    return st.sampled_from(known.pages).flatmap(
        lambda page: _damaged(page[1]).map(lambda cursor: (page[0][0], {**page[0][1], "cursor": cursor}))
    )


def _swapped(known: Known) -> st.SearchStrategy[Call]:
    """A call with the cursor of another."""
    return st.tuples(st.sampled_from(known.pages), st.sampled_from(known.pages)).map(
        lambda two: (two[0][0][0], {**two[0][0][1], "cursor": two[1][1]})
    )


def edges(schemas: Mapping[str, Mapping[str, Any]], known: Known) -> Iterator[Call]:
    """A call for each number of each tool with each value at which something could tip over; all else is as it should be."""
    for name, schema in schemas.items():
        usual = {"query": "refunds", "document_id": known.ids[0]}
        needed = {key: usual[key] for key in schema.get("required", ())}
        for key, part in schema["properties"].items():
            if part.get("type") == "integer":
                bounds = (part.get("minimum"), part.get("maximum"))
                beside = [bound + step for bound in bounds if bound is not None for step in (-1, 0, 1)]
                for value in dict.fromkeys((*EDGES, *beside)):
                    yield name, {**needed, key: value}


def forged(known: Known) -> Iterator[Call]:
    """Calls that go on with their own cursor, one part of which says something else."""
    for (name, arguments), cursor in known.pages:
        parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        for place in range(1, len(parts) + 1):  # the first part binds it to its question
            for value in BEYOND:
                yield name, {**arguments, "cursor": _rewritten(parts, place, value)}


def _rewritten(parts: Sequence[object], place: int, value: object) -> str:
    changed = [*parts[:place], value, *parts[place + 1 :]]
    return base64.urlsafe_b64encode(json.dumps(changed).encode()).decode().rstrip("=")


def _damaged(cursor: str) -> st.SearchStrategy[str]:
    return st.one_of(
        st.integers(0, len(cursor)).map(lambda cut: cursor[:cut]),
        st.tuples(st.integers(0, len(cursor) - 1), st.sampled_from("A_-=+/é\x00")).map(
            lambda at: cursor[: at[0]] + at[1] + cursor[at[0] + 1 :]
        ),
        st.just(base64.urlsafe_b64encode(b"[" * 700).decode()[:1000]),
    )
