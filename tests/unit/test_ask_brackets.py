"""Brackets in a model's answer: what looks like a citation is one."""

from __future__ import annotations

import pytest

from infra.ask.brackets import read_brackets
from infra.ask.shown import Shown

SHOWN = Shown(citation="[billing.pdf, pages 3–4]", path="billing.pdf", document_id="d", chunk_id="c")


@pytest.mark.parametrize(
    ("said", "shown", "named"),
    [
        ("Five days [billing.pdf, pages 3–4].", "Five days.", 1),
        ("Five days [Billing.pdf,  pages 3-4].", "Five days.", 1),
        ("Five days [billing.pdf, page 9].", "Five days (not cited: billing.pdf, page 9).", 0),
        (
            "See [terms.md] and [section 4 of the handbook].",
            "See (not cited: terms.md) and (not cited: section 4 of the handbook).",
            0,
        ),
        ("Five days[1][2]. Or six [^3], seven [4, 5].", "Five days. Or six, seven.", 0),
        ("Five days【4†source】.", "Five days(not cited: 4†source).", 0),
        ("[terms.md](http://x)", "(not cited: terms.md)(http://x)", 0),
        ("It lies in [1, 2], x = [3], from [0, 1].", "It lies in [1, 2], x = [3], from [0, 1].", 0),
        ("Use `rows[1]`, [optional] or [a link](http://x).", "Use `rows[1]`, [optional] or [a link](http://x).", 0),
        ("```\nrows[1]  # [billing.pdf, page 9]\n```", "```\nrows[1]  # [billing.pdf, page 9]\n```", 0),
    ],
)
def test_only_what_names_a_passage_that_was_shown_looks_like_a_citation(said: str, shown: str, named: int) -> None:
    assert read_brackets(said, {SHOWN.citation: SHOWN}) == (shown, [SHOWN] * named)
