"""What an edit of a long document costs: passages embedded, and rows of the vector table written or removed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import psycopg

from infra.local.postgres import EmbeddedPostgres
from tests.bench.figures import spread
from tests.bench.ingesting import stub, stub_settings
from tests.bench.instance import Instance, running

PAGES = 500
EDITS = 10


def one_paragraph(*, seed: int = 7) -> list[dict[str, Any]]:
    """Edits of one paragraph each, anywhere in a document of 500 pages, then a line at its top."""
    rng = random.Random(seed)
    paragraphs = _long_document(rng)
    with stub() as url, running(stub_settings(url)) as made:
        file = made.folder / "long.md"
        _take(made, file, paragraphs)
        edits = []
        for _ in range(EDITS):
            place = rng.choice([number for number, text in enumerate(paragraphs) if not text.startswith("#")])
            paragraphs[place] = " ".join(rng.sample(paragraphs[place].split(), k=20)) + " and something new."
            edits.append(_cost(made, file, paragraphs))
        top = _cost(made, file, ["A line that nobody had at the top before.", *paragraphs])
    rows = [
        {"measure": f"one paragraph of {PAGES} pages: {what}", **spread([edit[what] for edit in edits])}
        for what in ("passages embedded", "vector rows written", "vector rows removed", "seconds")
    ]
    return [*rows, *({"measure": f"a line at the top: {what}", **spread([value])} for what, value in top.items())]


def _long_document(rng: random.Random) -> list[str]:
    """Some 400 words for each page, in paragraphs, with a heading on every page."""
    words = [f"word{number}" for number in range(6000)]
    paragraphs = []
    for page in range(PAGES):
        paragraphs.append(f"## Page {page}: {' '.join(rng.choices(words, k=4))}")
        paragraphs += [" ".join(rng.choices(words, k=80)) + "." for _ in range(5)]
    return paragraphs


def _take(made: Instance, file: Path, paragraphs: list[str]) -> dict[str, float]:
    file.write_text("\n\n".join(paragraphs) + "\n")
    summary: dict[str, float] = made.run("ingest", str(file))["summary"]
    return summary


def _cost(made: Instance, file: Path, paragraphs: list[str]) -> dict[str, float]:
    before = _vectors(made)
    summary = _take(made, file, paragraphs)
    after = _vectors(made)
    return {
        "passages embedded": summary["embedded"],
        "vector rows written": len(after.items() - before.items()),
        "vector rows removed": len(before.keys() - after.keys()),
        "seconds": summary["seconds"],
    }


def _vectors(made: Instance) -> dict[Any, Any]:
    """Where each vector lies and which transaction wrote it: a row that is written anew has another place."""
    server = EmbeddedPostgres(made.folder / "home")
    with psycopg.connect(server.superuser_conninfo, dbname="docwell") as connection:
        # What is still moving under the index is moved for its own sake, not for the edit.
        connection.execute("UPDATE docwell.vector_1 SET indexed = true WHERE NOT indexed")
        connection.commit()
        return dict(connection.execute("SELECT input_id, (ctid, xmin)::text FROM docwell.vector_1").fetchall())
