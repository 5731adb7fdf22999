"""Events of the Responses format, from deltas of every kind."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from engine.messages import FinishReason, TokenLogprobs
from engine.server.carried import unpack
from engine.server.errors import ApiError
from engine.server.openai.response_events import EventOptions, ResponseEvents
from engine.server.values import (
    Begun,
    CallDelta,
    Content,
    Delta,
    Done,
    Reasoning,
    Timings,
    Usage,
)

BEGUN = Begun("tiny", 10, 4)
USAGE = Usage(prompt=10, cached=4, generated=7, reasoning=3)
SPOKEN: tuple[Delta, ...] = (
    Reasoning("I "),
    Reasoning("look."),
    Content("One "),
    Content("moment."),
    CallDelta(0, "call_a", "weather"),
    CallDelta(0, arguments='{"city": '),
    CallDelta(0, arguments='"Paris"}'),
    CallDelta(1, "call_b", "time", "{}"),
)


def done(reason: FinishReason = FinishReason.END) -> Done:
    return Done(0, reason, USAGE, Timings())


def events(*deltas: Delta, **options: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events, as they were when they were sent, and the response at the end."""
    writer = ResponseEvents(EventOptions({"model": "asked"}, **options))
    made = [copy.deepcopy(one) for delta in (BEGUN, *deltas) for one in writer.push(delta)]
    return made, writer.whole


def test_every_event_is_numbered_and_the_last_has_the_response() -> None:
    made, response = events(*SPOKEN, done(FinishReason.TOOL_CALLS))
    assert [one["sequence_number"] for one in made] == list(range(len(made)))
    assert [one["type"] for one in made[:2]] == ["response.created", "response.in_progress"]
    assert made[0]["response"]["status"] == "in_progress"
    assert made[0]["response"]["output"] == []
    assert made[0]["response"]["model"] == "tiny"
    assert made[-1] == {
        "type": "response.completed",
        "sequence_number": len(made) - 1,
        "response": response,
    }
    assert response["status"] == "completed"
    assert response["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 17,
    }


def test_the_items_of_the_stream_are_those_of_the_response() -> None:
    made, response = events(*SPOKEN, done())
    finished = [one["item"] for one in made if one["type"] == "response.output_item.done"]
    added = [one["item"] for one in made if one["type"] == "response.output_item.added"]
    assert finished == response["output"]
    assert [one["id"] for one in added] == [one["id"] for one in finished]
    thoughts, message, first, second = finished
    assert thoughts["content"] == [{"type": "reasoning_text", "text": "I look."}]
    assert message["content"][0]["text"] == "One moment."
    assert message["content"][0]["logprobs"] == []
    assert (first["call_id"], first["name"]) == ("call_a", "weather")
    assert first["arguments"] == '{"city": "Paris"}'
    assert (second["call_id"], second["arguments"]) == ("call_b", "{}")
    ids = {one["item_id"]: one["output_index"] for one in made if "item_id" in one}
    assert ids == {one["id"]: at for at, one in enumerate(finished)}


def test_the_pieces_add_up_to_what_is_done() -> None:
    made, _ = events(*SPOKEN, done())
    for kind, field in (
        ("output_text", "text"),
        ("reasoning_text", "text"),
        ("function_call_arguments", "arguments"),
    ):
        pieces: dict[str, str] = {}
        for one in made:
            if one["type"] == f"response.{kind}.delta":
                pieces[one["item_id"]] = pieces.get(one["item_id"], "") + one["delta"]
        whole = {
            one["item_id"]: one[field] for one in made if one["type"] == f"response.{kind}.done"
        }
        assert whole
        assert pieces == whole


def test_reasoning_is_a_summary_where_one_was_asked_for_and_packed_where_that_was() -> None:
    made, response = events(*SPOKEN, done(), summarizes=True, packs=True)
    item = response["output"][0]
    assert item["summary"] == [{"type": "summary_text", "text": "I look."}]
    assert item["content"] == []
    assert unpack(item["encrypted_content"]) == "I look."
    kinds = {one["type"] for one in made}
    assert "response.reasoning_summary_text.delta" in kinds
    assert "response.reasoning_text.delta" not in kinds


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CONTEXT])
def test_an_answer_that_was_cut_is_incomplete(reason: FinishReason) -> None:
    made, response = events(Content("One "), done(reason))
    assert made[-1]["type"] == "response.incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["completed_at"] is None
    assert response["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize("deltas", [(), (Reasoning("Hm."),)])
def test_an_answer_without_text_has_an_empty_message(deltas: tuple[Delta, ...]) -> None:
    _, response = events(*deltas, done())
    assert response["output"][-1]["type"] == "message"
    assert response["output"][-1]["content"][0]["text"] == ""


def test_log_probabilities_are_with_the_text() -> None:
    token = TokenLogprobs(5, "One", -0.5, ())
    made, response = events(Content("One", logprobs=(token,)), done())
    (delta,) = [one for one in made if one["type"] == "response.output_text.delta"]
    assert delta["logprobs"][0]["logprob"] == -0.5
    assert response["output"][0]["content"][0]["logprobs"] == delta["logprobs"]


def test_an_error_after_the_beginning_fails_the_response() -> None:
    writer = ResponseEvents(EventOptions({}))
    for delta in (BEGUN, Content("One ")):
        list(writer.push(delta))
    event = writer.fail(ApiError(500, "The engine stopped.", code="stopped"))
    assert event["type"] == "response.failed"
    assert event["response"]["status"] == "failed"
    assert event["response"]["error"] == {"code": "stopped", "message": "The engine stopped."}
