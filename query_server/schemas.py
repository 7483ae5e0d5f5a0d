"""JSON schemas of the answers, without null unions: a field that may be missing is not required."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter


def output_schema(answer: type) -> dict[str, Any]:
    """The schema of an answer's JSON form."""
    schema: dict[str, Any] = _plain(TypeAdapter(answer).json_schema(mode="serialization"))
    return schema


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema:
        kept = [part for part in schema["anyOf"] if part.get("type") != "null"]
        if len(kept) == 1:
            return _plain(kept[0])
    plain = {name: _plain(part) for name, part in schema.items() if name not in {"title", "default", "additionalProperties"}}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        plain["required"] = [name for name, part in properties.items() if not _optional(part)]
        plain["properties"] = {name: _plain(part) for name, part in properties.items()}
    return plain


def _optional(schema: dict[str, Any]) -> bool:
    return any(part.get("type") == "null" for part in schema.get("anyOf", ()))
