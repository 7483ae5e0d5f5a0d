"""`/docs`: the API's reference as one plain page, made from its OpenAPI description; nothing comes from another host."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font-family:ui-monospace,monospace;font-size:.9em}pre{background:#f4f4f4;padding:.7rem;overflow:auto}
section{border-top:1px solid #ccc;margin-top:1.5rem}h2{font-size:1.05rem}
td,th{text-align:left;padding:.1rem .8rem .1rem 0;vertical-align:top}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def install(app: FastAPI) -> None:
    """Serve the page at `/docs`."""

    async def docs(_request: Request) -> HTMLResponse:
        return HTMLResponse(render(app.openapi()), headers={"Content-Security-Policy": _POLICY})

    app.add_route("/docs", docs, include_in_schema=False)


def render(description: dict[str, Any]) -> str:
    """An OpenAPI description as HTML."""
    operations = [
        _operation(method, path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    info = description["info"]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title><style>{_STYLE}</style>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info.get('description', ''))}</p>"
        "<p>For programs: <a href=/openapi.json><code>/openapi.json</code></a></p>" + "".join(operations)
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation.get('description', ''))}</p>",
        _rows(
            (f"{one['name']} ({one['in']})", one.get("description") or one.get("schema", {}).get("type", ""))
            for one in operation.get("parameters", [])
        ),
    ]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body <code>{escape(kind)}</code></p>")
        properties = content.get("schema", {}).get("properties", {})
        parts.append(_rows((name, json.dumps(one, ensure_ascii=False)) for name, one in properties.items()))
    parts.append(_rows((code, one.get("description", "")) for code, one in operation.get("responses", {}).items()))
    return "".join(parts) + "</section>"


def _rows(rows: Any) -> str:
    cells = "".join(f"<tr><td><code>{escape(str(name))}</code><td>{escape(str(text))}" for name, text in rows)
    return f"<table>{cells}</table>" if cells else ""
