"""Terms of texts and queries. The reports behind the cases are named where there is one."""

from __future__ import annotations

import unicodedata
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.lexical import (
    COUNTED_AT_ONCE,
    MOST_COUNTED,
    MOST_TERMS,
    TERM_SPACE,
    TermKind,
    counting_vectors,
    sparsevec_text,
    term_counts,
    term_number,
    term_places,
)
from shared.query_terms import fold_phrase, query_terms
from shared.serials import find_serials


def _holds(text: str, query: str) -> bool:
    """Whether every term of the query stands in the text, in the spelling that was asked for."""
    asked = {term.number for term in query_terms(query).terms if term.kind is not TermKind.SPELLING}
    return asked <= set(term_counts(text))


def _meets(text: str, query: str) -> bool:
    return not set(query_terms(query).numbers).isdisjoint(term_counts(text))


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("使用docker部署服务", "部署"),  # a run of Chinese is no single word (mem0 4884)
        ("使用docker部署服务", "docker"),  # and ends at a script border (openclaw 110500)
        ("GitHub备份脚本", "github 备份"),
        ("今日は東京タワーへ行く", "東京"),
        ("서울에서 부산까지", "서울"),
        ("ภาษาไทย", "ไทย"),
        ("电", "电"),
        ("The ｆｕｌｌ width", "full"),
        ("def process_load_confirmation_main():", "process_load_confirmation_main"),
        ("def process_load_confirmation_main():", "confirmation"),
        ("getUserName(id)", "user name"),
        ("getUserName(id)", "getusername"),
        ("HTTPServer", "http server"),
        ("upgraded to v1.9.2 today", "1.9.2"),
        ("upgraded to 1.9.2 today", "v1.9.2"),
        ("upgraded to v1.9.2 today", "1.9"),
        ("failed with ERR-0042.", "err-0042"),
        ("failed with ERR-0042.", "0042"),
        ("see src/app/main.py", "main.py"),
        ("see src/app/main.py", "src/app/main.py"),
        ("std::vector<int>", "vector"),
        ("written in C++ and C#", "c++"),
        ("we refunded it", "refunding"),
        ("the cafés", "cafe"),
        ("über Straßen", "strassen"),
        ("l'homme", "homme"),
        ("the customer’s account", "customer"),
        ("हिन्दी भाषा", "हिन्दी"),
        ("e\u0301tude", "étude"),
        ("die Rechnungen sind bezahlt", "Rechnung"),  # inflection at the end, in any language
        ("wir haben gekündigt: Kündigungsfrist", "Kündigung"),  # the first part of a compound
        ("с договорами", "договор"),
        ("τους λογαριασμούς", "λογαριασμός"),
        ("las facturaciones", "facturar"),
    ],
)
def test_a_text_holds_what_is_asked_for(text: str, query: str) -> None:
    assert _meets(text, query)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("电脑", "脑电"),
        ("refund", "refused"),
        ("C++", "c"),
        ("v1.9.2", "2"),
        ("process_load", "process_unload_all"),
        ("हिन्दी", "हिन"),
        ("", "a"),
    ],
)
def test_a_text_does_not_hold_what_only_looks_alike(text: str, query: str) -> None:
    assert not _holds(text, query)


_SPELLINGS_OF_A_NUMBER = ["4711", "4,711", "4.711", "4 711", "4'711", "4’711", "4\u00a0711", "4\u202f711"]


@pytest.mark.parametrize("asked", _SPELLINGS_OF_A_NUMBER)
@pytest.mark.parametrize("written", _SPELLINGS_OF_A_NUMBER)
def test_a_number_is_found_however_its_digits_are_grouped(written: str, asked: str) -> None:
    assert _meets(f"in all {written} of them", f"{asked} pieces")
    ((_, readings),) = query_terms(f"{asked} pieces").figures
    assert not readings.isdisjoint(term_counts(f"in all {written} of them"))


