"""A document in several chats is read once by the real engine, also across a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import tiny
from app.domain.chat_settings import ChatSettings
from app.domain.message import MessageState
from app.settings.table import Settings
from app.state.attachments import FitEstimate
from engine import ContextPolicy
from real_stage import Runs
from stage import Stage, until

DOCUMENT = "".join(f"line {n}: the cat sat on the mat and saw a bird. " for n in range(24))
SETTINGS = Settings(temperature=0.0, max_tokens=8, context=2048, threads=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=2048)


@pytest.fixture
def runs(qtbot: QtBot, tmp_path: Path, model: Path) -> Iterator[Runs]:
    (tmp_path / "report.txt").write_text(DOCUMENT, encoding="utf-8")
    made = Runs(tmp_path / "data", model, SETTINGS)
    (tmp_path / "data").mkdir()
    yield made
    made.stop()


def attached(stage: Stage, path: Path) -> FitEstimate:
    """Attach a file in a new chat; the estimate of its prompt."""
    stage.controller.new_conversation()
    stage.controller.attachments.attach([path])
    until(lambda: all(each.tokens for each in stage.states.attachments.of(None)))
    until(lambda: (fit := stage.states.attachments.fit) is not None and fit.file_tokens > 0)
    fit = stage.states.attachments.fit
    assert fit is not None
    return fit


def ask(stage: Stage, question: str) -> None:
    assert stage.controller.send(question)
    stage.controller.fit.type("")  # as the field says it
    until(lambda: not stage.state.busy and bool(stage.state.messages))
    stage.wait_until_idle()
    assert stage.state.messages[-1].state is not MessageState.FAILED


def test_a_document_of_another_chat_is_cached(runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    stage = runs.start()
    first = attached(stage, path)
    assert first.cached_tokens == 0
    assert first.file_tokens > 700
    assert first.tokens > first.file_tokens
    ask(stage, "what did the cat see?")
    second = attached(stage, path)
    assert second.cached_tokens >= first.file_tokens - 4
    ask(stage, "where did it sit?")
    stage = runs.start()
    third = attached(stage, path)
    assert third.cached_tokens >= first.file_tokens - 4, "from the disk"
    ask(stage, "and then?")
    assert attached(stage, path).cached_tokens >= first.file_tokens - 4


def test_a_document_is_named_before_it_falls_out(runs: Runs, tmp_path: Path) -> None:
    stage = runs.start()
    policy = ChatSettings(policy=ContextPolicy.DROP_OLDEST)
    attached(stage, tmp_path / "report.txt")
    stage.controller.chat_settings.change(None, policy)
    ask(stage, "what did the cat see?")
    (tmp_path / "other.txt").write_text(DOCUMENT.upper(), encoding="utf-8")
    stage.controller.attachments.attach([tmp_path / "other.txt"])
    until(lambda: bool((fit := stage.states.attachments.fit) and fit.file_tokens > 0))
    fit = stage.states.attachments.fit
    assert fit is not None
    assert fit.fits
    assert fit.forgotten == ("report.txt",)


def test_a_document_that_is_too_long_is_refused(runs: Runs, tmp_path: Path) -> None:
    stage = runs.start()
    path = tmp_path / "long.txt"
    path.write_text(DOCUMENT * 4, encoding="utf-8")
    estimate = attached(stage, path)
    assert not estimate.fits
    assert not stage.controller.send("What is it about?")
    assert stage.states.attachments.refused
    assert not stage.state.messages
