"""The stub embedder with faults: run as a program it takes a port and the path of a file that says how it fails.

The file holds `ok`, `away` (connections are closed unanswered), `errors` (HTTP 500) or `limits` (HTTP 429, retry after 1 s).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.bench.stub_embedder import Handler, make_server

_ANSWERS: Mapping[str, tuple[int, Mapping[str, str]]] = {"errors": (500, {}), "limits": (429, {"retry-after": "1"})}


def main(port: int, mood: Path) -> None:
    """Serve until killed."""

    class Moody(Handler):
        def do_POST(self) -> None:  # noqa: N802 - the name that http.server calls
            if mood.read_text() == "away":
                self.close_connection = True
            else:
                super().do_POST()

        def refuse(self, texts: list[str]) -> tuple[int, Mapping[str, str]] | None:
            return _ANSWERS.get(mood.read_text())

    make_server(port, Moody).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
