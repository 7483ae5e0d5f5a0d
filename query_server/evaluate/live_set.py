"""Questions about the live corpus, as a person writes them down in YAML."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from query_server.evaluate.sets import BadSet, Expected, Question, QuestionSet, question_text, text_of, with_ids

QUERY_KEYS = ("query", "path", "page", "section", "grade", "category", "reason", "id", "answers")
SET_KEYS = ("queries", "namespace", "name")


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
        name=text_of(whole.get("name"), f"{name}: name") or name,
        namespace=text_of(whole.get("namespace"), f"{name}: namespace"),
        questions=tuple(with_ids(questions, name)),
    )


def _live_question(row: Any, where: str) -> Question:
    if not isinstance(row, dict):
        raise BadSet(f"{where}: a mapping with `query` is expected, this is {row!r}.")
    _refuse_unknown(row, QUERY_KEYS, where)
    text = question_text(row, "query", where)
    paths = row.get("path")
    page, section, grade = row.get("page"), text_of(row.get("section"), f"{where}: section"), row.get("grade", 1)
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
        id=text_of(row.get("id"), f"{where}: id"),
        text=text,
        expected=tuple(
            Expected(path=unicodedata.normalize("NFC", path), grade=float(grade), page=page, section=section or None)
            for path in listed
        ),
        category=text_of(row.get("category"), f"{where}: category"),
        reason=text_of(row.get("reason"), f"{where}: reason"),
        answers=tuple(str(answer) for answer in (answers if isinstance(answers, list) else [answers])),
    )


def _refuse_unknown(row: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    for key in row:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)
            raise BadSet(f"{where}: unknown key {key!r}. The nearest known one is `{near[0] if near else known[0]}`.")
