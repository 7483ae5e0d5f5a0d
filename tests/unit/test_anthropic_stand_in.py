"""The stand-in answers Anthropic's own client as the service would, and refuses what the service would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.anthropic_stand_in import KEY, StandIn, anthropic_stand_in
from tests.anthropic_wire import Fault, calls, check_request, cited, says

ASKED: dict[str, Any] = {
    "model": "claude-haiku-4-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "How long does a refund take?"}],
}


@pytest.fixture(scope="module")
def running() -> Iterator[StandIn]:
    with anthropic_stand_in() as service:
        yield service


@pytest.fixture
def service(running: StandIn) -> StandIn:
    running.clear()
    return running


@pytest.fixture
def client(service: StandIn) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key=KEY, base_url=service.url, max_retries=0) as client:
        yield client


def test_text_citations_and_calls_come_through_the_sdk(service: StandIn, client: anthropic.Anthropic) -> None:
    service.answer(says("So: ", cited("five days.", (0, "billing.md"))), calls(("search", {"query": "refund"})))
    message = client.messages.create(**ASKED)
    assert [block.text for block in message.content if block.type == "text"] == ["So: ", "five days."]
    assert message.content[1].citations[0].source == "billing.md"
    assert message.usage.output_tokens > 0
    again = client.messages.create(**ASKED)
    assert (again.stop_reason, again.content[0].name, again.content[0].input) == ("tool_use", "search", {"query": "refund"})
    assert [request.body["messages"] for request in service.requests] == [ASKED["messages"]] * 2


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": "many"},
        {"unknown": 1},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "extra": 1}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "none", "content": "x"}]}]},
        {"messages": [{"role": "assistant", "content": "x"}]},
        {"tool_choice": {"type": "tool", "name": "search"}},
    ],
)
def test_what_the_types_of_the_sdk_do_not_allow_is_refused(change: dict[str, Any]) -> None:
    check_request(ASKED)
    with pytest.raises(ValueError, match=r"."):
        check_request(ASKED | change)


def test_a_wrong_request_and_a_wrong_key_are_refused_on_the_wire(service: StandIn, client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="stop_sequences"):
        client.messages.create(**(ASKED | {"stop_sequences": 5}))
    with pytest.raises(anthropic.AuthenticationError):
        client.with_options(api_key="other").messages.create(**ASKED)
    with pytest.raises(anthropic.BadRequestError, match="nobody said"):
        client.messages.create(**ASKED)


def test_faults_come_on_demand_and_the_sdk_gets_over_those_that_pass(service: StandIn, client: anthropic.Anthropic) -> None:
    service.answer(Fault(status=429, retry_after=0.01), Fault(status=0), Fault(status=200, body=b"{"), says("There."))
    with pytest.raises(anthropic.RateLimitError) as limited:
        client.messages.create(**ASKED)
    assert limited.value.response.headers["retry-after"] == "0.01"
    with pytest.raises(anthropic.APIConnectionError):
        client.messages.create(**ASKED)
    with pytest.raises(ValueError, match=r"."):
        client.messages.create(**ASKED)
    service.answer(Fault(status=500))
    assert client.messages.create(**ASKED).content[0].text == "There."
    with pytest.raises(anthropic.InternalServerError):
        client.messages.create(**ASKED)


def test_a_batch_is_worked_off_request_by_request_and_answered_by_name(service: StandIn, client: anthropic.Anthropic) -> None:
    service.otherwise = lambda received: Fault(status=500) if "fail" in received.text else says("Yes.")
    wrong = ASKED | {"max_tokens": "many"}
    failing = ASKED | {"messages": [{"role": "user", "content": "fail"}]}
    requests: list[Any] = [{"custom_id": name, "params": params} for name, params in (("a", ASKED), ("b", wrong), ("c", failing))]
    batch = client.messages.batches.create(requests=requests)
    assert (batch.processing_status, batch.request_counts.processing, batch.results_url) == ("in_progress", 3, None)
    with pytest.raises(anthropic.AnthropicError):
        client.messages.batches.results(batch.id)
    service.batches.finish(service)
    ended = client.messages.batches.retrieve(batch.id)
    assert (ended.processing_status, ended.request_counts.succeeded, ended.request_counts.errored) == ("ended", 1, 2)
    results = {line.custom_id: line.result for line in client.messages.batches.results(batch.id)}
    assert list(results) == ["c", "b", "a"]
    assert results["a"].message.content[0].text == "Yes."
    assert results["b"].error.error.type == "invalid_request_error"
    client.messages.batches.create(requests=requests[:1])
    assert [one.request_counts.processing for one in client.messages.batches.list(limit=1)] == [1, 0]
    service.otherwise = None


@pytest.mark.parametrize("name", ["a b", "", "x" * 65])
def test_names_of_requests_are_checked_at_once(service: StandIn, client: anthropic.Anthropic, name: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match="custom_id"):
        client.messages.batches.create(requests=[{"custom_id": name, "params": ASKED}])  # type: ignore[typeddict-item]
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.retrieve("msgbatch_none")