@pytest.mark.parametrize(
    "text", ["4,712", "14,711", "4,711,000", "47 11", "lines 4, 711", "5,4,711,3", "192.4.711", "4,7110", "711"]
)
def test_other_numbers_are_not_taken_for_it(text: str) -> None:
    assert not _meets(text, "4711")
    assert not _meets(text, "4,711")


@pytest.mark.parametrize(("text", "group"), [("4,711 pieces", "711"), ("4 711 pieces", "711"), ("pieces,100,200,40", "200")])
def test_what_may_be_numbers_in_a_row_is_found_one_by_one_too(text: str, group: str) -> None:
    assert _meets(text, group)
    assert _holds(text, text)


def test_an_address_or_a_version_stays_what_it_is() -> None:
    assert [term.surface for term in query_terms("192.168.100.7").identifiers] == ["192.168.100.7"]
    assert not _meets("192.168.100.7", "192168100")
    assert not _meets("192.168.100.200", "192168100200")
    assert _meets("192.168.100.200", "192.168")
    assert query_terms("since 1.902 of it").figures
    assert [term.surface for term in query_terms("since 1.902 of it").identifiers] == ["1.902"]


@pytest.mark.parametrize(
    ("one", "other"),
    [("Mueller", "Müller"), ("MUELLER", "müller"), ("Ueberstunden", "Überstunden"), ("Goethestrasse", "Göthestraße"),
     ("Maedchen", "Mädchen"), ("Ueberstundenregelung", "Überstunden"), ("Mueller-Thurgau", "Müller-Thurgau")],
)  # fmt: skip
def test_german_words_are_found_with_and_without_umlauts(one: str, other: str) -> None:
    assert _meets(f"von {one} geschrieben", other)
    assert _meets(f"von {other} geschrieben", one)


@pytest.mark.parametrize("word", ["neue", "Frauen", "Quelle", "Steuer", "treue"])
def test_words_without_an_umlaut_are_asked_for_as_they_are(word: str) -> None:
    assert all(term.kind is not TermKind.SPELLING for term in query_terms(word).terms)


def test_a_name_is_asked_for_with_its_umlaut_among_english_words_however_it_is_written() -> None:
    def spelled(query: str) -> list[str]:
        return [term.surface for term in query_terms(query).terms if term.kind is TermKind.SPELLING]

    assert [term.surface for term in query_terms("value of the report").terms if term.kind is TermKind.BEGINNING] == ["repor"]
    for name in ("Mueller", "mueller", "MUELLER"):
        assert spelled(f"who is the {name} of the report") == ["müller"]


def test_other_spellings_leave_room_for_the_words_of_a_long_question() -> None:
    question = query_terms(" ".join(f"Überwort{chr(97 + place)}ung" for place in range(12)))
    assert all(term.kind is not TermKind.SPELLING for term in question.terms)


@given(st.text(max_size=300))
def test_a_text_holds_all_terms_of_itself(text: str) -> None:
    counts = term_counts(text)
    assert _holds(text, text)
    assert all(1 <= number <= TERM_SPACE and count >= 1 for number, count in counts.items())
    assert len(counts) <= MOST_TERMS


@given(st.text(max_size=200))
def test_terms_do_not_depend_on_what_was_read_before(text: str) -> None:
    first = term_counts(text)
    term_counts(text.upper() + " other words")
    assert term_counts(text) == first


def test_a_term_has_the_same_number_on_every_machine() -> None:
    assert term_number("invoice") == 467_137_389


def test_of_too_many_terms_the_most_frequent_are_kept() -> None:
    text = " ".join(f"word{number}x" for number in range(9_000)) + " often" * 3
    counts = term_counts(text)
    assert len(counts) == MOST_TERMS
    assert counts[term_number("often")] == 3


def test_a_very_long_token_makes_short_work() -> None:
    assert len(term_counts("x" * 1_000_000)) <= 2
    assert len(term_counts("a1" * 100_000)) < 10


