"""An event handler that raises ends its request only; other events are handled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.domain.message import Message, MessageState
from app.state.chat import ModelPhase
from engine import CacheType, Chat, FinishReason, Metrics, MetricsRead
from fakes import MODEL, Cancel
from stage import Stage, until

pytestmark = pytest.mark.usefixtures("caplog")  # faults are logged


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> Callable[[], int]:
    """Make a method raise at its next call only; returns a function that counts raises."""
    works, faults = getattr(owner, name), []

    def call(*values: object, **named: object) -> object:
        if not faults:
            faults.append(name)
            raise KeyError("words of the user")
        return works(*values, **named)

    monkeypatch.setattr(owner, name, call)
    return lambda: len(faults)


def stored_answer(stage: Stage) -> tuple[str, MessageState]:
    """The last message of the newest conversation, read from the database file."""
    found: list[list[Message]] = []
    stage.store_queue.read(lambda store: store.branch(store.conversations()[0].id), found.append)
    until(lambda: bool(found))
    return found[0][-1].text, found[0][-1].state


def test_exception_in_a_text_event_interrupts_only_that_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage.ready(MODEL)
    assert stage.controller.send("One")
    first = stage.engine.last_generate
    interrupted = stage.state.messages[-1].id
    stage.engine.write("Because of")
    stage.drain()
    stage.controller.new_conversation()
    assert stage.controller.send("Two")
    second = stage.state.current
    faults = fail_once(monkeypatch, stage.state, "add_text")
    stage.engine.write(" the air.", request=first.request)
    stage.engine.finish(FinishReason.CANCELLED, request=first.request)
    stage.wait_until_idle()
    assert faults() == 1
    assert stage.engine.last(Cancel) == Cancel(first.request)
    message = stage.state.message(interrupted)
    assert message is not None
    assert (message.text, message.state) == ("Because of the air.", MessageState.INTERRUPTED)
    assert stage.state.notices["fault"].detail == "KeyError"
    assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR"]

    # The other answer goes on, and the user can send again.
    assert stage.engine.count(Chat) == 2
    stage.engine.write("Here.")
    stage.engine.finish()
    stage.wait_until_idle()
    assert stage.state.current == second
    assert stored_answer(stage) == ("Here.", MessageState.COMPLETE)
    assert not stage.state.busy
    assert stage.controller.send("Three")
    stage.drain()
    assert stage.engine.count(Chat) == 3


def test_other_requests_in_the_batch_are_handled_after_an_exception(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.ready(MODEL)
    stage.controller.send("One")
    stage.controller.models.load(MODEL, 0, 0, CacheType.F16)
    fail_once(monkeypatch, stage.state, "add_text")
    stage.engine.write("Because")
    stage.engine.finish(FinishReason.CANCELLED)
    stage.engine.finish_load()
    stage.drain()
    assert stage.state.model.phase is ModelPhase.READY
    assert not stage.state.generations
    assert stored_answer(stage) == ("Because", MessageState.INTERRUPTED)


def test_exception_in_finished_still_ends_the_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.ready(MODEL)
    stage.controller.send("One")
    fail_once(monkeypatch, stage.state, "change")
    stage.engine.write("Because")
    stage.engine.finish()
    stage.wait_until_idle()
    assert stored_answer(stage) == ("Because", MessageState.INTERRUPTED)
    assert not stage.state.busy
    assert stage.controller.send("Two")


def test_answer_ends_even_if_interrupting_it_raises(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(message: Message) -> None:
        raise KeyError(message.id)

    stage.ready(MODEL)
    stage.controller.send("One")
    with monkeypatch.context() as broken:
        broken.setattr(stage.state, "change", fail)
        stage.engine.write("Because")
        stage.engine.finish()
        stage.wait_until_idle()
    assert stored_answer(stage) == ("Because", MessageState.INTERRUPTED)
    assert not stage.state.busy
    assert stage.controller.send("Two")


def test_answer_that_cannot_be_asked_for_is_interrupted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.ready(MODEL)
    faults = fail_once(monkeypatch, stage.controller._prompts, "command")
    stage.controller.send("One")
    stage.wait_until_idle()
    assert faults() == 1
    assert stored_answer(stage) == ("", MessageState.INTERRUPTED)
    assert stage.engine.count(Chat) == 0
    assert stage.state.notices["fault"].detail == "KeyError"
    assert not stage.state.busy
    assert stage.controller.send("Two")
    stage.engine.write("Here.")
    stage.engine.finish()
    stage.wait_until_idle()
    assert stored_answer(stage) == ("Here.", MessageState.COMPLETE)


def test_metrics_are_read_again_after_an_exception(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.ready(MODEL)
    faults = fail_once(monkeypatch, stage.states.performance, "set_metrics")
    for answers in range(2):
        stage.controller.performance.refresh()
        request = stage.engine.last(Metrics).request
        stage.engine.deliver(MetricsRead(request, "Small", running=answers))
        stage.drain()
    assert faults() == 1
    assert stage.states.performance.metrics.running == 1
    assert stage.engine.count(Metrics) == 2


def test_model_is_loaded_after_an_exception_while_one_was_unloaded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.ready(MODEL)
    stage.controller.unload_model()
    faults = fail_once(monkeypatch, stage.state, "set_model")
    stage.engine.finish_unload()
    stage.drain()
    assert faults() == 1
    stage.controller.load_model(MODEL)
    stage.engine.finish_load()
    stage.drain()
    assert stage.state.model.phase is ModelPhase.READY
    assert stage.controller.send("Two")


def test_exception_in_model_loaded_fails_the_load(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.start(MODEL)
    stage.controller.send("One")
    fail_once(monkeypatch, stage.controller.models, "_set_loaded")
    stage.engine.finish_load()
    stage.wait_until_idle()
    assert stage.state.model.phase is ModelPhase.FAILED
    assert stored_answer(stage)[1] is MessageState.FAILED
    assert "model" in stage.state.notices
    stage.controller.load_model(MODEL)
    stage.engine.finish_load()
    stage.drain()
    assert stage.state.model.phase is ModelPhase.READY
    assert stage.controller.send("Two")
