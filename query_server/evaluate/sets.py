"""Sets of questions: about the live corpus, as a person writes them down, or with a corpus of their own."""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import json
import random
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from shared.errors import PermanentError

QUERY_KEYS = ("query", "path", "page", "section", "grade", "category", "reason", "id", "answers")
SET_KEYS = ("queries", "namespace", "name")
_GLOB = frozenset("*?[")
_AS_THEY_ARE = ("files", "pdfs")


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
    """Questions, and the corpus that they are about unless that is the live one. `left_out` questions have no judgement."""

    name: str
    questions: tuple[Question, ...]
    namespace: str = ""
    documents: tuple[CorpusDocument, ...] | None = None
    left_out: int = 0

    def sample(self, size: int, *, seed: int) -> QuestionSet:
        """At most `size` of the questions, in their order, chosen by chance."""
        if size >= len(self.questions):
            return self
        chosen = sorted(random.Random(seed).sample(range(len(self.questions)), size))  # noqa: S311 - nothing secret
        return replace(self, questions=tuple(self.questions[index] for index in chosen))


def file_stem(document_id: str) -> str:
    """The name, without ending, of the file of a corpus's document: ids hold what no path may."""
    return hashlib.sha256(document_id.encode("utf-8", "replace")).hexdigest()[:16]


def parse_live_set(value: Any, *, name: str) -> QuestionSet:
    """A set about the live corpus from what stands in its YAML file: a list of queries, or `{namespace, queries}`.

    Each query has `query`; `path` (or a list of them) of the right document, absent when no document answers it; if wanted
    `page` or `section` in it, `category`, `reason`, `id`, `answers`, `grade`.

    Raises:
        BadSet: something else stands there.
    """
    whole = {"queries": value} if isinstance(value, list) else value
    if not isinstance(whole, dict):
        raise BadSet(f"{name}: a list of queries is expected, or a mapping with `queries`.")
    _refuse_unknown(whole, SET_KEYS, name)
    rows = whole.get("queries")
    if not isinstance(rows, list) or not rows:
        raise BadSet(f"{name}: `queries` is expected to be a list of at least one query.")
    questions = [_live_question(row, f"{name}, query {number}") for number, row in enumerate(rows, start=1)]
    return QuestionSet(
        name=_text(whole.get("name"), f"{name}: name") or name,
        namespace=_text(whole.get("namespace"), f"{name}: namespace"),
        questions=tuple(_with_ids(questions, name)),
    )


def _live_question(row: Any, where: str) -> Question:
    if not isinstance(row, dict):
        raise BadSet(f"{where}: a mapping with `query` is expected, this is {row!r}.")
    _refuse_unknown(row, QUERY_KEYS, where)
    text = _text(row.get("query"), f"{where}: query").strip()
    if not text:
        raise BadSet(f"{where}: `query` is missing or empty.")
    paths = row.get("path")
    page, section, grade = row.get("page"), _text(row.get("section"), f"{where}: section"), row.get("grade", 1)
    if page is not None and (not isinstance(page, int) or isinstance(page, bool) or page < 1):
        raise BadSet(f"{where}: `page` is the PDF's own page, counted from 1, and this is {page!r}.")
    if not isinstance(grade, int | float) or isinstance(grade, bool) or grade <= 0:
        raise BadSet(f"{where}: `grade` is a number above 0, and this is {grade!r}.")
    if paths is None and (page is not None or section):
        raise BadSet(f"{where}: `page` and `section` need the `path` of their document.")
    listed = [] if paths is None else paths if isinstance(paths, list) else [paths]
    if paths is not None and (not listed or not all(isinstance(path, str) and path for path in listed)):
        raise BadSet(f"{where}: `path` is a path, or a list of them; leave it out when no document answers the query.")
    answers = row.get("answers", [])
    return Question(
        id=_text(row.get("id"), f"{where}: id"),
        text=text,
        expected=tuple(
            Expected(path=unicodedata.normalize("NFC", path), grade=float(grade), page=page, section=section or None)
            for path in listed
        ),
        category=_text(row.get("category"), f"{where}: category"),
        reason=_text(row.get("reason"), f"{where}: reason"),
        answers=tuple(str(answer) for answer in (answers if isinstance(answers, list) else [answers])),
    )


def _with_ids(questions: Sequence[Question], name: str) -> Iterator[Question]:
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


