"""A conversation longer than the context goes on without its oldest turns, or stops."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny
from engine import (
    Chat,
    ContextPolicy,
    Event,
    Failed,
    Finished,
    FinishReason,
    PromptProgress,
    Restore,
    Role,
    SnapshotLoaded,
    Turn,
)
from engine_bench import GREEDY, Bench, answer_text, finished, with_printable_output

CONTEXT = 512
SYSTEM = Turn(Role.SYSTEM, "Answer in one word and end with OWL.")
DROP = ContextPolicy.DROP_OLDEST


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench()
    made.load(with_printable_output(tiny.write(tmp_path / "tiny.gguf", context=CONTEXT)))
    yield made
    made.engine.stop()


def ask(
    bench: Bench,
    request: int,
    turns: list[Turn],
    policy: ContextPolicy = DROP,
    most: int = 12,
) -> list[Event]:
    bench.send(request, Chat(tuple(turns), GREEDY, most, policy=policy))
    return bench.until(Finished, Failed)


def dropped(events: list[Event]) -> int:
    found = {event.dropped_turns for event in events if isinstance(event, PromptProgress)}
    assert len(found) == 1
    return found.pop()


def test_long_chat_never_fails_and_keeps_its_instructions(bench: Bench) -> None:
    turns, starts, reused = [SYSTEM], [], []
    for number in range(60):
        turns.append(Turn(Role.USER, f"question number {number}"))
        events = ask(bench, 100 + number, turns)
        end = finished(events)
        assert end.reason is FinishReason.LENGTH
        starts.append(dropped(events))
        reused.append(end.reused_tokens / end.prompt_tokens)
        assert turns[1 + starts[-1]].role is Role.USER
        turns.append(Turn(Role.ASSISTANT, answer_text(events)))
    assert starts == sorted(starts)
    moved = [at for at in range(1, 60) if starts[at] != starts[at - 1]]
    assert 1 < len(moved) < 20  # one in four questions at this small context
    # Between two moves every prompt extends the cached one.
    assert min(reused[at] for at in range(5, 60) if at not in moved) > 0.5
    assert starts[-1] > 80


def test_cut_is_the_same_after_a_restart_and_for_a_snapshot(bench: Bench) -> None:
    turns = [SYSTEM]
    for number in range(30):
        turns += [Turn(Role.USER, f"question number {number}"), Turn(Role.ASSISTANT, "yes " * 6)]
    bench.send(5, Restore(tuple(turns), "one", DROP))
    (*_, loaded) = bench.until(SnapshotLoaded, Failed)
    assert isinstance(loaded, SnapshotLoaded)
    assert 0 < loaded.total_tokens < CONTEXT
    turns.append(Turn(Role.USER, "and now?"))
    first = dropped(ask(bench, 6, turns))
    assert dropped(ask(bench, 7, turns)) == first
    assert first >= loaded.dropped_turns > 0


def test_full_chat_stops_when_asked_to(bench: Bench) -> None:
    turns = [SYSTEM, Turn(Role.USER, "long " * 300)]
    (*_, failed) = ask(bench, 3, turns, ContextPolicy.STOP)
    assert isinstance(failed, Failed)
    assert "This chat is full" in failed.message


def test_one_message_that_is_too_long_is_named(bench: Bench) -> None:
    turns = [SYSTEM, Turn(Role.USER, "one"), Turn(Role.ASSISTANT, "two")]
    (*_, failed) = ask(bench, 3, [*turns, Turn(Role.USER, "long " * 600)])
    assert isinstance(failed, Failed)
    assert failed.message.startswith("This message is too long")
    end = finished(ask(bench, 4, [*turns, Turn(Role.USER, "short")]))
    assert end.reason is FinishReason.LENGTH


def test_answer_cut_by_a_full_context_can_be_continued(bench: Bench) -> None:
    turns = [SYSTEM]
    for number in range(9):
        turns += [Turn(Role.USER, f"question number {number}"), Turn(Role.ASSISTANT, "yes " * 6)]
    turns.append(Turn(Role.USER, "tell me everything"))
    events = ask(bench, 3, turns, most=0)
    assert finished(events).reason is FinishReason.CONTEXT
    more = ask(bench, 4, [*turns, Turn(Role.ASSISTANT, answer_text(events))], most=20)
    assert finished(more).reason is FinishReason.LENGTH
    assert dropped(more) > dropped(events)


def test_reasoning_that_the_template_omits_takes_no_room(tmp_path: Path) -> None:
    shows = "message.get('reasoning_content', '') + message['content']"
    templates = {
        "whole": tiny.CHATML.replace("message['content']", shows),
        "omitted": tiny.CHATML,
    }
    kept: dict[str, int] = {}
    for name, template in templates.items():
        bench = Bench()
        path = tiny.write(tmp_path / f"{name}.gguf", context=CONTEXT, template=template)
        bench.load(with_printable_output(path))
        turns = [SYSTEM]
        for number in range(40):
            answer = "<think>\n" + "hmm " * 60 + "\n</think>\n\nyes"
            turns += [Turn(Role.USER, f"question {number}"), Turn(Role.ASSISTANT, answer)]
        turns.append(Turn(Role.USER, "and now?"))
        events = ask(bench, 3, turns)
        kept[name] = len(turns) - 1 - dropped(events)
        assert finished(events).reason is FinishReason.LENGTH
        bench.engine.stop()
    assert kept["omitted"] > 3 * kept["whole"]
