from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.text import clean_text


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
        ("nul\0 bell\x07 del\x7f mark\ufeff", "nul bell del mark"),
        ("lone \ud800 half", "lone \ufffd half"),
        ("line\ufffe end", "line end"),
        ("so\u00adft", "soft"),
        ("ﬁnd the ﬂow oﬃce", "find the flow office"),
        ("ﻣﺮﺣﺒﺎ", "مرحبا"),
        ("⽂字", "文字"),
        ("cafe\u0301", "café"),
        ("tab\tform\fstay", "tab\tform\fstay"),
        ("\ufdfa", "\ufdfa"),
    ],
)
def test_text_is_cleaned_once_and_for_all(raw: str, clean: str) -> None:
    assert clean_text(raw) == clean


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=60))
def test_clean_text_stays_clean_and_keeps_its_lines(raw: str) -> None:
    clean = clean_text(raw)
    assert clean_text(clean) == clean
    assert unicodedata.is_normalized("NFC", clean)
    assert clean.count("\n") == sum(raw.replace("\r\n", "\n").count(end) for end in "\n\r\u2028\u2029")
    clean.encode("utf-8")
