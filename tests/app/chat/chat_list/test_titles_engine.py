"""Titles by the starter model in the whole window: the chat's cached context stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.settings.table import Settings
from real_stage import RealStage
from stage import until

QUESTION = "Which planets have rings?"


def second_answer(folder: Path, model: Path, titles: str) -> tuple[str, str, int, int]:
    """The title after one answer; the text, the prompt and the reused tokens of the second one."""
    settings = Settings(
        temperature=0.0, max_tokens=24, context=512, threads=1, snapshot_budget_gb=0,
        model_titles=titles,
    )  # fmt: skip
    stage = RealStage(folder, settings=settings)
    try:
        stage.start(model)
        until(lambda: stage.state.model.loaded is not None)
        assert stage.controller.send(QUESTION)
        chat = stage.state.current
        until(lambda: not stage.state.busy)
        if titles == "on":
            assert stage.state.titled == chat
            until(lambda: stage.state.titled is None)
        title = stage.state.title(chat)
        assert stage.controller.send("Name one moon.")
        until(lambda: not stage.state.busy)
        last = stage.state.messages[-1]
        assert last.details is not None
        return title, last.text, last.prompt_tokens, last.details.reused_tokens
    finally:
        stage.close()


@pytest.mark.usefixtures("qtbot")
def test_a_title_leaves_the_cached_context_of_the_chat(tmp_path: Path, starter_model: Path) -> None:
    plain, text, prompt, reused = second_answer(tmp_path / "off", starter_model, "off")
    title, same, same_prompt, reused_after = second_answer(tmp_path / "on", starter_model, "on")
    assert plain == "Which planets have rings?"
    assert 0 < len(title) <= 61
    assert "\n" not in title
    assert same == text
    assert same_prompt == prompt
    assert reused_after >= reused > 0
    print(f"\n{title!r}, {reused_after} of {prompt} tokens reused ({reused} without)")


def test_the_next_message_is_answered_while_a_title_is_written(
    qtbot: QtBot, tmp_path: Path, starter_model: Path
) -> None:
    stage = RealStage(
        tmp_path,
        settings=Settings(temperature=0.0, max_tokens=8, context=512, threads=1, model_titles="on"),
    )
    try:
        stage.start(starter_model)
        until(lambda: stage.state.model.loaded is not None)
        assert stage.controller.send(QUESTION)
        until(lambda: stage.state.titled is not None)
        assert stage.controller.send("Name one moon.")
        assert stage.state.titled is None
        until(lambda: not stage.state.busy)
        assert stage.state.messages[-1].text
        assert stage.state.title(stage.state.current) == QUESTION
    finally:
        stage.close()
