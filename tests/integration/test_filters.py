"""Filters narrow both legs alike, and never cost a hit that exists."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgvector.psycopg import register_vector

from query_server.access import LOCAL, Principal, scope
from query_server.retrieve import keyword as keyword_module
from query_server.retrieve import semantic
from query_server.retrieve.filters import EVERYTHING, Filters, make_filters
from query_server.retrieve.keyword import FrequencyCache, keyword_leg
from query_server.retrieve.places import find_places
from query_server.retrieve.scope import measure
from query_server.retrieve.semantic import active_space, semantic_leg
from shared.database import connect
from shared.documents import ChunkKind
from shared.errors import PermanentError
from shared.query_terms import query_terms
from tests.asking import DIMENSION, MODEL, NOW, add, embed_words, serving
from tests.conftest import Database
from tests.corpus import open_corpus, text_chunk

FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
FOLDERS = ("", "docs/", "docs/deep/", "src/")
KINDS = (ChunkKind.TEXT, ChunkKind.TABLE, ChunkKind.CODE)
TENANT = Principal(name="tenant", namespaces=frozenset({"west"}), names=frozenset({"group:eng"}))


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """A passage of the library, with all that filters ask for."""

    chunk_id: uuid.UUID
    path: str
    namespace: str
    source: str
    tags: frozenset[str]
    modified: datetime | None
    kind: ChunkKind
    readers: tuple[str, ...]

    def is_open_to(self, principal: Principal) -> bool:
        if principal.namespaces is not None and self.namespace not in principal.namespaces:
            return False
        return principal.names is None or not self.readers or not principal.names.isdisjoint(self.readers)


@pytest.fixture(scope="module")
def library(module_database: Database) -> Iterator[list[Indexed]]:
    """Forty documents of two passages, every one of which has the word alpha; the vectors of most are under the index."""
    found = []
    with open_corpus(module_database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
        for number in range(40):
            path = f"{FOLDERS[number % 4]}page{number}.{'py' if number % 3 == 0 else 'md'}"
            namespace = "west" if number % 8 == 5 else "east"
            source = "push-rare" if number % 10 == 5 else "push-common"
            tags = [tag for tag, every in (("two", 2), ("five", 5)) if number % every == 0]
            readers = ["group:eng"] if number % 7 == 6 else ["group:hr"] if number % 16 == 13 else None
            kind = KINDS[number % 3]
            chunks = [
                text_chunk(f"alpha first passage {number}"),
                text_chunk(f"alpha second passage {number}", kind=kind),
            ]
            document = add(corpus, path, *chunks, kind="push", source=source, namespace=namespace, tags=tags, readers=readers)
            modified = FIRST_DAY + timedelta(days=number) if number % 9 else None
            corpus.connection.execute(
                "UPDATE docwell.document SET source_modified = %s WHERE document_id = %s", (modified, document)
            )
            found += [
                Indexed(
                    chunk_id=chunk.chunk_id,
                    path=path,
                    namespace=namespace,
                    source=source,
                    tags=frozenset(tags),
                    modified=modified,
                    kind=chunk.kind,
                    readers=tuple(readers or ()),
                )
                for chunk in chunks
            ]
            if number == 35:
                corpus.connection.execute(f"UPDATE docwell.{corpus.vectors} SET indexed = true")
        corpus.connection.execute("ANALYZE")
        yield found


PATHS: dict[str, Callable[[str], bool]] = {
    "": lambda path: True,
    "*.md": lambda path: path.endswith(".md"),
    "docs/*": lambda path: path.startswith("docs/") and path.count("/") == 1,
    "docs/**": lambda path: path.startswith("docs/"),
    "**/deep/*.py": lambda path: path.startswith("docs/deep/") and path.endswith(".py"),
    "page?.*": lambda path: len(path.rpartition("/")[2].split(".")[0]) == 5,
    "src/page[0-9].md": lambda path: path.startswith("src/") and path.endswith(".md") and len(path) == len("src/page1.md"),
    "nowhere/*": lambda path: False,
}
DAYS = st.none() | st.integers(-1, 41).map(lambda day: FIRST_DAY + timedelta(days=day))
FILTERS = st.builds(
    Filters,
    namespace=st.sampled_from(["", "", "east", "west", "none"]),
    path=st.sampled_from(["", "", *PATHS]),
    source=st.sampled_from(["", "", "push-rare", "push-common", "none"]),
    tags=st.sampled_from([(), (), ("two",), ("five",), ("two", "five"), ("none",)]),
    modified_after=DAYS,
    modified_before=DAYS,
    kinds=st.sampled_from([(), (), ("text",), ("table",), ("code", "table"), ("caption",)]),
)


def _fits(one: Indexed, filters: Filters) -> bool:
    return (
        filters.namespace in ("", one.namespace)
        and PATHS[filters.path](one.path)
        and filters.source in ("", one.source)
        and one.tags.issuperset(filters.tags)
        and (filters.modified_after is None or (one.modified is not None and one.modified >= filters.modified_after))
        and (filters.modified_before is None or (one.modified is not None and one.modified < filters.modified_before))
        and (not filters.kinds or one.kind in filters.kinds)
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    filters=FILTERS,
    principal=st.sampled_from([LOCAL, TENANT]),
    wanted=st.integers(1, 30),
    exact_up_to=st.sampled_from([0, 10, 4_000]),
    everything=st.sampled_from([0, 1_000_000]),
)
def test_both_legs_obey_every_combination_of_filters_and_bring_all_that_are_wanted(
    library: list[Indexed],
    module_database: Database,
    filters: Filters,
    principal: Principal,
    wanted: int,
    exact_up_to: int,
    everything: int,
) -> None:
    expected = {one.chunk_id for one in library if one.is_open_to(principal) and _fits(one, filters)}
    with (
        pytest.MonkeyPatch.context() as patch,
        connect(module_database.reader_url, as_reader=True) as connection,
        connection.transaction(),
    ):
        patch.setattr(semantic, "EXACT_UP_TO", exact_up_to)
        patch.setattr(semantic, "EXACT_UP_TO_HIDDEN", exact_up_to)
        patch.setattr(keyword_module, "WHOLE_UP_TO", exact_up_to)
        register_vector(connection)
        scope(connection, principal)
        measured = measure(connection, filters, now=NOW, rescan_seconds=300)
        space = active_space(connection)
        assert space is not None
        keyword = keyword_leg(
            connection, measured, filters, query_terms("alpha"), limit=wanted, cache=FrequencyCache(), everything=everything
        )
        near = semantic_leg(
            connection,
            measured,
            filters,
            space,
            embed_words("alpha first"),
            limit=wanted,
            sees_everything=principal.sees_everything,
        )
        for hits in ([hit.key[1] for hit in keyword], [hit.key[1] for hit in near]):
            assert len(hits) == len(set(hits)) == min(wanted, len(expected))
            assert expected.issuperset(hits)
        keys = [hit.key for hit in keyword]
        places = find_places(connection, measured, filters, keys) if keys else {}
        assert places.keys() == set(keys)


def test_a_search_can_ask_for_tables_and_code_alone(library: list[Indexed], module_database: Database) -> None:
    with serving(module_database) as service:
        results = service.search("alpha", kinds=["code", "table"], limit=50)["results"]
    assert {one["chunk_id"] for one in results} == {str(one.chunk_id) for one in library if one.kind in ("code", "table")}


def test_conditions_that_are_not_set_are_not_in_the_statement() -> None:
    assert (EVERYTHING.on_documents, EVERYTHING.on_passages) == ("", "")
    one = Filters(tags=("a",))
    assert one.on_documents == one.on_passages
    assert "filter_tags" in one.on_documents
    assert "filter_path" not in one.on_documents


def test_a_kind_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pytest.raises(PermanentError, match=r"no kind 'prose'.*text, table, code, caption"):
        make_filters(kinds=["text", "prose"])


def test_the_scope_names_only_sources_and_namespaces_in_sight(library: list[Indexed], module_database: Database) -> None:
    only_eng = Principal(name="eng", namespaces=frozenset({"nowhere"}), names=frozenset())
    seen = {}
    with connect(module_database.reader_url, as_reader=True) as connection:
        for principal in (LOCAL, TENANT, only_eng):
            with connection.transaction():
                scope(connection, principal)
                measured = measure(connection, EVERYTHING, now=NOW, rescan_seconds=300)
                seen[principal.name] = (set(measured.sources.values()), set(measured.namespaces.values()))
    assert seen == {
        "local": ({"push-rare", "push-common"}, {"east", "west"}),
        "tenant": ({"push-rare", "push-common"}, {"west"}),
        "eng": (set(), set()),
    }


def test_documents_are_counted_where_filters_narrow_and_when_asked_for(library: list[Indexed], module_database: Database) -> None:
    with connect(module_database.reader_url, as_reader=True) as connection, connection.transaction():
        scope(connection, LOCAL)
        bare = measure(connection, EVERYTHING, now=NOW, rescan_seconds=300)
        asked = measure(connection, EVERYTHING, now=NOW, rescan_seconds=300, count_documents=True)
        narrowed = measure(connection, Filters(tags=("two",)), now=NOW, rescan_seconds=300)
    assert (bare.documents, bare.searched, asked.documents, asked.searched) == (0, 80, 40, 80)
    assert (narrowed.documents, narrowed.searched) == (20, 40)


def test_an_answer_names_source_and_namespace_of_each_passage(library: list[Indexed], module_database: Database) -> None:
    with serving(module_database) as service:
        results = service.search("alpha", limit=50)["results"]
    known = {str(one.chunk_id): (one.source, one.namespace) for one in library}
    assert results
    assert {one["chunk_id"]: (one["source"], one["namespace"]) for one in results}.items() <= known.items()
