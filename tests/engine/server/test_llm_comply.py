"""Compliance with the published schemas of three APIs: the cases of llm-comply against the server.

What depends on a model's mood is run with a scripted one. The cases with pictures fail until models
here see pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llm_comply
import pytest
from llm_comply.config import ComplianceConfig
from llm_comply.http import close_client
from llm_comply.result import TestStatus as Status
from llm_comply.runner import TestRunner as Runner
from llm_comply.schema import SpecLoader
from llm_comply.tests import get_tests

import scripted_model
from engine.messages import FinishReason, Logprob, TokenLogprobs
from engine.server.anthropic.message_events import MessageEvents
from engine.server.errors import ApiError, Family
from engine.server.fields import Fields
from engine.server.openai.response_events import ResponseEvents
from engine.server.openai.responses import parse
from engine.server.pictures import PictureAccess
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
from serving import Served

SPECS = Path(llm_comply.__file__).parent / "specs"
FORMATS = {
    "openai-chat": "openai_chat.json",
    "open-responses": "openresponses.json",
    "anthropic": "anthropic.json",
}
# A case is left out for models without these names, which are said to reason.
REASONS = "gpt-5-claude-opus"
REASONING = ("chat-reasoning-summary", "reasoning-summary", "anth-thinking-display")
PICTURES = ("chat-image-input", "image-input", "anth-image-input")
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CASES = [(form, case.id) for form in FORMATS for case in get_tests(form) if case.id not in PICTURES]
pytestmark = pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Served]]:
    """A server with a model that reasons, and one with a model that does not."""
    folder = tmp_path_factory.mktemp("comply")
    plain = scripted_model.write(folder / "scripted.gguf")
    thinks = scripted_model.write(folder / f"{REASONS}.gguf", thoughts=scripted_model.THOUGHTS)
    made = {False: Served(plain), True: Served(thinks)}
    yield made
    close_client()
    for one in made.values():
        one.close()


@pytest.mark.parametrize(("form", "case"), CASES)
def test_a_case_passes(servers: dict[bool, Served], form: str, case: str) -> None:
    reasons = case in REASONING
    config = ComplianceConfig(
        base_url=f"{servers[reasons].server.address}/v1",
        api_key="none",
        model=REASONS if reasons else "scripted",
        filter_ids=[case],
        verbose=True,
    )
    spec = SpecLoader(str(SPECS / FORMATS[form]))
    (result,) = Runner(config, get_tests(form), spec).run_all().results
    assert result.status is Status.PASSED, (result.errors, result.response)
    assert not result.warnings


def test_all_three_formats_have_cases() -> None:
    assert len(CASES) == 28
    assert all(any(case in (form, one) for form, one in CASES) for case in REASONING)


SPOKEN: tuple[Delta, ...] = (
    Begun("tiny", 10, 4),
    Reasoning("I look."),
    Content("Well.", logprobs=(TokenLogprobs(5, "Well.", -0.5, (Logprob(5, "Well.", -0.5),)),)),
    CallDelta(0, "a", "f", '{"x": 1}'),
    CallDelta(1, "b", "g"),
)
# Known to OpenAI's own clients under these names only; the suite has others for them.
OWN_NAMES = ("response.reasoning_text.", "response.reasoning_summary_text.")


@pytest.mark.parametrize("reason", [FinishReason.TOOL_CALLS, FinishReason.LENGTH])
@pytest.mark.parametrize("summarizes", [True, False])
def test_events_of_responses_fit_their_schemas(reason: FinishReason, summarizes: bool) -> None:
    spec = SpecLoader(str(SPECS / FORMATS["open-responses"]))
    request = Fields(
        {"model": "m", "input": "hello", "tools": [TOOL], "reasoning": {"effort": "low"}}
    )
    url = SimpleNamespace(path="/v1/responses")
    call: Any = SimpleNamespace(
        body=request, exchange=None, pictures=PictureAccess(), request=SimpleNamespace(url=url)
    )
    options = replace(parse(call).events, summarizes=summarizes, packs=True, top_logprobs=1)
    writer = ResponseEvents(options)
    done = Done(0, reason, Usage(10, 4, 7, 3), Timings())
    for delta in (*SPOKEN, done):
        for event in writer.push(delta):
            if not event["type"].startswith(OWN_NAMES):
                assert spec.validate_sse_event(event["type"], event) == []
    assert spec.validate(writer.whole, "ResponseResource") == []
    failed = ResponseEvents(options)
    assert list(failed.push(SPOKEN[0]))
    event = failed.fail(ApiError(500, "The engine stopped."))
    assert spec.validate_sse_event(event["type"], event) == []


@pytest.mark.parametrize("hides_thoughts", [True, False])
def test_events_of_messages_fit_their_schemas(hides_thoughts: bool) -> None:
    spec = SpecLoader(str(SPECS / FORMATS["anthropic"]))
    writer = MessageEvents(hides_thoughts=hides_thoughts)
    done = Done(0, FinishReason.TOOL_CALLS, Usage(10, 4, 7, 3), Timings())
    for event in [one for delta in (*SPOKEN, done) for one in writer.push(delta)]:
        if event["type"] != "ping":
            name = "".join(part.capitalize() for part in event["type"].split("_"))
            assert spec.validate(event, f"{name}Event") == []
    assert spec.validate(writer.whole, "Message") == []
    for status in (400, 401, 403, 404, 429, 500, 503):
        error = ApiError(status, "It cannot be answered.")
        assert spec.validate(error.body(Family.ANTHROPIC), "ErrorResponse") == []
