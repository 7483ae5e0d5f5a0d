"""The one token counter: chunk sizes and answer budgets are counted with it, whatever model embeds.

It is the bundled model's tokenizer. It must never change with DOCWELL_EMBEDDING_MODEL: another counter would cut every
document anew.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shared.embedding.bundled import TOKENIZER_FILE, bundled_model_dir
from shared.errors import ConfigurationError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# A token takes some 300 bytes while it is being counted, so 1 MB of text at once would take hundreds of megabytes.
_WINDOW = 32_768


# Words are counted once and remembered, which makes counting prose some ten times as fast: few words of a text are new.
_LONGEST_REMEMBERED = 48
_MOST_REMEMBERED = 100_000


class TokenCounter:
    """Counts tokens without special tokens. Safe to share between threads.

    A text's count is the sum of its words' counts, where white space ends a word: the tokenizer starts anew there too. A word is
    counted in windows of 32,768 characters; one that is longer (no prose has one) is cut there, which can count a token or two
    more than it has. The same text always gives the same count.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, int] = {}

    @classmethod
    def from_file(cls, path: Path) -> TokenCounter:
        """Read a `tokenizer.json`.

        Raises:
            ConfigurationError: the file is missing or damaged, or the package tokenizers is not installed.
        """
        return cls(load_tokenizer(path))

    def count(self, text: str) -> int:
        """The number of tokens; 0 for text that is empty or white space."""
        return self.count_many([text])[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """`count` of each text, in order, with less overhead than one by one."""
        split = [text.split() for text in texts]
        known = self._known
        try:
            return [sum(map(known.__getitem__, words)) for words in split]
        except KeyError:
            learnt = self._learn(sorted(set().union(*split).difference(known)))
            return [sum([learnt[word] if word in learnt else known[word] for word in words]) for words in split]

    def _learn(self, words: Sequence[str]) -> dict[str, int]:
        """The counts of these words; short ones are kept for the next texts."""
        counted: dict[str, int] = {}
        for first in range(0, len(words), 1024):
            group = words[first : first + 1024]
            windows = [word[start:stop] for word in group for start, stop in _windows(word)]
            encodings = iter(self._tokenizer.encode_batch_fast(windows, add_special_tokens=False))
            for word in group:
                counted[word] = sum([len(next(encodings).ids) for _ in _windows(word)])
        if len(self._known) > _MOST_REMEMBERED:
            # A new dictionary: another thread may be reading the old one, where words are added and never removed.
            self._known = {}
        self._known.update({word: count for word, count in counted.items() if len(word) <= _LONGEST_REMEMBERED})
        return counted

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Each token's first character and the one after its last, in order.

        A token's range may begin with the white space before its word. A character that stands for several tokens (such as
        U+FDFA, a ligature of four words) gives each of them its own range.
        """
        found: list[tuple[int, int]] = []
        for start, stop in _windows(text):
            encoding = self._tokenizer.encode(text[start:stop], add_special_tokens=False)
            found.extend((start + first, start + last) for first, last in encoding.offsets)
        return found

    def truncate(self, text: str, tokens: int) -> str:
        """The longest beginning of `text` that ends with a whole token and has at most `tokens` of them."""
        if tokens <= 0:
            return ""
        offsets = self.offsets(text)
        if len(offsets) <= tokens:
            return text
        kept = tokens
        while kept > 0:
            cut = text[: offsets[kept - 1][1]]
            # A character that stands for several tokens is taken whole or not at all.
            if offsets[kept][0] >= offsets[kept - 1][1] and self.count(cut) <= tokens:
                return cut
            kept -= 1
        return ""


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a `tokenizer.json` with its parallelism off, because its threads do not survive a fork.

    Raises:
        ConfigurationError: the file is missing or damaged, or the package tokenizers is not installed.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigurationError(
            "The Python package tokenizers is not installed: install `docwell[local]`, or run `make install`.",
            code="tokenizers_missing",
        ) from error
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"The tokenizer {path} cannot be read ({error.strerror}). Run `make install`, which builds it.",
            code="tokenizer_missing",
        ) from error
    try:
        tokenizer: Tokenizer = Tokenizer.from_buffer(raw)
    except Exception as error:  # the library raises nothing more precise
        raise ConfigurationError(
            f"The tokenizer {path} is damaged ({error}). Run `make install`, which builds it again.",
            code="tokenizer_invalid",
        ) from error
    return tokenizer


@functools.cache
def load_token_counter() -> TokenCounter:
    """The bundled counter, read at the first call and kept for the process.

    Raises:
        ConfigurationError: it was not built yet; `make install` does.
    """
    return TokenCounter.from_file(bundled_model_dir() / TOKENIZER_FILE)


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """The text in pieces of at most 32,768 characters, that end before white space where there is any in their second half."""
    start = 0
    while len(text) - start > _WINDOW:
        stop = start + _WINDOW
        while stop > start + _WINDOW // 2 and not text[stop].isspace():
            stop -= 1
        if not text[stop].isspace():
            stop = start + _WINDOW
        yield start, stop
        start = stop
    if start < len(text):
        yield start, len(text)
