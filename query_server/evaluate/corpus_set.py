"""A set with a corpus of its own: `corpus.jsonl`, `queries.jsonl`, `qrels.tsv`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from pathlib import Path, PurePosixPath
from typing import Any

from query_server.evaluate.sets import (
    BadSet,
    CorpusDocument,
    Expected,
    Question,
    QuestionSet,
    file_stem,
    question_text,
    text_of,
    with_ids,
)

_AS_THEY_ARE = ("files", "pdfs")


def read_corpus_set(folder: Path) -> QuestionSet:
    """A set with a corpus of its own, in the form of BEIR (Thakur et al., NeurIPS 2021).

    `corpus.jsonl` has `id` (or `_id`), `title`, `text` and, if wanted, `path`, whose ending says what the text is; a document
    that lies in the folder `files` or `pdfs` under its id is taken from there. `queries.jsonl` has `id`, `text` and, if wanted,
    `answers`, `category`, and `unanswerable`. `qrels.tsv` has query, document and grade, or TREC's four columns. Questions
    that it does not judge are left out, and so are judgements of documents and questions that are not there, which are counted.

    Raises:
        BadSet: a file is missing or cannot be understood.
    """
    as_they_are = {
        path.stem: path for name in _AS_THEY_ARE if (folder / name).is_dir() for path in sorted((folder / name).iterdir())
    }
    documents = [_corpus_document(row, where, as_they_are) for where, row in _read_lines(folder / "corpus.jsonl")]
    for document_id, count in Counter(document.id for document in documents).items():
        if count > 1:
            raise BadSet(f"{folder / 'corpus.jsonl'}: the document {document_id!r} is there {count} times.")
    judged, unknown_documents = _known(_read_qrels(folder / "qrels.tsv"), {document.id for document in documents})
    asked_about = set()
    questions = []
    total = 0
    for where, row in _read_lines(folder / "queries.jsonl"):
        total += 1
        asked_about.add(_row_id(row, where))
        question = _corpus_question(row, where, judged)
        if question.answerable or row.get("unanswerable"):
            questions.append(question)
    if not questions:
        raise BadSet(f"{folder}: none of the {total} questions is judged in qrels.tsv.")
    return QuestionSet(
        name=folder.resolve().name,
        questions=tuple(with_ids(questions, folder.name)),
        documents=tuple(documents),
        left_out=total - len(questions),
        unknown_documents=unknown_documents,
        unknown_questions=sum(len(grades) for question, grades in judged.items() if question not in asked_about),
    )


def _known(judged: Mapping[str, Mapping[str, float]], documents: Set[str]) -> tuple[dict[str, dict[str, float]], int]:
    """The judgements of documents that are there, and how many others: what nobody can find would lower every metric."""
    known = {
        question: {document: grade for document, grade in grades.items() if document in documents}
        for question, grades in judged.items()
    }
    return known, sum(map(len, judged.values())) - sum(map(len, known.values()))


def _corpus_document(row: Mapping[str, Any], where: str, as_they_are: Mapping[str, Path]) -> CorpusDocument:
    document_id = _row_id(row, where)
    return CorpusDocument(
        id=document_id,
        title=text_of(row.get("title"), f"{where}: title"),
        text=text_of(row.get("text"), f"{where}: text"),
        suffix=PurePosixPath(text_of(row.get("path"), f"{where}: path")).suffix,
        file=as_they_are.get(document_id),
    )


def _corpus_question(row: Mapping[str, Any], where: str, judged: Mapping[str, Mapping[str, float]]) -> Question:
    question_id = _row_id(row, where)
    text = question_text(row, "text", where)
    answers = row.get("answers") or []
    return Question(
        id=question_id,
        text=text,
        expected=tuple(
            Expected(path=document, stems=frozenset({document, file_stem(document)}), grade=grade)
            for document, grade in sorted(judged.get(question_id, {}).items())
        ),
        category=text_of(row.get("category"), f"{where}: category"),
        reason=text_of(row.get("reason"), f"{where}: reason"),
        answers=tuple(str(answer) for answer in (answers if isinstance(answers, list) else [answers])),
    )


def _row_id(row: Mapping[str, Any], where: str) -> str:
    found = text_of(row.get("id", row.get("_id")), f"{where}: id")
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
