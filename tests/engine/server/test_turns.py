"""Turns of clients made such that templates take them and the cached prefix survives."""

from __future__ import annotations

import pytest

from engine.messages import Role, ToolResult, Turn
from engine.server.turns import prepared, stable
from serving import Served

SYSTEM, USER, ASSISTANT = Role.SYSTEM, Role.USER, Role.ASSISTANT
BILLING = "x-anthropic-billing-header: cc_version=2.1.{0}; cc_entrypoint=cli; cch={0}0f;\n"


def test_instructions_are_one_turn_and_later_ones_the_users() -> None:
    turns = [
        Turn(SYSTEM, "a"),
        Turn(SYSTEM, "b"),
        Turn(USER, "c"),
        Turn(SYSTEM, "d"),
        Turn(ASSISTANT, "e"),
        Turn(ASSISTANT, "f"),
    ]
    assert prepared(turns) == (
        Turn(SYSTEM, "a\n\nb"),
        Turn(USER, "c\n\nd"),
        Turn(ASSISTANT, "e"),
        Turn(ASSISTANT, "f"),
    )


def test_results_of_calls_stay_apart() -> None:
    results = [Turn(Role.TOOL, (ToolResult(name, "", "x"),)) for name in "ab"]
    assert prepared(results) == tuple(results)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (BILLING.format(1) + "You are an agent.", "You are an agent."),
        ("Current time: 2026-11-27T08:31:10.123Z\nx", "Current time: 2026-11-27\nx"),
        ("Current date and time: 2026-11-27 8:31 PM +01:00.", "Current date and time: 2026-11-27."),
        (
            "Current date and time: Tuesday, June 9, 2026, 03:04:20 PM +03:00",
            "Current date and time: Tuesday, June 9, 2026",
        ),
        ("Today is 27 November 2026 at 08:31 UTC\nx", "Today is 27 November 2026\nx"),
        ("Today's date: 2026-11-27", "Today's date: 2026-11-27"),
        ("The log says 2026-11-27 08:31:10.", "The log says 2026-11-27 08:31:10."),
        ("Meet at 08:31.", "Meet at 08:31."),
        ("Now 2026-11-27 08:31, from 09:00 to 10:00", "Now 2026-11-27, from 09:00 to 10:00"),
        ("x\n" * 99 + "Now: 2026-11-27 8:31\nx", "x\n" * 99 + "Now: 2026-11-27\nx"),
        ("Now " + "x" * 200 + " 2026 08:31", "Now " + "x" * 200 + " 2026 08:31"),
    ],
)
def test_only_what_agents_change_by_themselves_is_left_out(text: str, kept: str) -> None:
    assert stable(text) == kept


def test_a_changing_header_keeps_the_cached_prefix(served: Served) -> None:
    cached = []
    for number in range(3):
        system = BILLING.format(number) + "You edit files with great care. " * 20
        messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": "hello there"},
        ]
        found = served.post(
            "/v1/chat/completions", {"model": "", "messages": messages, "max_tokens": 1}
        )
        usage = found["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
    assert cached[0] < 0.1
    assert min(cached[1:]) > 0.9
