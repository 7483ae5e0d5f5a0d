"""Whether an event comes from whom it says."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from ingest_worker.hooks import confluence, sharepoint, standard
from ingest_worker.hooks.authentic import NotAuthentic
from shared.whsec import decode_secret
from tests.hooks import headers, make_secret, signature

NOW = 1_800_000_000.0
BODY = b'{"action": "delete"}'


def _check(given: dict[str, str], body: bytes = BODY, *, secrets: list[str] | None = None, now: float = NOW) -> None:
    verifier = standard.Verifier(
        standard.read_headers(given, now=now), [decode_secret(secret) for secret in secrets or [make_secret()]]
    )
    for start in range(0, len(body), 7):
        verifier.take(body[start : start + 7])
    verifier.verify()


def test_the_example_of_the_specification_is_signed_as_it_says() -> None:
    """The example in the README of the reference libraries of Standard Webhooks."""
    given = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    _check(given, b'{"test": 2432232314}', secrets=[secret], now=1614265330)
    assert given["webhook-signature"] == standard.sign(
        decode_secret(secret), given["webhook-id"], 1614265330, b'{"test": 2432232314}'
    )
    with pytest.raises(NotAuthentic):
        _check(given, b'{"test":2432232314}', secrets=[secret], now=1614265330)


def test_while_a_secret_is_changed_the_old_and_the_new_one_hold() -> None:
    for number in (1, 2):
        _check(headers(make_secret(number), BODY, at=NOW), secrets=[make_secret(1), make_secret(2)])
    with pytest.raises(NotAuthentic):
        _check(headers(make_secret(3), BODY, at=NOW), secrets=[make_secret(1), make_secret(2)])


def test_one_of_several_signatures_is_enough_and_those_of_other_versions_are_passed_over() -> None:
    given = headers(make_secret(), BODY, at=NOW)
    right = given["webhook-signature"]
    wrong = signature(make_secret(9), given["webhook-id"], given["webhook-timestamp"], BODY)
    for several in (f"{wrong} {right}", f"v1a,c2lnbmF0dXJl  {right}", f"{right} v1,!!!", f"v1 , {right}"):
        _check(given | {"webhook-signature": several})
    for none in (wrong, right.replace("v1,", "v2,"), right.removeprefix("v1,"), "v1,", "v1,c2hvcnQ=", ",", "v1,é"):
        with pytest.raises(NotAuthentic):
            _check(given | {"webhook-signature": none})


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("value", [None, ""])
def test_a_header_that_is_missing_is_named(name: str, value: str | None) -> None:
    given = headers(make_secret(), BODY, at=NOW)
    given.pop(name)
    if value is not None:
        given[name] = value
    with pytest.raises(NotAuthentic, match=name) as error:
        _check(given)
    assert error.value.code == "signature_missing"


@pytest.mark.parametrize("seconds", [-301, 301, -(10**9), 10**9])
def test_a_delivery_of_another_time_is_stale(seconds: int) -> None:
    with pytest.raises(NotAuthentic) as error:
        _check(headers(make_secret(), BODY, at=NOW + seconds))
    assert error.value.code == "timestamp_stale"


@pytest.mark.parametrize("seconds", [-300, -1, 0, 299, 300])
def test_clocks_may_be_five_minutes_apart(seconds: int) -> None:
    _check(headers(make_secret(), BODY, at=NOW + seconds))


@pytest.mark.parametrize(
    "timestamp", ["nan", "inf", "1e9", "-1", "1800000000.0", " 1800000000", "١٨٠٠٠٠٠٠٠٠", "0x6b49d200", "9" * 400]
)
def test_a_time_is_whole_seconds_and_nothing_else(timestamp: str) -> None:
    with pytest.raises(NotAuthentic):
        _check(headers(make_secret(), BODY, at=NOW) | {"webhook-timestamp": timestamp})


def test_id_and_time_are_signed_too() -> None:
    given = headers(make_secret(), BODY, at=NOW)
    for name, value in (("webhook-id", "other"), ("webhook-timestamp", str(int(NOW) + 1))):
        with pytest.raises(NotAuthentic) as error:
            _check(given | {name: value})
        assert error.value.code == "signature_invalid"


@pytest.mark.parametrize("delivery_id", ["a b", "é", "a\n", "x" * 257])
def test_an_id_that_no_log_can_hold_is_refused(delivery_id: str) -> None:
    with pytest.raises(NotAuthentic):
        _check(headers(make_secret(), BODY, at=NOW, delivery_id=delivery_id))


def test_no_error_of_a_secret_shows_it() -> None:
    for text in ("hunter2", "whsec_hunter2!", "whsec_aHVudGVyMg=="):
        with pytest.raises(ValueError, match="webhook secret") as error:
            decode_secret(text)
        assert "hunter2" not in str(error.value)
        assert "aHVudGVy" not in str(error.value)
    assert decode_secret("whsec_" + "QUFBQUFBQUFBQUFBQUFBQQ") == b"A" * 16


# ---- Confluence


def _dc_signature(secret: str, body: bytes) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def test_data_center_signs_the_raw_body() -> None:
    body = b'{"timestamp":1788716539192,"event":"page_created","userKey":"ff80","page":{"id":41746440}}'
    for secret in ("old", "new"):
        confluence.verify(body, signature=_dc_signature(secret, body), token=None, secrets=["old", "new"])
    for signed in (
        _dc_signature("other", body),
        _dc_signature("old", body + b" "),
        _dc_signature("old", body).removeprefix("sha256="),
        _dc_signature("old", body).replace("sha256", "sha1"),
        "sha256=",
        "sha256=é",
        "",
    ):
        with pytest.raises(NotAuthentic) as error:
            confluence.verify(body, signature=signed, token=None, secrets=["old", "new"])
        assert error.value.code == "signature_invalid"


def test_cloud_has_a_token_in_its_address_and_a_wrong_signature_is_not_saved_by_it() -> None:
    confluence.verify(BODY, signature=None, token="s3cret", secrets=["other", "s3cret"])
    for signed, token in ((None, None), (None, ""), (None, "wrong"), (None, "é"), ("sha256=00", "s3cret")):
        with pytest.raises(NotAuthentic):
            confluence.verify(BODY, signature=signed, token=token, secrets=["other", "s3cret"])


@pytest.mark.parametrize(
    ("body", "test"),
    [
        (b'{"test": true}', True),
        (b'{"test":true}', True),
        (b'{"test": false}', False),
        (b'{"test": "true"}', False),
        (b'{"test": true, "event": "page_removed"}', False),
        (b'["test"]', False),
        (b'{"test": true', False),
        (b'{"test": true, "more": "' + b"x" * 1000 + b'"}', False),
        (b"", False),
    ],
)
def test_a_test_of_the_connection_is_no_event(body: bytes, test: bool) -> None:
    assert confluence.is_test(body) is test


# ---- SharePoint


def _item(state: object, **more: Any) -> dict[str, Any]:
    return {"subscriptionId": "s1", "clientState": state, "changeType": "updated", "resource": "drives/b!x/root", **more}


def _sorted(*items: Any) -> sharepoint.Sorted:
    return sharepoint.sort_items(json.dumps({"value": items}).encode(), ["old-state", "new-state"])


def test_an_item_counts_when_its_state_fits_and_is_kept_without_it() -> None:
    found = _sorted(_item("old-state"), _item("WRONG", subscriptionId="s2"), _item("new-state", resource="sites/x/lists/y"))
    assert found.dropped == 1
    assert b"state" not in found.bodies["updated"].lower()
    kept = json.loads(found.bodies["updated"])["value"]
    assert [one["resource"] for one in kept] == ["drives/b!x/root", "sites/x/lists/y"]


@pytest.mark.parametrize("state", [None, 7, "", [], "old-stat", "old-state "])
def test_an_item_with_another_state_or_none_is_left_out(state: object) -> None:
    assert _sorted(_item(state)) == sharepoint.Sorted(dropped=1)


def test_lifecycle_events_keep_their_kind() -> None:
    missed = {"subscriptionId": "s1", "clientState": "old-state", "lifecycleEvent": "missed"}
    found = _sorted(missed, _item("old-state"), {**missed, "lifecycleEvent": "reauthorizationRequired"})
    assert sorted(found.bodies) == ["missed", "reauthorizationRequired", "updated"]


def test_the_same_item_many_times_is_one() -> None:
    found = _sorted(*[_item("old-state")] * 50)
    assert len(json.loads(found.bodies["updated"])["value"]) == 1


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"value": {}}', b"{", b"\xff", b'{"value": [1, null, "x"]}'])
def test_what_is_no_notification_holds_no_item(body: bytes) -> None:
    try:
        found = sharepoint.sort_items(body, ["old-state"])
    except sharepoint.NotANotification:
        return
    assert not found.bodies
