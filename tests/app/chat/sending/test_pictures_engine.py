"""A picture from the window to an answer of the real engine, by a tiny model that sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from pytestqt.qtbot import QtBot

import seeing_files
from app.documents.extract import Extractor
from app.domain.message import MessageState
from app.domain.parts import prompt_text
from app.settings.table import Settings
from real_stage import Runs
from stage import Stage, until

SETTINGS = Settings(temperature=0.0, max_tokens=8, context=600, threads=1)


@pytest.fixture
def runs(qtbot: QtBot, tmp_path: Path) -> Iterator[Runs]:
    (tmp_path / "model").mkdir()
    model = seeing_files.write_pair(tmp_path / "model")
    made = Runs(tmp_path / "data", model, SETTINGS, extractor=Extractor)
    (tmp_path / "data").mkdir()
    yield made
    made.stop()


def answer(stage: Stage, path: Path) -> str:
    """What the model says of a picture in a new chat."""
    stage.controller.new_conversation()
    stage.controller.attachments.attach([path])
    until(lambda: any(each.tokens for each in stage.states.attachments.of(None)))
    until(lambda: stage.controller.send("what is it"))  # once the whole prompt is counted
    until(lambda: not stage.state.busy and bool(stage.state.messages))
    stage.wait_until_idle()
    said = stage.state.messages[-1]
    assert said.state is not MessageState.FAILED
    return prompt_text(said.parts)


def test_the_model_sees_the_picture_that_was_attached(runs: Runs, tmp_path: Path) -> None:
    red, blue = tmp_path / "red.png", tmp_path / "blue.png"
    Image.new("RGB", (200, 120), "red").save(red)
    Image.new("RGB", (200, 120), "blue").save(blue)
    stage = runs.start()
    first, other = answer(stage, red), answer(stage, blue)
    assert first
    assert first != other
    assert answer(stage, red) == first


def test_pictures_that_do_not_fit_are_seen_with_less_detail(runs: Runs, tmp_path: Path) -> None:
    wide, tall = tmp_path / "wide.png", tmp_path / "tall.png"
    Image.new("RGB", (640, 420), "red").save(wide)
    Image.new("RGB", (300, 900), "blue").save(tall)
    stage = runs.start()
    shown, line = stage.states.attachments, stage.window.chat.fit_line
    stage.controller.attachments.attach([wide, tall])
    until(lambda: shown.fit is not None and bool(shown.fit.less_detail))
    assert shown.fit is not None
    assert not shown.fit.fits
    assert line.detail_button.isVisibleTo(line)
    assert line.detail_button.isEnabled()
    assert not line.pages_button.isVisibleTo(line)  # no text is attached
    before = [each.tokens or 0 for each in shown.of(None)]
    line.detail_button.click()
    until(lambda: all(each.tokens for each in shown.of(None)))
    until(lambda: shown.fit is not None and shown.fit.fits)
    after = [each.tokens or 0 for each in shown.of(None)]
    assert all(0 < less < more for less, more in zip(after, before, strict=True))
    until(lambda: stage.controller.send("what is it"))
    stage.wait_until_idle()
    assert stage.state.messages[-1].state is not MessageState.FAILED