def test_function_words_are_asked_for_only_when_nothing_else_is() -> None:
    assert [term.surface for term in query_terms("what is the invoice").terms if term.kind is TermKind.EXACT] == ["invoice"]
    assert [term.surface for term in query_terms("to be or not to be").terms] == ["to", "be", "or", "not"]
    assert "not" in {term.surface for term in query_terms('refund "not to be"').terms}


@pytest.mark.parametrize(
    ("query", "identifiers"),
    [
        ("why does process_load fail", ["process_load"]),
        ("ERR-0042", ["err-0042"]),
        ("error E-5501 of the pump", ["e-5501"]),
        ("what changed in v1.9.2", ["1.9.2"]),
        ("open src/app/main.py please", ["src/app/main.py"]),
        ("how does getUserName work", ["getusername"]),
        ("sync with GitHub and PostgreSQL", []),
        ("PostgreSQL", ["postgresql"]),
        ("state-of-the-art methods", []),
        ("revenue in 2024", []),
        ("38147", ["38147"]),
        ("invoice", []),
        ("and/or", []),
    ],
)
def test_identifiers_are_told_from_words(query: str, identifiers: list[str]) -> None:
    found = [term.surface for term in query_terms(query).identifiers]
    assert found == identifiers or (query == "and/or" and len(found) <= 1)


def test_beginnings_weigh_more_in_a_query_that_is_not_english() -> None:
    def weight(query: str) -> float:
        return next(term.weight for term in query_terms(query).terms if term.kind is TermKind.BEGINNING)

    assert weight("how are refunds paid") == weight("refunds") == 0.25
    assert weight("wie werden Erstattungen bezahlt") == weight("как вернуть деньги") == 0.5


def test_the_forms_of_one_word_are_known_as_one() -> None:
    forms = query_terms("paying customers").terms
    words = {term.word: [form.surface for form in forms if form.word == term.word] for term in forms}
    assert list(words.values()) == [["pay", "paying", "payin"], ["custom", "customers", "custo"]]


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("max retries", "Max\nretries: 5"),
        ("foo.bar", "see foo.bar.baz"),
        ("load_config", "module.load_config()"),
        ("to be or not", "To be, or not to be. to be or not"),
        ("部署服务", "使用docker部署服务了"),
        ("v1.9", "since v1.9.2"),
        ("customer's", "the customer's account"),
    ],
)
def test_a_text_with_a_phrase_holds_its_certain_terms(phrase: str, text: str) -> None:
    asked = query_terms(f'x "{phrase}"')
    assert asked.phrases == (fold_phrase(phrase),)
    assert asked.phrase_terms[0]
    assert set(asked.phrase_terms[0]) <= set(term_counts(text))


def test_quoted_parts_are_phrases() -> None:
    assert query_terms('find "Max  Retries" and “no limit”').phrases == ("max retries", "no limit")
    assert fold_phrase("Max\n Retries") == "max retries"


def test_stored_counts_come_back_from_one_product_for_four_terms() -> None:
    counts = {7: 3, 42: 63, 99: 1, 100: 0, 5: 12}
    numbers = list(counts)
    stored = {number: count for number, count in counts.items() if count}
    for group, vector in enumerate(counting_vectors(numbers)):
        weights = {int(key): int(value) for key, value in (pair.split(":") for pair in vector[1:].split("}")[0].split(","))}
        product = sum(stored.get(number, 0) * weight for number, weight in weights.items())
        assert product < 2**24
        for place, number in enumerate(numbers[group * COUNTED_AT_ONCE : (group + 1) * COUNTED_AT_ONCE]):
            assert product >> (6 * place) & MOST_COUNTED == counts[number]


def test_a_count_is_stored_up_to_its_limit() -> None:
    assert sparsevec_text({42: 1, 7: 900}) == "{7:63,42:1}/1000000000"


