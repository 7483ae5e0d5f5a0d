"""When a file has come to rest: examples, then every order of events against a plain model."""

from __future__ import annotations

import hashlib

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ingest_worker.intake.settle import Due, Missing, Settler, Signature, match_moves

SETTLE, GRACE = 1.0, 2.0
A, B = Signature(size=10, modified_ns=1), Signature(size=20, modified_ns=2)


def settler(capacity: int = 100) -> Settler:
    return Settler(settle_seconds=SETTLE, grace_seconds=GRACE, capacity=capacity)


def test_a_file_is_due_exactly_when_it_has_not_changed_for_the_settle_time() -> None:
    waiting = settler()
    waiting.saw("a", "a", A, 10.0)
    assert waiting.next_deadline() == 11.0
    assert waiting.due(10.999) == []
    assert [one.path for one in waiting.due(11.0)] == ["a"]


def test_every_change_starts_the_time_again_and_an_equal_look_does_not() -> None:
    waiting = settler()
    waiting.saw("a", "a", A, 0.0)
    waiting.saw("a", "a", B, 0.9)
    waiting.saw("a", "a", B, 1.5)
    assert waiting.due(1.8) == []
    assert waiting.next_deadline() == 1.9
    assert [one.signature for one in waiting.due(1.9)] == [B]


def test_a_missing_file_is_due_after_the_grace() -> None:
    waiting = settler()
    waiting.saw("a", "a", None, 0.0)
    assert waiting.due(1.99) == []
    assert [one.signature for one in waiting.due(2.0)] == [None]


def test_a_delete_followed_by_a_create_is_one_change() -> None:
    waiting = settler()
    waiting.saw("a", "a", None, 0.0)
    assert list(waiting.missing()) == ["a"]
    waiting.saw("a", "a", B, 0.5)
    assert list(waiting.missing()) == []
    assert [one.signature for one in waiting.due(1.5)] == [B]
    waiting.done(["a"])
    assert waiting.due(100.0) == []


def test_what_is_due_stays_until_it_is_done_or_postponed() -> None:
    waiting = settler()
    waiting.saw("a", "a", A, 0.0)
    assert len(waiting.due(1.0)) == 1
    assert waiting.due(1.0) == []
    waiting.postpone(["a"], 5.0)
    assert waiting.next_deadline() == 5.0
    assert len(waiting.due(5.0)) == 1
    waiting.done(["a"])
    assert (len(waiting), waiting.next_deadline()) == (0, None)


def test_a_file_that_is_touched_again_while_it_is_due_settles_again() -> None:
    waiting = settler()
    waiting.saw("a", "a", A, 0.0)
    waiting.due(1.0)
    waiting.saw("a", "a", B, 1.2)
    assert waiting.next_deadline() == 2.2


def test_no_more_files_wait_than_there_is_room_for() -> None:
    waiting = settler(capacity=2)
    assert waiting.saw("a", "a", A, 0.0)
    assert waiting.saw("b", "b", A, 0.0)
    assert not waiting.saw("c", "c", A, 0.0)
    assert waiting.saw("a", "a", B, 0.0)


def test_a_file_renamed_twice_remembers_where_it_came_from() -> None:
    waiting = settler()
    waiting.saw("a", "a", None, 0.0)
    waiting.saw("b", "b", A, 0.0, moved_from="a")
    waiting.saw("b", "b", None, 0.1)
    waiting.saw("c", "c", A, 0.1, moved_from="b")
    assert waiting.origins() == {"a"}


def due(path: str, content: bytes, *, moved_from: str | None = None, modified_ns: int = 1) -> Due:
    return Due(path=path, name=path, signature=Signature(size=len(content), modified_ns=modified_ns), moved_from=moved_from)


def known(content: bytes, *, modified_ns: int = 1) -> Missing:
    return Missing(size=len(content), modified_ns=modified_ns, sha256=hashlib.sha256(content).digest())


def test_the_same_content_elsewhere_is_a_move_and_other_content_of_the_same_size_is_not() -> None:
    contents = {"new": b"same", "other": b"else"}
    moves, rest = match_moves(
        [due("other", b"else"), due("new", b"same")],
        {"old": known(b"same")},
        lambda name: hashlib.sha256(contents[name]).digest(),
    )
    assert [(move.old, move.arrived.path) for move in moves] == [("old", "new")]
    assert [one.path for one in rest] == ["other"]


