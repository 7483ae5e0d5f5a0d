from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ingest_worker.chunk.borders import Rules, boundary_key, find_borders

_UNITS = st.lists(st.tuples(st.integers(1, 300), st.sampled_from([1, 2, 10, 20, 99, 100]), st.integers(0, 5)), max_size=80)
_RULES = Rules(limit=400, window=80, firm=7, windows={1: 50, 2: 50})


def _pieces(units: list[tuple[int, int, int]], rules: Rules) -> list[list[int]]:
    sizes, ranks, keys = ([unit[i] for unit in units] for i in range(3))
    borders = [0, *find_borders(sizes, ranks, keys, rules), len(units)]
    assert borders == sorted(set(borders)) or not units
    return [sizes[start:end] for start, end in pairwise(borders)]


@given(_UNITS)
def test_every_piece_fits_whatever_the_units_are(units: list[tuple[int, int, int]]) -> None:
    pieces = _pieces(units, _RULES)
    assert [size for piece in pieces for size in piece] == [unit[0] for unit in units]
    assert all(sum(piece) <= 400 for piece in pieces)


def test_a_run_that_fits_is_one_piece_unless_a_heading_stands_in_it() -> None:
    assert len(_pieces([(100, 10, 1), (100, 10, 2), (100, 10, 3)], _RULES)) == 1
    assert len(_pieces([(100, 1, 1), (100, 10, 2), (100, 1, 3)], _RULES)) == 2


def test_a_very_small_section_does_not_stand_alone() -> None:
    assert len(_pieces([(100, 1, 1), (20, 2, 1), (30, 2, 2), (20, 2, 3)], _RULES)) == 2


def test_a_thousand_equal_lines_are_cut_into_few_pieces() -> None:
    pieces = _pieces([(10, 10, 7)] * 1000, _RULES)
    assert len(pieces) < 60


def test_a_key_depends_on_the_beginning_alone() -> None:
    assert boundary_key("  " + "a" * 64 + "tail") == boundary_key("a" * 64 + "other tail")