def _refuse_unknown(row: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    for key in row:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)
            raise BadSet(f"{where}: unknown key {key!r}. The nearest known one is `{near[0] if near else known[0]}`.")


def _text(value: Any, where: str) -> str:
    """A text; numbers are taken as what they look like, since YAML reads `id: 7` as one."""
    if value is None:
        return ""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise BadSet(f"{where}: a text is expected, this is {value!r}.")


def read_corpus_set(folder: Path) -> QuestionSet:
    """A set with a corpus of its own, in the form of BEIR (Thakur et al., NeurIPS 2021).

    `corpus.jsonl` has `id` (or `_id`), `title`, `text` and, if wanted, `path`, whose ending says what the text is; a document
    that lies in the folder `files` or `pdfs` under its id is taken from there. `queries.jsonl` has `id`, `text` and, if wanted,
    `answers`, `category`, and `unanswerable`. `qrels.tsv` has query, document and grade, or TREC's four columns. Questions
    that it does not judge are left out.

    Raises:
        BadSet: a file is missing or cannot be understood.
    """
    as_they_are = {
        path.stem: path for name in _AS_THEY_ARE if (folder / name).is_dir() for path in sorted((folder / name).iterdir())
    }
    documents = [_corpus_document(row, where, as_they_are) for where, row in _read_lines(folder / "corpus.jsonl")]
    judged = _read_qrels(folder / "qrels.tsv")
    questions = []
    total = 0
    for where, row in _read_lines(folder / "queries.jsonl"):
        total += 1
        question = _corpus_question(row, where, judged)
        if question.answerable or row.get("unanswerable"):
            questions.append(question)
    if not questions:
        raise BadSet(f"{folder}: none of the {total} questions is judged in qrels.tsv.")
    return QuestionSet(
        name=folder.resolve().name,
        questions=tuple(_with_ids(questions, folder.name)),
        documents=tuple(documents),
        left_out=total - len(questions),
    )


def _corpus_document(row: Mapping[str, Any], where: str, as_they_are: Mapping[str, Path]) -> CorpusDocument:
    document_id = _row_id(row, where)
    return CorpusDocument(
        id=document_id,
        title=_text(row.get("title"), f"{where}: title"),
        text=_text(row.get("text"), f"{where}: text"),
        suffix=PurePosixPath(_text(row.get("path"), f"{where}: path")).suffix,
        file=as_they_are.get(document_id),
    )


def _corpus_question(row: Mapping[str, Any], where: str, judged: Mapping[str, Mapping[str, float]]) -> Question:
    question_id = _row_id(row, where)
    text = _text(row.get("text"), f"{where}: text").strip()
    if not text:
        raise BadSet(f"{where}: `text` is missing or empty.")
    answers = row.get("answers") or []
    return Question(
        id=question_id,
        text=text,
        expected=tuple(
            Expected(path=document, stems=frozenset({document, file_stem(document)}), grade=grade)
            for document, grade in sorted(judged.get(question_id, {}).items())
        ),
        category=_text(row.get("category"), f"{where}: category"),
        reason=_text(row.get("reason"), f"{where}: reason"),
        answers=tuple(str(answer) for answer in (answers if isinstance(answers, list) else [answers])),
    )


def _row_id(row: Mapping[str, Any], where: str) -> str:
    found = _text(row.get("id", row.get("_id")), f"{where}: id")
    if not found:
        raise BadSet(f"{where}: `id` is missing.")
    return found


def _read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(_read(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BadSet(f"{where} is no JSON: {error}.") from error
        if not isinstance(row, dict):
            raise BadSet(f"{where}: a JSON object is expected.")
        yield where, row


def _read_qrels(path: Path) -> dict[str, dict[str, float]]:
    """Grades above 0 by question and document."""
    judged: dict[str, dict[str, float]] = {}
    for number, line in enumerate(_read(path).splitlines(), start=1):
        cells = line.split("\t")
        if not line.strip() or (number == 1 and len(cells) > 2 and not _is_number(cells[-1])):
            continue
        if len(cells) == 4:
            del cells[1]
        if len(cells) != 3 or not _is_number(cells[2]):
            raise BadSet(f"{path}, line {number}: query, document and grade are expected, with tabs between them.")
        if float(cells[2]) > 0:
            judged.setdefault(cells[0], {})[cells[1]] = float(cells[2])
    return judged


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSet(f"{path} cannot be read: {error}.") from error
