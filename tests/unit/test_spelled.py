"""An identifier in another form is the same one; another identifier is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query_server.retrieve.spelled import bare_name, bare_text, pattern_of
from query_server.retrieve.together import stand_together
from shared.query_terms import query_terms


@pytest.mark.parametrize(
    ("name", "text", "written"),
    [
        ("ERR0042", "see ERR-0042.", "ERR-0042"),
        ("err_0042", "ERR 0042 came up", "ERR 0042"),
        ("INV2024001", "invoice INV-2024-001", "INV-2024-001"),
        ("INV/2024/001", "invoice INV-2024-001", "INV-2024-001"),
        ("processLoadMain", "calls process_load_main()", "process_load_main"),
        ("processloadconfirmation", "calls process_load_confirmation()", "process_load_confirmation"),
        ("std.vector", "a std::vector of them", "std::vector"),
        ("47110815", "article 4711-0815", "4711-0815"),
        ("4711-0815", "article 47110815", "47110815"),
        ("DE89370400440532013000", "IBAN DE89 3704 0044 0532 0130 00", "DE89 3704 0044 0532 0130 00"),
        ("1-9-2", "since 1.9.2", "1.9.2"),
    ],
)
def test_another_form_is_found_as_it_is_written(name: str, text: str, written: str) -> None:
    pattern = pattern_of(name)
    assert pattern is not None
    found = pattern.search(text)
    assert found is not None
    assert found[0] == written
    assert bare_name(name) in bare_text(text)


_PARTS = st.lists(
    st.sampled_from(["ERR", "err", "42", "0042", "Grösse", "STRASSE", "v", "1", "process", "Load"]), min_size=2, max_size=5
)
_BETWEEN = st.sampled_from(["", "-", "_", "/", ".", "::", " ", "‑", "–", "\\"])


@given(_PARTS, _BETWEEN, _BETWEEN, st.booleans())
def test_what_a_pattern_finds_is_never_ruled_out_beforehand(parts: list[str], asked: str, written: str, upper: bool) -> None:
    name, text = asked.join(parts), f"it says {written.join(parts)}, twice"
    text = text.upper() if upper else text
    pattern = pattern_of(name)
    if pattern is not None and pattern.search(text):
        assert bare_name(name) in bare_text(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ERR0042", "ERR-0042-7 and XERR-0042 and MY-ERR-0042 and ERR-00421"),
        ("v1.92", "since v1.9.2"),
        ("1.9.2", "since 1.92"),
        ("2024-1-15", "on 2024-11-5"),
        ("INV-2024-001", "INV-2024-0011"),
        ("123456", "it costs 1234.56"),
        ("12345", "1-2345"),
        ("invoice", "in-voice"),
        ("never said so", "never-said-so"),
    ],
)
def test_another_thing_is_not_taken_for_it(name: str, text: str) -> None:
    pattern = pattern_of(name)
    assert pattern is None or pattern.search(text) is None


@pytest.mark.parametrize(
    ("text", "close"),
    [("postage: 61.00 EUR", True), ("EUR 61", True), ("61 of them, and much later, when it was all over, EUR", False),
     ("| type 61 |\n| EUR |", False), ("61 61", False), ("EUR far from all that is said here, 61 EUR", True)],
)  # fmt: skip
def test_words_stand_together_or_in_one_text_only(text: str, close: bool) -> None:
    assert stand_together(text, query_terms("61 EUR").needs) is close
