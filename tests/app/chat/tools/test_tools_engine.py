"""Answers that call tools, by the real engine: a tiny model writes calls, which are parsed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import scripted_model
from app.domain.chat_settings import AnswerFormat
from app.domain.generation_settings import GenerationSettings
from app.domain.message import Message, MessageState, StopReason
from app.domain.parts import CallEnd, TextPart, ToolCallPart
from app.settings.table import Settings
from app.state.tools import Consent
from engine import Sampling
from real_stage import RealStage
from stage import Stage, until
from tool_stage import ADD, NOTE, PAGE, FakeTools, answer, ask, last, results, runs

Start = Callable[..., Stage]
ADD_TWICE = (("add", {"a": 1, "b": 2}), ("add", {"a": 30, "b": 4}))
WRITE = (("write_note", {"text": "milk"}),)
DONE = ("That", " is", " done.")
ARABIC = "الطقس غدًا: 21°C, <b>مشمس</b> \u202e"

pytestmark = [pytest.mark.usefixtures("qapp")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models that call these tools first, and write `DONE` behind results; "loop" calls again."""
    folder = tmp_path_factory.mktemp("models")
    calls = scripted_model.calls
    return {
        "twice": scripted_model.write(folder / "twice.gguf", calls(*ADD_TWICE), after=DONE),
        "write": scripted_model.write(folder / "write.gguf", calls(*WRITE), after=DONE),
        "loop": scripted_model.write(
            folder / "loop.gguf", calls(("add", {"a": 1, "b": 2})), context=2048
        ),
    }


@pytest.fixture
def source() -> FakeTools:
    return FakeTools()


@pytest.fixture
def start(tmp_path: Path, source: FakeTools, models: dict[str, Path]) -> Iterator[Start]:
    """Starts the app with a model, in a folder that a former start may have left."""
    made: list[Stage] = []

    def begin(
        model: str, folder: Path = tmp_path / "data", settings: Settings | None = None
    ) -> Stage:
        folder.mkdir(exist_ok=True)
        stage = RealStage(
            folder, settings=settings or Settings(temperature=0.0), tool_source=lambda: source
        )
        made.append(stage)
        stage.start(models[model])
        until(lambda: stage.state.model.loaded is not None)
        assert stage.state.model.loaded is not None
        assert stage.state.model.loaded.can_call
        if stage.state.current is None:
            ids = (ADD.id, NOTE.id, PAGE.id)
            shown = stage.states.chat_settings.settings
            stage.controller.chat_settings.change_shown(replace(shown, tools=ids))
        return stage

    yield begin
    for stage in made:
        stage.close()


def ended(stage: Stage, messages: int = 2) -> Message:
    """The answer, once it has ended."""
    until(lambda: len(stage.state.messages) >= messages and not stage.state.busy)
    stage.wait_until_idle()
    return last(stage)


def calls_of(message: Message) -> list[ToolCallPart]:
    return [part for part in message.parts if isinstance(part, ToolCallPart)]


def test_two_calls_in_one_turn(start: Start, source: FakeTools) -> None:
    stage = start("twice")
    stage.controller.send("Add these.")
    message = ended(stage)
    assert message.state is MessageState.COMPLETE
    assert [json.loads(call.arguments) for call in calls_of(message)] == [
        arguments for _, arguments in ADD_TWICE
    ]
    assert [part.text for part in results(message)] == ["3", "34"]
    assert message.parts[-1] == TextPart("That is done.")


def test_a_denied_call(start: Start, source: FakeTools) -> None:
    stage = start("write")
    stage.controller.send("Note: milk.")
    answer(stage, Consent.DENY)
    message = ended(stage)
    assert results(message)[0].end == CallEnd.DENIED
    assert message.parts[-1] == TextPart("That is done.")
    assert not source.calls


def test_an_edited_argument(start: Start, source: FakeTools) -> None:
    stage = start("write")
    stage.controller.send("Note: milk.")
    answer(stage, Consent.ONCE, '{"text": "oat milk"}')
    message = ended(stage)
    assert source.calls == [(NOTE.id, {"text": "oat milk"})]
    assert json.loads(calls_of(message)[0].written) == {"text": "milk"}


def test_a_call_cut_by_stop_can_be_continued(start: Start, source: FakeTools) -> None:
    source.waits = True
    stage = start("write")
    stage.controller.send("Note: milk.")
    answer(stage, Consent.ONCE)
    runs(stage)
    stage.controller.stop()
    message = ended(stage)
    assert (message.state, message.stop) == (MessageState.STOPPED, StopReason.USER)
    stage.controller.continue_answer(message.id)
    assert ended(stage).parts[-1] == TextPart("That is done.")


