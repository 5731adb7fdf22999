"""Empty view: what it says about the model."""

from __future__ import annotations

from dataclasses import replace

from fakes import MODEL
from stage import Stage


def test_a_base_model_says_that_it_does_not_chat(stage: Stage) -> None:
    stage.ready(MODEL)
    words = stage.window.chat.empty_view.sentence
    assert words.text() == "Runs on this computer. Nothing you write leaves it."
    model = stage.state.model
    assert model.loaded is not None
    stage.state.set_model(replace(model, loaded=replace(model.loaded, base=True)))
    assert words.text() == "This model continues text; it was not made to chat."
