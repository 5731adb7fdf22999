"""Draft model of the loaded model: set after each load, changed with its settings, refused kindly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.chat.models.draft_model import NOTICE
from app.settings.model_settings import AS_IN_SETTINGS, ModelDefaults
from engine import Chat, DraftKind, DraftSet, Failed, SetDraft
from fakes import MODEL
from stage import Stage

SMALL, OTHER = Path("/models/small.gguf"), Path("/models/other.gguf")


def choose(stage: Stage, draft: Path | None, model: Path = MODEL) -> None:
    values = replace(AS_IN_SETTINGS, draft=draft)
    stage.controller.library.defaults.change(model, values)


def answer(stage: Stage) -> Chat:
    """The command of the next answer, which then ends."""
    stage.controller.send("hello")
    stage.wait_until_idle()
    command = stage.engine.last_generate
    stage.engine.write("words")
    stage.engine.finish()
    stage.wait_until_idle()
    return command


def set_done(stage: Stage) -> None:
    command = stage.engine.last(SetDraft)
    assert isinstance(command, SetDraft)
    stage.engine.deliver(DraftSet(command.request, command.path, "Small"))
    stage.drain()


def test_a_model_without_one_uses_words_of_the_chat(stage: Stage) -> None:
    stage.ready(MODEL)
    assert answer(stage).drafts is DraftKind.LOOKUP
    assert stage.engine.count(SetDraft) == 0


def test_the_chosen_one_is_loaded_after_the_model_and_used(stage: Stage) -> None:
    choose(stage, SMALL)
    stage.start(MODEL)
    assert stage.engine.count(SetDraft) == 0
    stage.engine.finish_load()
    stage.wait_until_idle()
    assert stage.engine.last(SetDraft).path == SMALL
    assert answer(stage).drafts is DraftKind.LOOKUP  # until it is loaded
    set_done(stage)
    assert answer(stage).drafts is DraftKind.MODEL
    stage.controller.change_settings(faster_answers="off")
    assert answer(stage).drafts is DraftKind.NONE


def test_the_draft_model_runs_on_what_its_own_settings_say(stage: Stage) -> None:
    choose(stage, SMALL)
    stage.ready(MODEL)
    stage.wait_until_idle()
    assert stage.engine.last(SetDraft).device is None  # beside the model
    set_done(stage)
    for choice, device in (("cpu", "cpu"), ("gpu", "gpu"), ("auto", "")):
        stage.controller.library.defaults.change(OTHER, ModelDefaults(runs_on=choice))
        choose(stage, SMALL)
        choose(stage, OTHER)
        stage.wait_until_idle()
        assert stage.engine.last(SetDraft).device == device


def test_another_choice_takes_effect_at_once(stage: Stage) -> None:
    stage.ready(MODEL)
    choose(stage, SMALL)
    set_done(stage)
    choose(stage, OTHER)
    assert stage.engine.last(SetDraft).path == OTHER
    assert answer(stage).drafts is DraftKind.LOOKUP
    set_done(stage)
    assert answer(stage).drafts is DraftKind.MODEL
    stage.controller.library.defaults.change(MODEL, ModelDefaults(top_k=3, draft=OTHER))
    assert stage.engine.count(SetDraft) == 2  # another setting of the model has changed
    choose(stage, None)
    assert stage.engine.last(SetDraft).path is None
    set_done(stage)
    assert answer(stage).drafts is DraftKind.LOOKUP
    choose(stage, SMALL, Path("/models/elsewhere.gguf"))
    assert stage.engine.count(SetDraft) == 3


def test_one_that_cannot_be_used_is_named_and_answers_go_on(stage: Stage) -> None:
    stage.ready(MODEL)
    choose(stage, SMALL)
    request = stage.engine.last(SetDraft).request
    stage.engine.deliver(Failed(request, "Its vocabulary is too different.", "Choose another."))
    stage.drain()
    notice = stage.state.notices[NOTICE]
    assert notice.sentence == "small cannot guess words for this model."
    assert (notice.remedy, notice.detail) == (
        "Choose another.",
        "Its vocabulary is too different.",
    )
    assert answer(stage).drafts is DraftKind.LOOKUP
    choose(stage, None)
    assert NOTICE not in stage.state.notices


def test_a_newly_loaded_model_gets_its_own(stage: Stage) -> None:
    choose(stage, SMALL)
    stage.ready(MODEL)
    set_done(stage)
    stage.controller.load_model(OTHER)
    stage.engine.finish_load()
    stage.wait_until_idle()
    assert stage.engine.count(SetDraft) == 1
    assert answer(stage).drafts is DraftKind.LOOKUP
    stage.controller.load_model(MODEL)
    stage.engine.finish_load()
    stage.wait_until_idle()
    assert stage.engine.count(SetDraft) == 2


def test_the_failure_of_an_earlier_choice_is_not_shown(stage: Stage) -> None:
    stage.ready(MODEL)
    choose(stage, SMALL)
    first = stage.engine.last(SetDraft).request
    choose(stage, OTHER)
    stage.engine.deliver(Failed(first, "Its vocabulary is too different.", ""))
    stage.drain()
    assert stage.state.notices == {}
    set_done(stage)
    assert answer(stage).drafts is DraftKind.MODEL
