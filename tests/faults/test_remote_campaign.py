"""A seeded campaign: a source is edited for a while under faults and restarts; at the end the index is what the source is."""

from __future__ import annotations

import random

import pytest

from tests.conftest import Database
from tests.notes_server import Notes, serve_notes
from tests.remotes import Followed, follow

STEPS = 40
PATHS = [f"{folder}/{name}.md" for folder in ("a", "b") for name in ("one", "two", "three", "four")]
READERS = [None, (), ("user:ann",), ("user:ann", "group:eng")]


def _edit(notes: Notes, rng: random.Random, number: int) -> str:
    """One change at the source; returns its key."""
    keys = sorted(notes.notes)
    what = rng.choice(["new", "new", "text", "text", "facts", "move", "delete", "swap", "unseen", "restore"])
    if what == "new" or len(keys) < 4:
        key = f"k{number:03}"
        notes.write(key, f"text {number}", rng.choice(PATHS), readers=rng.choice(READERS))
        return key
    key = rng.choice(keys)
    if what == "text":
        notes.write(key, f"text {number}", readers=rng.choice(READERS))
    elif what == "facts":
        notes.change(key, title=f"title {number}", tags=(f"t{number % 3}",), readers=rng.choice(READERS))
    elif what == "move":
        notes.change(key, path=rng.choice(PATHS))
    elif what == "swap":
        other = rng.choice(keys)
        path = notes.notes[key].path
        notes.change(key, path=notes.notes[other].path)
        notes.change(other, path=path)
    elif what == "unseen":
        del notes.notes[key]  # no journal tells of it
    elif what == "restore":
        note = notes.notes[key]
        notes.delete(key)
        notes.notes[key] = note
        notes.journal.append(key)
    else:
        notes.delete(key)
    return key


def _disturb(notes: Notes, followed: Followed, rng: random.Random) -> None:
    where = rng.choice(["/notes", "/changes", "/notes/k"])
    match rng.choice(["status", "drop", "half", "throttle", "expire", "restart", "nothing", "nothing"]):
        case "status":
            notes.fail(where, *[500] * rng.randint(1, 3))
        case "drop":
            notes.fail(where, 200, 0)
        case "half":
            notes.fail(where, 200, -1)
        case "throttle":
            notes.retry_after = "3"
            notes.fail(where, 429)
        case "expire":
            notes.forget_journal()
        case "restart":
            followed.restart()


def _tell(followed: Followed, rng: random.Random, keys: list[str]) -> None:
    """Events of some of the changes: in another order, twice, or not at all."""
    rng.shuffle(keys)
    for key in keys:
        for _ in range(rng.randint(0, 2)):
            followed.event(rng.choice([key, key, key, "*"]))


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_on_the_way_the_index_is_what_the_source_is_in_the_end(database: Database, seed: int) -> None:
    rng = random.Random(seed)
    with serve_notes() as notes, follow(database.url, notes, permissions=True) as followed:
        followed.settle()
        for step in range(STEPS):
            keys = [_edit(notes, rng, step * 10 + number) for number in range(rng.randint(1, 3))]
            _tell(followed, rng, keys)
            _disturb(notes, followed, rng)
            followed.tick(rng.choice([0, 1, 6, 130, 130, 700, 90_000]))
            if rng.random() < 0.2:
                followed.finish_jobs()
        notes.faults.clear()
        for _ in range(4):
            followed.settle(4000)
        followed.whole()
        _compare(followed, notes)
        followed.notes.asked.clear()
        followed.whole()
        assert not any(path.endswith("/text") for path in notes.asked)


def _compare(followed: Followed, notes: Notes) -> None:
    stored = followed.rows(
        "SELECT i.key, d.path, d.title, d.tags, d.readers, d.document_id FROM docwell.document d"
        " JOIN docwell.remote_item i USING (document_id) WHERE d.state <> 'deleted' AND i.gone_at IS NULL"
    )
    texts = followed.texts()
    held = {row[0] for row in followed.rows("SELECT document_id FROM docwell.held_delete")}
    assert held == set()
    assert len(stored) == len(texts)  # each document is that of one thing
    found = {key: (texts[path], title, tuple(tags), readers) for key, path, title, tags, readers, _ in stored}
    assert found == {
        key: (note.text, note.title, note.tags, None if note.readers is None else sorted(note.readers))
        for key, note in notes.notes.items()
    }
    for key, path, *_ in stored:
        wanted = notes.notes[key].path
        sharing = sum(note.path == wanted for note in notes.notes.values())
        assert path == wanted or (sharing > 1 and path.startswith(wanted.removesuffix(".md") + "~"))
    by_path = [path for _, path, *_ in stored]
    for note in notes.notes.values():
        assert note.path in by_path  # one of those that share it has it
    assert followed.failures() == {}
    assert followed.rows("SELECT count(*) FROM docwell.event WHERE state <> 'handled'") == [(0,)]
    assert followed.remote.failures == 0
