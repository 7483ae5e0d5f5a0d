"""The stub embedder with faults: run as a program it takes a port and the path of a file that says how it fails.

The file holds `ok`, `away` (connections are closed unanswered), `errors` (HTTP 500) or `limits` (HTTP 429, retry after 1 s).
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.stub_embedder import Handler, make_server


def main(port: int, mood: Path) -> None:
    """Serve until killed."""

    class Moody(Handler):
        def do_POST(self) -> None:  # noqa: N802 - the name that http.server calls
            now = mood.read_text().strip()
            if now == "away":
                self.close_connection = True
                return
            if now in {"errors", "limits"}:
                self.rfile.read(int(self.headers["content-length"]))
                body = b'{"error": {"message": "not now", "type": "server_error"}}'
                self.send_response(500 if now == "errors" else 429)
                if now == "limits":
                    self.send_header("retry-after", "1")
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return
            super().do_POST()

    make_server(port, Moody).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
