"""Two answers compared in the whole window, with the real engine on a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import tiny
import tiny_lora
from app.domain.generation_settings import GenerationSettings, UsedAdapter
from app.domain.message import Message, MessageState
from app.settings.table import Settings
from engine import Sampling
from real_stage import RealStage
from stage import Stage, until

QUESTION = "the quick brown fox jumps over the lazy dog " * 12
SETTINGS = Settings(temperature=0.0, max_tokens=60, context=2048, threads=1)
ENDED = {MessageState.COMPLETE, MessageState.STOPPED}
BASE = GenerationSettings(adapters=())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "tiny.gguf", context=2048)


@pytest.fixture
def adapter(model: Path, tmp_path: Path) -> Path:
    return tiny_lora.write(tmp_path / "pirate.gguf", model, size=1.5, seed=1)


@pytest.fixture
def stage(qtbot: QtBot, model: Path, tmp_path: Path) -> Iterator[RealStage]:
    made = opened(tmp_path, model)
    yield made
    made.close()


def opened(folder: Path, model: Path) -> RealStage:
    made = RealStage(folder, settings=SETTINGS)
    made.start(model)
    until(lambda: made.state.model.loaded is not None)
    return made


def ask(stage: Stage, question: str = QUESTION) -> Message:
    """The answer to a question in a new chat, once it has ended."""
    stage.controller.new_conversation()
    assert stage.controller.send(question)
    return ended(stage)


def ended(stage: Stage) -> Message:
    until(lambda: not stage.state.busy)
    stage.wait_until_idle()
    return stage.state.messages[-1]


def compare(
    stage: Stage, left: GenerationSettings, right: GenerationSettings
) -> tuple[Message, Message]:
    """Compare two new answers to the last question, until both have ended."""
    stage.controller.compare(stage.state.messages[-1].id, left, right)
    shown = ended(stage)
    return shown, stage.state.compared[shown.id]


def adapted(path: Path, strength: float = 1.0) -> GenerationSettings:
    return GenerationSettings(adapters=(UsedAdapter(path.stem, strength, path),))


def test_base_and_adapted_are_what_each_gives_alone(stage: RealStage, adapter: Path) -> None:
    base = ask(stage).text
    stage.controller.adapters.add(adapter)
    stage.controller.regenerate(stage.state.messages[-1].id)
    changed = ended(stage).text
    assert base != changed
    left, right = compare(stage, GenerationSettings(), BASE)
    assert (left.text, right.text) == (changed, base)
    assert {left.state, right.state} <= ENDED
    assert [mark.name for mark in left.adapters] == ["pirate"]
    assert left.adapters[0].sha256
    assert right.adapters == ()
    stage.controller.keep(right.id)
    assert stage.state.messages[-1].text == base
    assert stage.controller.send("And then?")
    assert [m.name for m in ended(stage).adapters] == ["pirate"], "the chat keeps its adapters"


def test_two_mixes_that_the_chat_does_not_use(stage: RealStage, adapter: Path) -> None:
    ask(stage)
    left, right = compare(stage, adapted(adapter), adapted(adapter, -1.0))
    assert left.text != right.text
    assert [mark.strength for mark in (*left.adapters, *right.adapters)] == [1.0, -1.0]
    assert all(mark.sha256 for mark in (*left.adapters, *right.adapters))
    again, other = compare(stage, adapted(adapter, -1.0), adapted(adapter))
    assert (again.text, other.text) == (right.text, left.text)


def test_the_prompt_is_processed_once_for_two_samples(
    qtbot: QtBot, model: Path, tmp_path: Path
) -> None:
    stage = RealStage(tmp_path, settings=SETTINGS)
    stage.start()
    assert stage.controller.send(QUESTION)
    stage.controller.stop()  # no engine has seen the prompt yet
    assert ended(stage).state is MessageState.STOPPED
    stage.controller.load_model(model)
    until(lambda: stage.state.model.loaded is not None)
    side = GenerationSettings(sampling=Sampling(temperature=1.0, seed=3))
    left, right = compare(stage, side, side)
    assert left.text != right.text
    assert left.details is not None
    assert right.details is not None
    assert (left.details.seed, right.details.seed) == (3, 4)
    read = [m.prompt_tokens - m.details.reused_tokens for m in (left, right) if m.details]
    assert min(read) < 10 < max(read), "the last tokens give the first logits"
    stage.controller.keep(left.id)
    alone, other = compare(
        stage, GenerationSettings(sampling=Sampling(temperature=1.0, seed=4)), side
    )
    assert (alone.text, other.text) == (right.text, left.text)
    stage.close()


def test_both_stream_at_the_same_time(stage: RealStage, model: Path, tmp_path: Path) -> None:
    # Both answers to this question reach the limit, so that neither ends before the other begins.
    adapter = tiny_lora.write(tmp_path / "talkative.gguf", model, size=1.5, seed=5)
    ask(stage, "why is the sky blue?")
    stage.controller.change_settings(max_tokens=600)
    pieces: list[int] = []
    stage.state.text_added.connect(lambda message, _: pieces.append(message.id))
    left, right = compare(stage, adapted(adapter), BASE)
    assert {left.id, right.id} == set(pieces)
    first_end = min(
        max(at for at, number in enumerate(pieces) if number == each.id) for each in (left, right)
    )
    last_begin = max(pieces.index(each.id) for each in (left, right))
    assert last_begin < first_end


def test_adapter_that_cannot_be_loaded_fails_its_side_alone(
    stage: RealStage, tmp_path: Path
) -> None:
    base = ask(stage).text
    left, right = compare(stage, adapted(tmp_path / "missing.gguf"), BASE)
    assert left.state is MessageState.FAILED
    assert left.error is not None
    assert right.text == base


def test_file_deleted_since_its_check_is_switched_off(stage: RealStage, adapter: Path) -> None:
    base = ask(stage).text
    stage.controller.adapters.add(adapter)
    until(lambda: bool(stage.controller.adapters._infos))
    adapter.unlink()
    stage.controller.regenerate(stage.state.messages[-1].id)
    answer = ended(stage)
    assert (answer.text, answer.adapters) == (base, ())
    (entry,) = stage.states.adapters.stack
    assert not entry.on
    assert entry.error


def test_comparison_is_there_after_a_restart(
    qtbot: QtBot, model: Path, adapter: Path, tmp_path: Path
) -> None:
    stage = opened(tmp_path, model)
    ask(stage)
    left, right = compare(stage, adapted(adapter), BASE)
    number = left.conversation
    stage.close()
    again = opened(tmp_path, model)
    again.controller.open_conversation(number)
    until(lambda: bool(again.state.compared))
    shown = again.state.messages[-1]
    other = again.state.compared[shown.id]
    assert (shown.text, other.text) == (left.text, right.text)
    assert (shown.adapters, other.adapters) == (left.adapters, right.adapters)
    assert (shown.details, other.details) == (left.details, right.details)
    again.controller.keep(other.id)
    assert again.controller.send("And then?")
    ended(again)
    again.close()
    last = opened(tmp_path, model)
    last.controller.open_conversation(number)
    until(lambda: last.state.current == number)
    assert last.state.messages[1].text == right.text
    assert last.state.messages[1].compared
    assert last.state.compared == {}
    last.close()


def test_two_chats_with_different_adapters_answer_at_the_same_time(
    stage: RealStage, adapter: Path
) -> None:
    base, plain = ask(stage).text, stage.state.current
    stage.controller.new_conversation()
    stage.controller.adapters.add(adapter)
    stage.controller.send(QUESTION)
    changed, other = ended(stage).text, stage.state.current
    assert base != changed
    assert plain is not None
    assert other is not None
    for chat in (plain, other):
        stage.controller.open_conversation(chat)
        stage.controller.regenerate(stage.state.messages[-1].id)
    assert len(stage.state.generations) == 2, "neither waits for the other"
    until(lambda: not stage.state.busy_conversations)
    texts = [stage.state.branches[chat][-1].text for chat in (plain, other)]
    assert texts == [base, changed]