def test_a_call_cut_by_a_crash(start: Start, source: FakeTools, tmp_path: Path) -> None:
    source.waits = True
    stage = start("write")
    stage.controller.send("Note: milk.")
    answer(stage, Consent.ONCE)
    runs(stage)
    left = tmp_path / "left"  # what the disk has at this moment
    shutil.copytree(tmp_path / "data", left)
    stage.controller.stop()
    again = start("write", left)
    again.controller.open_conversation(again.state.conversations[0].id)
    again.wait_until_idle()
    assert last(again).state is MessageState.INTERRUPTED
    assert [call.name for call in calls_of(last(again))] == ["write_note"]
    source.waits = False
    again.controller.continue_answer(last(again).id)
    ask(again)
    assert again.states.tools.asking[0].repeated
    answer(again, Consent.ONCE)
    message = ended(again)
    assert message.state is MessageState.COMPLETE
    assert message.parts[-1] == TextPart("That is done.")


def test_a_full_context_ends_the_rounds(start: Start, source: FakeTools) -> None:
    stage = start("loop", settings=Settings(temperature=0.0, tool_rounds=100))
    stage.controller.send("Add for ever.")
    message = ended(stage)
    assert message.state in (MessageState.FAILED, MessageState.STOPPED)
    assert message.state is MessageState.FAILED or message.stop == StopReason.CONTEXT
    assert 5 < len(results(message)) == len(source.calls) < 100


def test_a_loop_stops_at_the_limit(start: Start, source: FakeTools) -> None:
    stage = start("loop")
    stage.controller.send("Add for ever.")
    message = ended(stage)
    assert (message.state, message.stop) == (MessageState.STOPPED, StopReason.TOOL_CALLS)
    assert len(source.calls) == 10
    stage.controller.continue_answer(message.id)
    ended(stage)
    assert len(source.calls) == 20


def test_a_branch_before_a_call(start: Start, source: FakeTools) -> None:
    stage = start("write")
    stage.controller.send("Note: milk.")
    answer(stage, Consent.ONCE)
    message = ended(stage)
    stage.controller.messages.answer_from(message.id, calls_of(message)[0].call)
    answer(stage, Consent.DENY)
    again = ended(stage)
    assert (again.parent, again.siblings) == (message.parent, 2)
    assert results(again)[0].end == CallEnd.DENIED
    stage.controller.navigation.show_sibling(again.id, -1)
    stage.wait_until_idle()
    assert last(stage).parts == message.parts


def test_a_format_beside_tools(start: Start, source: FakeTools) -> None:
    stage = start("twice")
    shown = stage.states.chat_settings.settings
    choices = shown.with_format(AnswerFormat.CHOICES, "yes\nno")
    stage.controller.chat_settings.change_shown(choices)
    until(lambda: not stage.states.chat_settings.shown.checking)
    stage.controller.send("Add these?")
    message = ended(stage)
    assert message.text in ("yes", "no")
    assert not source.calls


def test_tools_during_a_comparison(start: Start, source: FakeTools) -> None:
    stage = start("twice")
    stage.controller.send("Add these.")
    first = ended(stage)
    cold, warm = (
        GenerationSettings(sampling=Sampling(temperature=0.0, seed=seed)) for seed in (1, 2)
    )
    stage.controller.compare(first.id, cold, warm)
    until(lambda: bool(stage.state.compared) and not stage.state.busy)
    stage.wait_until_idle()
    both = (last(stage), stage.state.compared[last(stage).id])
    for message in both:
        assert [part.text for part in results(message)] == ["3", "34"]
        assert message.parts[-1] == TextPart("That is done.")
    assert len(source.calls) == 6


def test_a_result_in_right_to_left_text(start: Start, source: FakeTools) -> None:
    source.result = lambda arguments: ARABIC
    stage = start("write")
    stage.controller.send("Note: milk.")
    answer(stage, Consent.ONCE)
    message = ended(stage)
    assert results(message)[0].text == ARABIC.removesuffix("\u202e")  # it would turn what follows
    assert message.parts[-1] == TextPart("That is done.")


@pytest.mark.slow
def test_two_hundred_calls_in_one_chat(start: Start, source: FakeTools) -> None:
    stage = start("twice")
    for question in range(100):
        stage.controller.send("Add these.")
        ended(stage, 2 * question + 2)
    assert len(source.calls) == 200
    assert all(message.state is MessageState.COMPLETE for message in stage.state.messages)
    assert sum(len(results(message)) for message in stage.state.messages) == 200
