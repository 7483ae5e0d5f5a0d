"""The SDK's server with a tool that does nothing: what MCP over HTTP costs whoever serves it. As a program it takes a port."""

from __future__ import annotations

import sys

import uvicorn
from mcp.server import MCPServer


def nothing(query: str = "") -> str:
    """Answer at once."""
    return query


if __name__ == "__main__":
    server = MCPServer("trivial", log_level="WARNING")
    server.add_tool(nothing)
    app = server.streamable_http_app(stateless_http=True, json_response=True)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_config=None, access_log=False)
