"""Measures of a ranking, and the significance of a difference."""

from __future__ import annotations

import math

import numpy as np
import pytest

from query_server.evaluate.metrics import dcg, hit_at, mean, measure, ndcg_at, recall_at, reciprocal_rank
from query_server.evaluate.significance import compare


def test_a_hit_counts_within_its_depth_and_not_below() -> None:
    gains = [0.0] * 5 + [1.0]
    assert (hit_at(gains, 5), hit_at(gains, 6)) == (0.0, 1.0)
    assert reciprocal_rank(gains) == pytest.approx(1 / 6)
    assert (hit_at([], 5), reciprocal_rank([])) == (0.0, 0.0)


def test_graded_ndcg_is_that_of_trec_eval_on_a_worked_example() -> None:
    """Gains 3, 2, 3, 0, 1, 2 of ideal 3, 3, 2, 2, 1: linear gains, discount log2(rank + 1)."""
    gains = [3.0, 2.0, 3.0, 0.0, 1.0, 2.0]
    found = 3 + 2 / math.log2(3) + 3 / 2 + 1 / math.log2(6) + 2 / math.log2(7)
    ideal = 3 + 3 / math.log2(3) + 2 / 2 + 2 / math.log2(5) + 1 / math.log2(6)
    assert dcg(gains) == pytest.approx(found)
    assert ndcg_at(gains, [1.0, 2.0, 2.0, 3.0, 3.0], 10) == pytest.approx(found / ideal)


def test_what_is_right_and_missing_lowers_ndcg_and_recall() -> None:
    assert ndcg_at([1.0], [1.0], 10) == 1.0
    assert ndcg_at([1.0], [1.0, 1.0], 10) == pytest.approx(1 / (1 + 1 / math.log2(3)))
    assert recall_at([1.0, 0.0], 2, 10) == 0.5
    assert recall_at([0.0] * 10 + [1.0], 1, 10) == 0.0


def test_more_right_ones_than_the_depth_holds_can_still_be_perfect() -> None:
    assert ndcg_at([1.0] * 10, [1.0] * 25, 10) == pytest.approx(1.0)


def test_means_are_over_questions_and_of_none_there_is_none() -> None:
    both = mean([measure([1.0], [1.0]), measure([], [1.0])])
    assert both == {"hit@5": 0.5, "hit@10": 0.5, "mrr": 0.5, "ndcg@10": 0.5, "recall@10": 0.5}
    assert mean([]) is None


def test_a_clear_difference_is_significant_and_its_interval_keeps_off_zero() -> None:
    rng = np.random.default_rng(1)
    second = rng.random(80)
    found = compare(list(second + 0.1 + 0.05 * rng.standard_normal(80)), list(second))
    assert found is not None
    assert found.significant
    assert 0 < found.low < 0.1 < found.high < 0.2
    assert found.p_value == pytest.approx(1 / 10_001)


def test_no_difference_is_not_significant() -> None:
    rng = np.random.default_rng(2)
    second = rng.random(80)
    found = compare(list(second + 0.1 * rng.standard_normal(80)), list(second))
    assert found is not None
    assert not found.significant
    assert found.low < 0 < found.high
    same = compare([0.5, 1.0], [0.5, 1.0])
    assert same is not None
    assert (same.difference, same.p_value, same.better, same.worse) == (0.0, 1.0, 0, 0)


def test_the_p_value_of_a_few_questions_is_the_exact_one() -> None:
    """All of five questions better: two of the 32 sign patterns are as extreme."""
    found = compare([1.0] * 5, [0.0] * 5)
    assert found is not None
    assert found.p_value == pytest.approx(2 / 32, abs=0.01)


def test_false_alarms_are_as_rare_as_the_level_says() -> None:
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(200):
        found = compare(list(rng.random(40)), list(rng.random(40)), samples=500)
        assert found is not None
        alarms += found.significant
    assert 1 <= alarms <= 22


def test_the_same_seed_gives_the_same_numbers_and_the_order_of_questions_does_not_matter_much() -> None:
    first, second = [0.1, 0.9, 0.4, 1.0, 0.2, 0.5], [0.2, 0.5, 0.4, 0.3, 0.1, 0.5]
    assert compare(first, second) == compare(first, second)
    turned = compare(first[::-1], second[::-1])
    straight = compare(first, second)
    assert turned is not None
    assert straight is not None
    assert turned.p_value == pytest.approx(straight.p_value, abs=0.03)


def test_scores_that_cannot_be_paired_are_refused() -> None:
    with pytest.raises(ValueError, match="3 scores cannot be paired with 2"):
        compare([1.0, 1.0, 1.0], [0.0, 0.0])
    assert compare([], []) is None