@pytest.mark.parametrize(
    "question", ["Welche Kündigungsfrist gilt für Müller?", "the café on Straße 12, ERR-0042", "Überstunden"]
)
def test_a_query_asks_for_the_same_in_every_case_and_normal_form(question: str) -> None:
    asked = query_terms(question)
    forms = (question.upper(), question.lower(), unicodedata.normalize("NFD", question), f"  {question.replace(' ', chr(10))} ")
    for form in forms:
        found = query_terms(form)
        assert (found.terms, found.identifiers, found.needs, found.bare) == (
            asked.terms,
            asked.identifiers,
            asked.needs,
            asked.bare,
        ), form


@pytest.mark.parametrize(
    ("query", "words"),
    [("61 EUR", 2), ("4 711 EUR", 2), ("ERR-0042 timeout", 2), ("price of 61 EUR in May", 3), ("61", 0), ("refund policy", 0),
     ("61 one two three four five", 0), ("61 部署服务", 4)],
)  # fmt: skip
def test_a_brief_query_with_a_number_or_an_identifier_needs_all_of_its_words(query: str, words: int) -> None:
    needs = query_terms(query).needs
    assert len(needs) == words
    assert all(not forms.isdisjoint(term_counts(query)) for forms in needs)


@pytest.mark.parametrize("written", ["8750 EUR", "8.750,00 EUR", "8,750.00 EUR", "8750.00 EUR", "8750,00 EUR", "8'750 EUR"])
@pytest.mark.parametrize("query", ["8750", "8.750,00", "8,750.00", "8750.00", "8750,00"])
def test_an_amount_is_found_in_each_of_its_spellings(written: str, query: str) -> None:
    assert all(not forms.isdisjoint(term_counts(written)) for forms in query_terms(f"{query} EUR").needs)


_ONE_THING = [
    [
        "DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00",
        "de89-3704-0044-0532-0130-00",
        "DE89\u00a03704 0044 0532 0130 00",
    ],
    ["GB29NWBK60161331926819", "GB29 NWBK 6016 1331 9268 19"],
    ["4111111111111111", "4111 1111 1111 1111", "4111-1111-1111-1111"],
    ["0301234567", "030 1234567", "030/123 45 67", "(030) 123-4567", "+49 30 1234567", "+49 (0)30 1234567", "0049 30 1234567"],
    ["2125551234", "(212) 555-1234", "212-555-1234", "+1 212 555 1234"],
]


@pytest.mark.parametrize(("written", "query"), [pair for forms in _ONE_THING for pair in permutations(forms, 2)])
def test_the_number_of_an_account_a_card_or_a_phone_is_found_in_each_of_its_spellings(written: str, query: str) -> None:
    asked = query_terms(query)
    wanted = {term.number for term in asked.identifiers}
    assert asked.bare
    assert not wanted.isdisjoint(term_counts(f"See {written}, or ask."))
    assert term_places(f"See {written}, or ask.", wanted)[0][0] - 4 in (0, 1)


@pytest.mark.parametrize("text", ["2019 2020 2021 2022", "on 2024-03-15 12:30", "1 234 567", "+5 10 20", "192.168.100.200"])
def test_numbers_in_a_row_are_no_number_of_a_phone_or_a_card(text: str) -> None:
    assert list(find_serials(text)) == []


@pytest.mark.parametrize(("written", "query", "found"), [("61,50", "61.50", True), ("61.50", "61,50", True),
    ("61.50", "61", False), ("61.00", "61.50", False), ("161,00", "61", False), ("1.10", "1.1", False),
    ("61,500", "61,50", False), ("42,50", "42.5", True), ("42.5", "42,50", True), ("42,5", "42.50", True),
    ("42.50", "42,5", True), ("1.042,5", "1042.50", True), ("142,5", "42.5", False), ("42,05", "42,5", False)])  # fmt: skip
def test_decimals_are_a_part_of_an_amount(written: str, query: str, found: bool) -> None:
    ((_, readings),) = query_terms(f"{query}").figures or (("", frozenset(query_terms(query).numbers)),)
    assert (not readings.isdisjoint(term_counts(written))) is found
