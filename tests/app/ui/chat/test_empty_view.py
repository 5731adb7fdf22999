"""Empty view: what it says about the model."""

from __future__ import annotations

from dataclasses import replace

from app.state.chat import ModelFile
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


def test_a_new_chat_says_which_copy_of_the_model_it_has(stage: Stage) -> None:
    stage.ready(MODEL)
    model, facts = stage.state.model, stage.window.chat.empty_view.facts
    assert model.loaded is not None
    for format, amount in (("Q4_1", "98 MB"), ("Q8_0", "145 MB")):
        loaded = replace(model.loaded, format=format, file_bytes=int(amount.split()[0]) * 10**6)
        stage.state.set_model(replace(model, loaded=loaded))
        assert facts.text() == f"{format} · {amount}"
        assert format in stage.window.top_bar.model_button.text()


def test_after_unload_the_models_there_are_can_be_chosen(stage: Stage) -> None:
    stage.start()
    view = stage.window.chat.empty_view
    assert view.name.text() == "No model yet"
    stage.state.set_installed([ModelFile(MODEL, "Small", 1, bad=True)])
    assert view.name.text() == "No model yet"
    stage.state.set_installed([ModelFile(MODEL, "Small", 1)])
    assert view.name.text() == "No model loaded"
    assert view.sentence.text().startswith("Choose one above")
