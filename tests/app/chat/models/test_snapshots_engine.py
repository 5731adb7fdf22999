"""Snapshots in the whole window, with the real engine on a tiny model, across restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import tiny
import tiny_lora
from app.domain.message import MessageState, StopReason
from app.settings.table import Settings
from app.state.snapshots import Resume, ResumePhase
from app.ui.chat.resume_line import exact
from engine import FaultKind, Role, snapshots_folder, snapshots_size
from real_stage import Runs
from stage import Stage, until

QUESTION = "the cat sat on the mat and saw the bird in the tree " * 8
# A random model's output does not tokenize back to the same tokens.
NOISE = 64
CONTEXT = 16_384  # tokens
SETTINGS = Settings(temperature=0.0, max_tokens=12, context=CONTEXT, threads=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=CONTEXT)


@pytest.fixture
def runs(qtbot: QtBot, tmp_path: Path, model: Path) -> Iterator[Runs]:
    made = Runs(tmp_path, model, SETTINGS)
    yield made
    made.stop()


def ask(stage: Stage, text: str = QUESTION) -> str:
    stage.window.composer.submitted.emit(text)
    until(lambda: not stage.state.busy and bool(stage.state.messages))
    stage.wait_until_idle()  # a tiny model finishes before the store has created the conversation
    last = stage.state.messages[-1]
    assert last.role is Role.ASSISTANT
    assert last.state is not MessageState.FAILED
    return last.text


def opened(stage: Stage, title: str) -> Resume:
    """Open a conversation and wait until its snapshot is loaded."""
    found = next(c.id for c in stage.state.conversations if c.title.startswith(title))
    stage.controller.open_conversation(found)
    until(lambda: _done(stage.states.sessions.resume, found))
    resume = stage.states.sessions.resume
    assert resume is not None
    return resume


def _done(resume: Resume | None, conversation: int) -> bool:
    here = resume is not None and resume.conversation == conversation
    return here and resume.phase is ResumePhase.DONE


def test_conversation_continues_identically_after_a_restart(runs: Runs) -> None:
    stage = runs.start()
    first = ask(stage)
    second = ask(stage, "and then the dog")
    stage.window.transcript.edit_submitted.emit(stage.state.messages[2].id, "and then the bird")
    until(lambda: not stage.state.busy)
    stage = runs.start()
    resume = opened(stage, "the cat")
    assert resume.total_tokens > 256
    assert resume.restored_tokens > 256
    assert resume.unread_tokens < NOISE
    assert resume.refused == ""
    assert stage.window.chat.resume_line.text.startswith("Ready")
    assert stage.state.messages[1].text == first
    stage.controller.navigation.show_sibling(stage.state.messages[2].id, -1)
    until(lambda: stage.state.messages[3].text == second)
    stage.controller.regenerate(stage.state.messages[3].id)
    until(lambda: not stage.state.busy)
    assert stage.state.messages[3].text == second


def test_switching_conversations_prefills_nothing_twice(runs: Runs) -> None:
    stage = runs.start()
    ask(stage)
    stage.controller.new_conversation()
    ask(stage, "of other things: " + QUESTION)
    resume = opened(stage, "the cat")
    assert resume.ready_tokens > 256  # both conversations stay in memory
    assert resume.unread_tokens < NOISE


def test_snapshot_with_an_adapter_is_loaded_with_it(
    runs: Runs, model: Path, tmp_path: Path
) -> None:
    stage = runs.start()
    stage.window.panel.open()
    stage.window.panel.adapters.added.emit(
        tiny_lora.write(tmp_path / "pirate.gguf", model, size=1.5, seed=1)
    )
    until(lambda: bool(stage.states.adapters.applied))
    ask(stage)
    stage.controller.new_conversation()
    ask(stage, "without it: " + QUESTION)
    stage = runs.start()
    assert opened(stage, "the cat").restored_tokens > 256
    assert opened(stage, "without it").restored_tokens > 256
    again = opened(stage, "the cat")
    assert again.ready_tokens > 256
    assert again.refused == ""


def test_damaged_snapshot_is_refused_and_the_chat_continues(runs: Runs) -> None:
    stage = runs.start()
    ask(stage)
    runs.stop()
    file = min((snapshots_folder() / "pages").glob("*.page"), key=lambda path: path.stat().st_mtime)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    stage = runs.start()
    resume = opened(stage, "the cat")
    assert resume.restored_tokens == 0
    assert resume.refused.endswith(".")
    assert resume.unread_tokens == resume.total_tokens > 256
    assert resume.fault.kind is FaultKind.SAVED_DAMAGED
    assert resume.refused in exact(resume)
    assert stage.window.chat.resume_line.text == ""  # a tiny model rereads it at once
    assert ask(stage, "and then")
    assert stage.window.chat.resume_line.text == ""


def test_answer_interrupted_by_quitting_continues_without_prefill(runs: Runs) -> None:
    stage = runs.start()
    # Enough to be quit in mid-answer, and so few that its text, which takes up to three times as
    # many tokens when it is read, fits.
    stage.controller.change_settings(max_tokens=CONTEXT // 4)
    stage.window.composer.submitted.emit(QUESTION)
    until(lambda: any(len(m.text) > 20 for m in stage.state.messages if m.role is Role.ASSISTANT))
    stage = runs.start()
    resume = opened(stage, "the cat")
    assert resume.ready_tokens > 256  # the prompt; the answer after it is random
    stage.controller.continue_answer(stage.state.messages[-1].id)
    until(lambda: not stage.state.busy)
    assert stage.state.messages[-1].stop == StopReason.LENGTH


def test_deleting_snapshots_keeps_the_conversations(runs: Runs) -> None:
    stage = runs.start()
    ask(stage)
    stage = runs.start()
    assert snapshots_size() > 0
    stage.window.preferences.open()
    assert stage.window.preferences.page is not None
    button = stage.window.preferences.page.storage.saved.button
    until(button.isEnabled)
    button.click()
    until(lambda: not snapshots_size())
    resume = opened(stage, "the cat")
    assert (resume.restored_tokens, resume.refused) == (0, "")
    resume = stage.states.sessions.resume
    assert resume is not None
    assert resume.unread_tokens == resume.total_tokens
