"""What events of Confluence mean, in the shapes that sites were seen to send and in some that nobody documents."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from ingest_worker.sources.confluence.access import passing
from ingest_worker.sources.confluence.events import interpret
from ingest_worker.sources.confluence.items import name_of
from ingest_worker.sources.protocol import Event, Hint

NOTHING = Hint()


def told(body: Any, kind: str = "") -> Hint:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return interpret(Event(event_id=1, kind=kind, body=raw, received_at=datetime.now(UTC)))


def page(**more: Any) -> dict[str, Any]:
    return {"userAccountId": "712020:b", "timestamp": 1, "page": {"id": "41746440", "contentType": "page", "version": 2, **more}}


@pytest.mark.parametrize("number", ["41746440", 41746440])
def test_a_page_is_named_by_a_text_or_a_number(number: object) -> None:
    assert told({"page": {"id": number}}, "page_updated") == Hint(keys=("41746440",))
    assert told({"page": {"id": 4.2, "idAsString": "41746440"}}, "page_updated") == Hint(keys=("41746440",))


@pytest.mark.parametrize("kind", ["page_created", "page_updated", "blog_created", "blog_updated", "blueprint_page_created"])
def test_what_is_new_or_changed_is_looked_at_by_itself(kind: str) -> None:
    assert told(page(), kind) == Hint(keys=("41746440",))


@pytest.mark.parametrize(
    "kind", ["page_moved", "page_trashed", "page_removed", "page_restored", "page_archived", "content_permissions_updated"]
)
def test_what_goes_moves_or_changes_hands_is_looked_at_with_all_below(kind: str) -> None:
    assert told(page(), kind) == Hint(keys=("41746440",), trees=("41746440",))


def test_without_a_name_of_the_event_all_below_is_looked_at_but_after_an_edit() -> None:
    assert told(page()) == Hint(keys=("41746440",), trees=("41746440",))
    assert told({**page(), "updateTrigger": "edit_page"}) == Hint(keys=("41746440",))


def test_data_center_names_its_events_in_the_body() -> None:
    assert told({"timestamp": 1, "event": "page_created", "userKey": "ff", "page": {"id": 123}}) == Hint(keys=("123",))
    assert told({"timestamp": 1, "event": "page_trashed", "page": {"id": 123}}) == Hint(keys=("123",), trees=("123",))
    assert told({"timestamp": 1, "event": "space_removed", "space": {"id": 1, "spaceKey": "ENG"}}) == Hint(everything=True)
    assert told({"event": "content_permissions_updated", "content": {"id": 9}}) == Hint(keys=("9",), trees=("9",))


def test_forge_has_names_of_its_own() -> None:
    content = {"id": "41746440", "type": "page", "status": "current", "space": {"id": "1", "key": "ENG"}}
    assert told({"eventType": "avi:confluence:updated:page", "content": content}) == Hint(keys=("41746440",))
    assert told({"eventType": "avi:confluence:archived:page", "content": content}).trees == ("41746440",)
    assert told({"eventType": "avi:confluence:permissions_updated:page", "content": content}).trees == ("41746440",)
    assert told({"eventType": "avi:confluence:created:comment", "content": {"id": "1", "type": "comment"}}) == NOTHING


@pytest.mark.parametrize(
    "body",
    [
        {"attachment": {"id": "51000001", "parent": {"id": "41746440"}}},
        {"attachment": {"id": 51000001}},
        {"attachments": [{"id": "51000001"}], "attachedTo": {"id": "41746440"}},
        {"attachments": [{"id": "att51000001"}]},
        {"attachment": 51000001},
    ],
)
def test_attachments_come_alone_or_in_a_list(body: dict[str, Any]) -> None:
    assert told(body, "attachment_created") == Hint(keys=("att51000001",))
    assert told(body) == Hint(keys=("att51000001",))


def test_attachments_that_nobody_names_are_looked_for() -> None:
    assert told({"attachedTo": {"id": 1}}, "attachment_trashed") == Hint(changed=True)


def test_labels_and_content_of_apps() -> None:
    assert told({"event": "label_added", "label": {"name": "x"}, "labeled": {"id": 5, "contentType": "page"}}) == Hint(
        keys=("5",)
    )
    assert told({"event": "label_removed", "labeled": {"id": 5, "contentType": "attachment"}}) == Hint(keys=("att5",))
    assert told({"event": "label_added", "label": {"name": "x"}}) == Hint(changed=True)
    assert told({"event": "content_updated", "content": {"id": "7", "type": "content_property"}}) == NOTHING
    assert told({"event": "content_permissions_updated", "content": {}}) == Hint(everything=True)


@pytest.mark.parametrize(
    "kind",
    ["comment_created", "page_children_reordered", "user_created", "group_removed", "attachment_viewed", "space_logo_updated"],
)
def test_what_changes_no_document_is_nothing(kind: str) -> None:
    assert told(page(), kind) == NOTHING


def test_a_comment_without_a_name_of_its_event_and_a_test_are_nothing() -> None:
    assert told({"comment": {"id": "1", "parent": {"id": "2", "contentType": "page"}}}) == NOTHING
    assert told({"test": True}) == NOTHING


@pytest.mark.parametrize("kind", ["space_created", "space_updated", "space_permissions_updated", "space_removed"])
def test_a_space_is_looked_at_whole(kind: str) -> None:
    assert told({"space": {"key": "ENG"}}, kind) == Hint(everything=True)


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'"x"', {"something": "else"}, {"page": None}, {"page": {"id": None}}])
def test_what_nobody_understands_is_a_reason_to_look(body: Any) -> None:
    assert told(body, "page_updated") == Hint(changed=True)


# --- who passes


GROUPS = {"staff": frozenset({"user:ann", "user:bob"}), "hr": frozenset({"user:ann", "user:eve"})}


@pytest.mark.parametrize(
    ("levels", "passes"),
    [
        ([{"group:staff"}], {"group:staff"}),
        ([{"group:staff"}, {"group:staff", "user:eve"}], {"group:staff"}),
        ([{"group:staff"}, {"user:ann", "user:eve"}], {"user:ann"}),
        ([{"group:staff"}, {"group:hr"}], {"user:ann"}),
        ([{"group:staff", "user:eve"}, {"group:hr"}], {"user:ann", "user:eve"}),
        ([{"group:staff"}, {"group:hidden"}], set()),
        ([{"group:hidden"}, {"user:ann"}], set()),
        ([{"group:hidden"}, {"group:hidden"}], {"group:hidden"}),
        ([{"group:staff"}, set(), {"user:ann"}], set()),
        ([{"group:staff"}, {"group:hr"}, {"user:bob"}], set()),
    ],
)
def test_only_those_pass_who_are_named_at_every_level(levels: list[set[str]], passes: set[str]) -> None:
    assert passing([frozenset(level) for level in levels], GROUPS.get, lambda _: frozenset()) == passes


def test_of_a_group_that_is_too_large_to_list_each_person_is_asked_for() -> None:
    levels = [frozenset({"group:everyone"}), frozenset({"user:ann", "user:out"})]
    groups = {"user:ann": frozenset({"group:everyone", "group:x"})}
    assert passing(levels, lambda _: None, lambda user: groups.get(user, frozenset())) == {"user:ann"}


# --- names


def test_titles_are_parts_of_paths() -> None:
    assert name_of("CI/CD  \n plan") == "CI∕CD plan"
    assert name_of("..") == "_.."
    assert name_of("a\x00b") == "a b"
    assert len(name_of("ü" * 300).encode()) <= 100
    assert name_of("x" * 300 + ".pdf").endswith(".pdf")
    assert name_of("x" * 300) != name_of("x" * 301)
