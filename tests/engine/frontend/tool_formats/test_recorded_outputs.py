"""The recorded outputs of nine families that the package canitoolcall has, in pieces of any length."""

from collections import Counter
from typing import Any

import pytest

from tool_outputs import cuts, parsed

canitoolcall = pytest.importorskip(
    "canitoolcall", reason="the package canitoolcall is not installed"
)

GOAL = 465  # of 469 outputs that are right under every check, however they are cut


def observed(fixture: Any, family: Any) -> Any:
    from canitoolcall.results import Observation, ParsedToolCall, ParseResult

    prompt = fixture.generation_prompt
    if prompt is None:
        prompt = family.reference_for(fixture.reference_model).default_generation_prompt or ""

    def result(pieces: list[str]) -> Any:
        text, thought, calls = parsed(fixture, prompt, pieces)
        made = tuple(ParsedToolCall(name=one.name, arguments_raw=one.arguments) for one in calls)
        return ParseResult(content=text or None, reasoning_content=thought or None, tool_calls=made)

    whole = result([fixture.raw_output])
    streams = {name: result(pieces) for name, pieces in cuts(fixture.raw_output)}
    return Observation(nonstream=whole, streams=streams)


@pytest.mark.slow
def test_recorded_outputs_are_parsed() -> None:
    from canitoolcall.checks import case_status, run_checks
    from canitoolcall.fixtures import load_families, load_fixtures

    families = load_families()
    score: Counter[tuple[str, str]] = Counter()
    failing: list[str] = []
    for fixture in load_fixtures():
        family = families[fixture.family]
        rows = run_checks(fixture, family, observed(fixture, family))
        status = case_status(rows).value
        score[fixture.family, status] += 1
        if status != "pass":
            wrong = next(row for row in rows if row.status.value == status)
            failing.append(f"{status} {fixture.id} {wrong.check} {wrong.strategy}: {wrong.detail}")
    for (family, status), count in sorted(score.items()):
        print(f"{family:14} {status:10} {count}")
    print(*failing, sep="\n")
    passed = sum(count for (_, status), count in score.items() if status == "pass")
    print(f"{passed} of {sum(score.values())}")
    assert passed >= GOAL
