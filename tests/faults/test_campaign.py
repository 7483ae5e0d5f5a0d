"""The short campaign of continuous integration; `make faults` runs the long one."""

from __future__ import annotations

import pytest

from tests.faults.campaign import run
from tests.faults.profile import chosen_effort


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_wrong_while_everything_is_killed_at_random() -> None:
    report = run(chosen_effort(), blow_every=1.6, everything=False)
    print(report)
    assert report.violations == []
    assert report.blows.total() >= 5, "it was a storm"
    assert report.answers.total() >= 50, "readers were there"
    assert report.documents >= 5