def test_no_file_is_read_when_no_size_fits() -> None:
    def digest(name: str) -> bytes:
        raise AssertionError(name)

    moves, rest = match_moves([due("new", b"longer")], {"old": known(b"same")}, digest)
    assert (moves, len(rest)) == ([], 1)


def test_a_rename_that_was_seen_needs_no_reading_while_size_and_time_agree() -> None:
    def digest(name: str) -> bytes:
        raise AssertionError(name)

    moves, _ = match_moves([due("new", b"same", moved_from="old")], {"old": known(b"same")}, digest)
    assert [(move.old, move.same_time) for move in moves] == [("old", True)]


def test_a_renamed_file_that_was_written_since_is_no_move() -> None:
    moves, rest = match_moves(
        [due("new", b"edit", moved_from="old", modified_ns=9)],
        {"old": known(b"same")},
        lambda _: hashlib.sha256(b"edit").digest(),
    )
    assert (moves, len(rest)) == ([], 1)


def test_a_document_that_nobody_read_yet_moves_with_its_file() -> None:
    moves, _ = match_moves([due("new", b"same", moved_from="old")], {"old": Missing()}, lambda _: None)
    assert [(move.old, move.same_time) for move in moves] == [("old", False)]


def test_two_copies_of_one_missing_file_are_one_move_and_one_new_file() -> None:
    moves, rest = match_moves(
        [due("x/copy.md", b"same"), due("y/old.md", b"same")],
        {"old.md": known(b"same")},
        lambda _: hashlib.sha256(b"same").digest(),
    )
    assert (len(moves), len(rest)) == (1, 1)


def test_of_several_missing_files_with_this_content_the_one_of_the_same_name_moved() -> None:
    moves, _ = match_moves(
        [due("new/b.md", b"same")],
        {"old/a.md": known(b"same"), "old/b.md": known(b"same")},
        lambda _: hashlib.sha256(b"same").digest(),
    )
    assert [move.old for move in moves] == ["old/b.md"]


PATHS = st.sampled_from(["a", "b", "c", "d"])


class SettlerAgainstModel(RuleBasedStateMachine):
    """The model keeps, for each path, the last signature seen and when it was seen first."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.settler = Settler(settle_seconds=SETTLE, grace_seconds=GRACE, capacity=3)
        self.model: dict[str, tuple[Signature | None, float]] = {}
        self.out: set[str] = set()

    @rule(seconds=st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.5]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(path=PATHS, signature=st.sampled_from([None, A, B]), origin=st.none() | PATHS)
    def somebody_looks(self, path: str, signature: Signature | None, origin: str | None) -> None:
        fits = path in self.model or len(self.model) < 3
        assert self.settler.saw(path, path, signature, self.now, moved_from=origin) is fits
        if not fits:
            return
        if path not in self.model or self.model[path][0] != signature:
            self.model[path] = (signature, self.now)
        self.out.discard(path)

    @rule(limit=st.sampled_from([1, 2, 500]))
    def files_come_to_rest(self, limit: int) -> None:
        ready = {
            path
            for path, (signature, since) in self.model.items()
            if path not in self.out and self.now >= since + (GRACE if signature is None else SETTLE)
        }
        found = self.settler.due(self.now, limit=limit)
        assert {one.path for one in found} <= ready
        assert len(found) == min(limit, len(ready))
        for one in found:
            assert one.signature == self.model[one.path][0]
        self.out |= {one.path for one in found}

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def one_is_done(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.out)))
        self.settler.done([path])
        self.out.discard(path)
        del self.model[path]

    @precondition(lambda self: self.out)
    @rule()
    def the_database_is_away(self) -> None:
        self.settler.postpone(self.out, self.now)
        self.out.clear()

    @invariant()
    def the_settler_knows_what_the_model_knows(self) -> None:
        assert len(self.settler) == len(self.model)
        assert set(self.settler.missing()) == {path for path, (signature, _) in self.model.items() if signature is None}
        waiting = [
            since + (GRACE if signature is None else SETTLE)
            for path, (signature, since) in self.model.items()
            if path not in self.out
        ]
        deadline = self.settler.next_deadline()
        # It may wake too early, after a change that moved the time on, and never too late.
        assert (deadline is None) == (not waiting)
        assert deadline is None or deadline <= max(min(waiting), self.now)


SettlerAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSettlerAgainstModel = SettlerAgainstModel.TestCase
