"""The bundled token counter: counts, offsets and cuts."""

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ConfigurationError
from shared.tokens import TokenCounter, load_token_counter

LONG = "The invoice is due within thirty days. Die Rechnung ist fällig.\n" * 2000


@pytest.fixture(scope="module")
def counter() -> TokenCounter:
    return load_token_counter()


def test_counts_of_known_texts_never_change(counter: TokenCounter) -> None:
    # Chunk borders depend on these numbers: a change here cuts every stored document anew.
    assert counter.count("how much protein per day 每天需要多少蛋白质？") == 12
    assert counter.count("def cancel(self):\n    return None\n") == 9
    assert counter.count("Kündigungsfrist von 30 Tagen") == 5


def test_white_space_has_no_tokens(counter: TokenCounter) -> None:
    assert counter.count("") == 0
    assert counter.count(" \n\t　 ") == 0
    assert counter.count("  a  b\n") == counter.count("a b") == 2


def test_names_of_control_tokens_in_a_text_are_ordinary_text(counter: TokenCounter) -> None:
    for name in ("<s>", "</s>", "<pad>", "<unk>", "<mask>"):
        assert counter.count(name) >= 3, name


def test_counting_many_equals_counting_each(counter: TokenCounter) -> None:
    texts = ["", "one", LONG, "two words", "每天需要多少蛋白质？", LONG[:40_000]]
    assert counter.count_many(texts) == [counter.count(text) for text in texts]
    assert counter.count_many([]) == []


@given(st.text(st.sampled_from("ab é\u0301ﬁﷺ每天_-.,;:()\n\t\u00a0\u3000\u200bЯä😀1")))
def test_words_count_in_a_text_as_they_do_alone(text: str) -> None:
    counter = load_token_counter()
    assert counter.count(text) == len(counter.offsets(text))


def test_windows_do_not_change_the_count_of_text_with_spaces(counter: TokenCounter) -> None:
    assert counter.count(LONG) == 2000 * counter.count(LONG[:64])


@pytest.mark.parametrize("unit", ["a", "每天需要多少蛋白质", "\u0300\u0323", "😀", "a_", "Zm9vYmFy"])
def test_a_long_text_without_spaces_takes_time_in_proportion_to_its_length(counter: TokenCounter, unit: str) -> None:
    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        best = float("inf")
        for _ in range(3):
            begin = time.thread_time()
            counter.count(text)
            best = min(best, time.thread_time() - begin)
        return best

    # Eight times the text; a quadratic count would take 64 times as long.
    assert seconds(160_000) < 24 * seconds(20_000) + 0.05


def test_a_megabyte_in_one_line_counts_as_its_parts_do(counter: TokenCounter) -> None:
    line = "每天需要多少蛋白质" * 40_000
    per_unit = counter.count(line[: 9 * 1000]) / 1000
    assert counter.count(line) == pytest.approx(per_unit * 40_000, rel=0.001)


def test_offsets_cover_every_character_that_is_no_space(counter: TokenCounter) -> None:
    for text in ("  Größe: 3 m²\n\tund mehr", "def f(x):\n    return x", "docker 部署 guide", "ﬁne 😀 \u0301", LONG):
        offsets = counter.offsets(text)
        assert len(offsets) == counter.count(text)
        assert all(first <= later for (first, _), (later, _) in pairwise(offsets))
        covered = {place for start, stop in offsets for place in range(start, stop)}
        assert all(place in covered for place, char in enumerate(text) if not char.isspace())


def test_truncating_keeps_whole_tokens_and_no_more_than_asked(counter: TokenCounter) -> None:
    text = "  Größe: 3 m²\n\tund mehr docker 部署 guide, Zm9vYmFyYmF6 ﷺ ende"
    total = counter.count(text)
    previous = ""
    for tokens in range(total + 2):
        cut = counter.truncate(text, tokens)
        assert text.startswith(cut)
        assert counter.count(cut) <= tokens
        assert len(cut) >= len(previous)
        previous = cut
    assert previous == text
    assert counter.truncate(text, -1) == ""
    assert counter.truncate("", 5) == ""


def test_a_character_of_many_tokens_is_cut_whole_or_not_at_all(counter: TokenCounter) -> None:
    assert counter.count("ﷺ") == 4
    assert counter.truncate("ﷺﷺ", 7) == "ﷺ"
    assert counter.truncate("ﷺﷺ", 3) == ""


def test_the_counter_is_read_once(counter: TokenCounter) -> None:
    assert load_token_counter() is counter


def test_a_counter_used_before_a_fork_works_in_the_child() -> None:
    code = (
        "import os, sys\n"
        "from shared.tokens import load_token_counter\n"
        "counter = load_token_counter()\n"
        "texts = ['one two', 'three'] * 300\n"
        "counter.count_many(texts)\n"
        "child = os.fork()\n"
        "assert counter.count_many(texts)[:2] == [2, 1]\n"
        "if child: sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_missing_tokenizer_names_the_command_that_builds_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="make install"):
        TokenCounter.from_file(tmp_path / "tokenizer.json")


def test_a_damaged_tokenizer_names_the_command_that_builds_it(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"model": ')
    with pytest.raises(ConfigurationError, match="damaged"):
        TokenCounter.from_file(path)
