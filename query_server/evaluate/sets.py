"""Sets of questions: about the live corpus, as a person writes them down, or with a corpus of their own."""

from __future__ import annotations

import fnmatch
import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from query_server.service import LONGEST_QUERY
from shared.errors import PermanentError

_GLOB = frozenset("*?[")


class BadSet(PermanentError):
    """A set of questions cannot be understood; the message says where and why."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="bad_set")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is right for a question: a document, or a place in it.

    `path` is the document's path, the end of it from a `/` on, or a glob. For a document of a set's own corpus `stems` are the
    names, without ending, that its file may have.
    """

    path: str
    stems: frozenset[str] = frozenset()
    grade: float = 1.0
    page: int | None = None
    section: str | None = None

    @property
    def is_place(self) -> bool:
        """Not every passage of the document is right."""
        return self.page is not None or self.section is not None

    def matches(self, result: Mapping[str, Any]) -> bool:
        """Whether a passage, as `search_documents` answers it, is right.

        A section matches by part of its name, whatever the case. Short sections that follow each other stand in one passage: the
        headings in its text count too.
        """
        if not self._is_document(str(result["path"])):
            return False
        if self.page is not None and not result.get("page_start", 0) <= self.page <= result.get("page_end", -1):
            return False
        if self.section is None:
            return True
        headings = [line for line in str(result.get("text", "")).splitlines() if line.startswith("#")]
        return any(self.section.casefold() in name.casefold() for name in (str(result.get("section", "")), *headings))

    def _is_document(self, path: str) -> bool:
        if self.stems:
            return PurePosixPath(path).stem in self.stems
        if path == self.path or path.endswith("/" + self.path):
            return True
        return not _GLOB.isdisjoint(self.path) and (
            fnmatch.fnmatchcase(path, self.path) or fnmatch.fnmatchcase(path, "*/" + self.path)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question and what is right for it; nothing is, when the documents do not answer it."""

    id: str
    text: str
    expected: tuple[Expected, ...] = ()
    category: str = ""
    reason: str = ""
    answers: tuple[str, ...] = ()

    @property
    def answerable(self) -> bool:
        """Something is right for it."""
        return bool(self.expected)

    @property
    def by_place(self) -> bool:
        """Passages are ranked rather than documents, since a document can be right in one place and wrong in another."""
        return any(one.is_place for one in self.expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusDocument:
    """A document of a set's own corpus: its text, or the file that is taken as it is."""

    id: str
    title: str = ""
    text: str = ""
    suffix: str = ""
    file: Path | None = None

    def name(self, suffix: str = "") -> str:
        """The name it is taken in by; `suffix` is that of texts whose row tells none."""
        own = self.file.suffix if self.file is not None else self.suffix or suffix or (".md" if self.title else ".txt")
        return file_stem(self.id) + own

    def content(self) -> bytes:
        """The bytes it is taken in with; a title that the text does not begin with becomes its heading."""
        if self.file is not None:
            return self.file.read_bytes()
        if not self.title or self.suffix not in ("", ".md"):
            return self.text.encode("utf-8", "replace")
        # Only where it stands as a line: a sentence may begin with the same word.
        text = self.text.removeprefix(f"{self.title}\n").lstrip("\n")
        return f"# {self.title}\n\n{text}".encode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSet:
    """Questions, and the corpus that they are about unless that is the live one. `left_out` questions have no judgement.

    `unknown_documents` and `unknown_questions` count the judgements that name what the set does not have.
    """

    name: str
    questions: tuple[Question, ...]
    namespace: str = ""
    documents: tuple[CorpusDocument, ...] | None = None
    left_out: int = 0
    unknown_documents: int = 0
    unknown_questions: int = 0

    def sample(self, size: int, *, seed: int) -> QuestionSet:
        """At most `size` of the questions, in their order, chosen by chance."""
        if size >= len(self.questions):
            return self
        chosen = sorted(random.Random(seed).sample(range(len(self.questions)), size))  # noqa: S311 - nothing secret
        return replace(self, questions=tuple(self.questions[index] for index in chosen))


def file_stem(document_id: str) -> str:
    """The name, without ending, of the file of a corpus's document: ids hold what no path may."""
    return hashlib.sha256(document_id.encode("utf-8", "replace")).hexdigest()[:16]


def with_ids(questions: Sequence[Question], name: str) -> Iterator[Question]:
    """A question without an id gets one of its text, so that it is the same one in the next run, wherever it stands."""
    seen: set[str] = set()
    for question in questions:
        known = question.id or hashlib.sha256(question.text.encode("utf-8", "replace")).hexdigest()[:8]
        if known in seen:
            raise BadSet(
                f"{name}: the query {question.text!r} is there twice, or its id {known!r} is; give each an `id` of its own."
            )
        seen.add(known)
        yield replace(question, id=known)


def text_of(value: Any, where: str) -> str:
    """A text, empty for none; numbers are taken as what they look like, since YAML reads `id: 7` as one."""
    if value is None:
        return ""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise BadSet(f"{where}: a text is expected, this is {value!r}.")


def question_text(row: Mapping[str, Any], key: str, where: str) -> str:
    """The question that stands under `key`.

    Raises:
        BadSet: none does, or one that no search takes.
    """
    text = text_of(row.get(key), f"{where}: {key}").strip()
    if not text:
        raise BadSet(f"{where}: `{key}` is missing or empty.")
    if len(text) > LONGEST_QUERY:
        raise BadSet(f"{where}: `{key}` is longer than the {LONGEST_QUERY} characters that a search takes.")
    return text
