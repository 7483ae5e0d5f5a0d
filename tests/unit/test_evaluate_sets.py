"""Sets of questions, as people write them and as retrieval sets come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from query_server.evaluate.corpus_set import read_corpus_set
from query_server.evaluate.live_set import parse_live_set
from query_server.evaluate.run import rank_gains
from query_server.evaluate.sets import BadSet, CorpusDocument, Expected, Question, file_stem


def _write(folder: Path, corpus: list[Any], queries: list[Any], qrels: str) -> Path:
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "qrels.tsv").write_text(qrels, encoding="utf-8")
    return folder


def test_a_live_set_has_what_a_person_wrote() -> None:
    found = parse_live_set(
        {
            "namespace": "team",
            "queries": [
                {"query": "How long?", "path": "lease.pdf", "page": 3, "category": "words", "reason": "the second clause"},
                {"query": "Who knows?", "category": "off topic"},
            ],
        },
        name="mine",
    )
    assert (found.name, found.namespace, found.documents) == ("mine", "team", None)
    how, who = found.questions
    assert how.expected == (Expected(path="lease.pdf", page=3),)
    assert (how.category, how.reason, how.answerable, who.answerable) == ("words", "the second clause", True, False)


def test_a_question_keeps_its_id_when_others_come_before_it() -> None:
    first = parse_live_set([{"query": "a"}, {"query": "b"}], name="s").questions
    second = parse_live_set([{"query": "new"}, {"query": "a"}, {"query": "b"}], name="s").questions
    assert [one.id for one in first] == [one.id for one in second[1:]]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("text", "a list of queries is expected"),
        ([], "at least one query"),
        ([{"path": "a.md"}], "query 1: `query` is missing"),
        ([{"query": "x", "pth": "a.md"}], "nearest known one is `path`"),
        ([{"query": "x", "page": 2}], "need the `path`"),
        ([{"query": "x", "path": "a", "page": 0}], "counted from 1"),
        ([{"query": "x", "path": []}], "leave it out"),
        ([{"query": "x"}, {"query": "x"}], "is there twice"),
        ([{"query": ["x"]}], "a text is expected"),
        ([{"query": "x" * 10_001}], "longer than the 10000 characters"),
        ({"queries": [{"query": "x"}], "namspace": "n"}, "nearest known one is `namespace`"),
    ],
)
def test_what_is_no_set_is_refused_with_its_place_and_reason(value: Any, said: str) -> None:
    with pytest.raises(BadSet) as refused:
        parse_live_set(value, name="mine")
    assert str(refused.value).startswith("mine")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("wanted", "path", "right"),
    [
        ("docs/a.md", "docs/a.md", True),
        ("a.md", "/home/ada/docs/a.md", True),
        ("a.md", "docs/ba.md", False),
        ("docs/*.md", "docs/a.md", True),
        ("*.md", "/home/ada/docs/a.md", True),
        ("*.md", "docs/a.txt", False),
        ("[draft] a.md", "docs/[draft] a.md", True),
    ],
)
def test_a_path_is_the_whole_one_its_end_or_a_glob(wanted: str, path: str, right: bool) -> None:
    assert Expected(path=wanted).matches({"path": path}) is right


def test_a_page_and_a_section_must_be_those_of_the_passage() -> None:
    on_page = Expected(path="a.pdf", page=3)
    assert on_page.matches({"path": "a.pdf", "page_start": 2, "page_end": 3})
    assert not on_page.matches({"path": "a.pdf", "page_start": 4, "page_end": 5})
    assert not on_page.matches({"path": "a.pdf"})
    in_section = Expected(path="a.md", section="cancelling")
    assert in_section.matches({"path": "a.md", "section": "Billing > Cancelling"})
    assert not in_section.matches({"path": "a.md"})
    assert in_section.matches({"path": "a.md", "section": "Billing", "text": "# Billing\n\n## Cancelling\n\nWith one click."})
    assert not in_section.matches({"path": "a.md", "section": "Billing", "text": "# Billing\n\nNo cancelling."})


def _passages(*documents: str) -> list[dict[str, Any]]:
    return [{"document_id": name, "path": name, "page_start": page, "page_end": page} for page, name in enumerate(documents, 1)]


def test_a_passage_counts_for_its_document_and_the_first_of_a_document_counts() -> None:
    question = Question(id="q", text="q", expected=(Expected(path="b"), Expected(path="c", grade=2.0)))
    assert rank_gains(question, _passages("a", "a", "b", "a", "b", "c")) == [0.0, 1.0, 2.0]


def test_where_a_page_is_asked_for_passages_are_ranked() -> None:
    question = Question(id="q", text="q", expected=(Expected(path="a", page=3),))
    assert rank_gains(question, _passages("a", "a", "a", "a")) == [0.0, 0.0, 1.0, 0.0]


def test_what_is_right_counts_once() -> None:
    question = Question(id="q", text="q", expected=(Expected(path="*"),))
    assert rank_gains(question, _passages("a", "b")) == [1.0, 0.0]


def test_a_set_with_its_corpus_is_read_and_its_files_are_known_again(tmp_path: Path) -> None:
    folder = _write(
        tmp_path,
        [{"_id": "d/1", "title": "Salt", "text": "Salt is salty."}, {"id": "d2", "text": "fn main() {}", "path": "src/main.rs"}],
        [
            {"_id": "q1", "text": "what is salt", "answers": ["It is salty"]},
            {"id": "q2", "text": "main"},
            {"id": "q3", "text": "no"},
        ],
        "query-id\tcorpus-id\tscore\nq1\td/1\t2\nq1\td2\t0\nq2\td2\t1\n",
    )
    found = read_corpus_set(folder)
    assert (found.name, found.left_out) == (tmp_path.name, 1)
    assert [one.id for one in found.questions] == ["q1", "q2"]
    assert found.questions[0].answers == ("It is salty",)
    assert found.documents is not None
    salt, main = found.documents
    assert (salt.name(), main.name()) == (f"{file_stem('d/1')}.md", f"{file_stem('d2')}.rs")
    assert salt.content() == b"# Salt\n\nSalt is salty."
    assert main.content() == b"fn main() {}"
    [right] = found.questions[0].expected
    assert right.grade == 2.0
    assert right.matches({"path": salt.name()})
    assert not right.matches({"path": main.name()})


def test_questions_that_no_document_answers_are_marked_and_trec_columns_are_taken(tmp_path: Path) -> None:
    queries = [{"id": 1, "text": "a"}, {"id": 2, "text": "b", "unanswerable": True}]
    found = read_corpus_set(_write(tmp_path, [{"id": "d", "text": "t"}], queries, "1\t0\td\t1\n"))
    assert [(one.id, one.answerable) for one in found.questions] == [("1", True), ("2", False)]


def test_a_document_that_lies_beside_the_corpus_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "pdfs").mkdir()
    (tmp_path / "pdfs" / "2022 Q3.pdf").write_bytes(b"%PDF")
    found = read_corpus_set(_write(tmp_path, [{"id": "2022 Q3", "text": "words"}], [{"id": "q", "text": "a"}], "q\t2022 Q3\t1\n"))
    assert found.documents is not None
    assert (found.documents[0].content(), found.documents[0].name()) == (b"%PDF", f"{file_stem('2022 Q3')}.pdf")
    assert found.questions[0].expected[0].matches({"path": "/inbox/2022 Q3.pdf"})


@pytest.mark.parametrize(
    ("qrels", "said"),
    [
        ("q\td\n", "line 1: query, document and grade"),
        ("q\td\t0\n", "none of the 1 questions is judged"),
        ("h\tx\tscore\nq\td\tx\n", "line 2"),
    ],
)
def test_judgements_that_cannot_be_read_are_refused(tmp_path: Path, qrels: str, said: str) -> None:
    folder = _write(tmp_path, [{"id": "d", "text": "t"}], [{"id": "q", "text": "a"}], qrels)
    with pytest.raises(BadSet, match=said):
        read_corpus_set(folder)


def test_a_document_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    folder = _write(tmp_path, [{"id": "d", "text": "a"}, {"id": "d", "text": "b"}], [{"id": "q", "text": "a"}], "q\td\t1\n")
    with pytest.raises(BadSet, match="'d' is there 2 times"):
        read_corpus_set(folder)


def test_a_folder_without_a_corpus_is_refused_with_the_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BadSet, match=r"corpus\.jsonl cannot be read"):
        read_corpus_set(tmp_path)


def test_a_sample_is_the_same_for_the_same_seed_and_keeps_the_order(tmp_path: Path) -> None:
    found = parse_live_set([{"query": f"q{number}"} for number in range(50)], name="s")
    chosen = found.sample(10, seed=3).questions
    assert chosen == found.sample(10, seed=3).questions
    assert chosen != found.sample(10, seed=4).questions
    assert list(chosen) == [one for one in found.questions if one in chosen]
    assert found.sample(50, seed=3) is found


def test_a_title_that_the_text_begins_with_is_not_said_twice() -> None:
    assert CorpusDocument(id="d", title="Get started", text="Get started\n\n\nHello.").content() == b"# Get started\n\nHello."


def test_judgements_of_what_is_not_there_are_left_out_and_counted(tmp_path: Path) -> None:
    qrels = "q1\td1\t1\nq1\tgone\t1\nq2\tgone\t2\nnobody\td1\t1\nq1\tgone\t0\n"
    folder = _write(tmp_path, [{"id": "d1", "text": "t"}], [{"id": "q1", "text": "a"}, {"id": "q2", "text": "b"}], qrels)
    found = read_corpus_set(folder)
    assert [[one.path for one in question.expected] for question in found.questions] == [["d1"]]
    assert (found.left_out, found.unknown_documents, found.unknown_questions) == (1, 2, 1)
