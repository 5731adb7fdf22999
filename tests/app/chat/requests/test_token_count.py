"""The number of tokens of the typed text is in the context meter, and follows typing."""

from __future__ import annotations

from pathlib import Path

from pytestqt.qtbot import QtBot

from app.domain.parts import TextPart
from engine import CountTokens, Failed
from fakes import MODEL
from stage import Stage, until


def meter(stage: Stage) -> str:
    return stage.window.chat.status_line.context.text()


def test_count_follows_typing(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    assert meter(stage) == "0 of 8,192"
    qtbot.keyClicks(stage.window.composer.editor, "one two three")
    until(lambda: meter(stage) == "3 of 8,192")
    assert "Your message has 3 tokens" in stage.window.chat.status_line.context.toolTip()
    stage.window.composer.editor.clear()
    until(lambda: meter(stage) == "0 of 8,192")
    assert stage.engine.count(CountTokens) <= 4


def test_sent_text_is_no_longer_typed(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.window.composer.insert("one two")
    until(lambda: stage.state.typed_tokens == 2)
    stage.window.composer.submitted.emit("one two")
    until(lambda: stage.state.typed_tokens == 0)


def test_text_typed_during_an_answer_is_counted_after_it(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Why?")
    stage.engine.write("Because")
    stage.drain()
    stage.window.composer.insert("one two three four")
    stage.controller.token_count.count("one two three four")
    assert stage.engine.count(CountTokens) == 0
    stage.engine.finish()
    until(lambda: stage.state.typed_tokens == 4)


def test_draft_is_counted_when_its_chat_is_shown_and_by_each_model(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.drafts.keep(None, (TextPart("one two three"),))
    stage.window.composer.set_text("one two three")
    until(lambda: stage.state.typed_tokens == 3)
    stage.controller.load_model(Path("/models/Other-1B.gguf"))
    stage.engine.finish_load("Other")
    stage.wait_until_idle()
    assert stage.engine.count(CountTokens) == 2


def test_failed_count_is_not_repeated(stage: Stage) -> None:
    stage.ready(MODEL)
    count = stage.controller.token_count
    stage.engine.counts = False
    count.count("one")
    request = stage.engine.last(CountTokens).request
    stage.engine.deliver(Failed(request, "No.", ""))
    stage.drain()
    assert stage.engine.count(CountTokens) == 1
    assert not stage.state.notices
    stage.engine.counts = True
    count.count("one two")
    stage.drain()
    assert stage.state.typed_tokens == 2
