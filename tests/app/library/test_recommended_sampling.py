"""The recommended sampling of a model, and what takes precedence over it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.downloads import catalog
from app.library import recommended_sampling
from app.library.recommended_sampling import STARTER, used_values, with_recommended
from app.settings.model_settings import ModelDefaults
from app.settings.table import Settings, sampling, with_own
from app.settings.used_sampling import Origin, UsedValue
from app.ui.settings.fields import LineField
from engine import Sampling, starter_path
from fakes import MODEL as FAKE
from stage import Stage

MODEL = next(model for model in catalog.load() if model.sampling.temperature == 0.5)
PATH = Path("/models") / MODEL.file


@pytest.fixture(autouse=True)
def shipped_catalog() -> None:
    """Other tests may have read a catalog of their own."""
    recommended_sampling._by_file.cache_clear()


def test_unchanged_settings_give_way_to_the_recommendation() -> None:
    found = with_recommended(Settings(), PATH)
    assert found.temperature == MODEL.sampling.temperature
    assert found.top_k == MODEL.sampling.top_k
    assert found.top_p == MODEL.sampling.top_p
    assert found.min_p == MODEL.sampling.min_p
    assert found.repeat_penalty == Settings().repeat_penalty


def test_what_the_user_changed_stays() -> None:
    found = with_recommended(replace(Settings(), temperature=1.1), PATH)
    assert found.temperature == 1.1
    assert found.top_k == MODEL.sampling.top_k


def test_starter_has_the_measured_sampling() -> None:
    found = with_recommended(Settings(), starter_path())
    assert found.temperature == STARTER.temperature
    assert found.top_p == Settings().top_p
    used = sampling(found)
    assert (used.dry_multiplier, used.dry_allowed_length, used.dry_breakers) == (
        STARTER.dry_multiplier,
        STARTER.dry_allowed_length,
        (),
    )
    assert used.repeat_penalty == Settings().repeat_penalty
    assert sampling(with_recommended(Settings(), PATH)).dry_multiplier == 0


def test_unknown_model_uses_the_settings() -> None:
    settings = replace(Settings(), top_k=7)
    assert with_recommended(settings, Path("/models/unknown.gguf")) == settings


def test_damaged_catalog_leaves_the_starter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def damaged() -> tuple[catalog.CatalogModel, ...]:
        return original(tmp_path / "missing.json")

    original = catalog.load
    monkeypatch.setattr(catalog, "load", damaged)
    recommended_sampling._by_file.cache_clear()
    try:
        assert with_recommended(Settings(), PATH) == Settings()
        assert with_recommended(Settings(), starter_path()).temperature == STARTER.temperature
    finally:
        recommended_sampling._by_file.cache_clear()


def test_the_file_comes_before_its_name_and_the_user_before_both() -> None:
    by_file = {"temperature": 0.9, "top_k": 7}
    own = Sampling(temperature=0.9, top_k=7, xtc_probability=0.5)
    found = with_recommended(Settings(), PATH, by_file)
    named = with_recommended(Settings(), PATH)
    assert (found.temperature, found.top_k) == (0.9, 7)
    assert found.top_p == named.top_p
    assert found.repeat_penalty == Settings().repeat_penalty
    kept = with_recommended(replace(Settings(), temperature=1.1), PATH, by_file)
    assert (kept.temperature, kept.top_k) == (1.1, 7)
    used = sampling(found, own)
    assert (used.temperature, used.top_k, used.xtc_probability) == (0.9, 7, 0.5)
    assert sampling(found).xtc_probability == 0


def test_a_usual_value_is_used_where_the_user_or_the_file_says_so() -> None:
    usual = Settings()
    chosen = with_own(usual, "temperature")
    assert with_recommended(chosen, PATH).temperature == usual.temperature
    assert MODEL.sampling.temperature != usual.temperature
    # The engine's usual value, which is not the app's: the file means it.
    assert Sampling().repeat_penalty != usual.repeat_penalty
    by_file = {"repeat_penalty": Sampling().repeat_penalty}
    assert with_recommended(usual, PATH, by_file).repeat_penalty == Sampling().repeat_penalty


def test_each_value_has_its_origin() -> None:
    settings = with_own(replace(Settings(), top_p=0.5), "min_p", "top_p")
    used = used_values(settings, PATH, {"top_k": 7, "top_p": 0.9}, {"min_p": 0.2})
    known = MODEL.sampling.temperature
    assert used == {
        "temperature": UsedValue(known, Origin.KNOWN, known, known),
        "top_k": UsedValue(7, Origin.FILE, 7, 7),
        "top_p": UsedValue(0.5, Origin.YOURS, 0.5, 0.9),
        "min_p": UsedValue(0.2, Origin.MODEL, settings.min_p, MODEL.sampling.min_p),
        "repeat_penalty": UsedValue(1.1, Origin.USUAL, 1.1),
        "max_tokens": UsedValue(0, Origin.USUAL, 0),
    }


def test_answers_of_the_starter_end_unless_no_limit_is_chosen() -> None:
    path = starter_path()
    assert with_recommended(Settings(), path).max_tokens == 1_500  # as the changelog says
    unlimited = with_own(Settings(), "max_tokens")
    assert with_recommended(unlimited, path).max_tokens == 0
    assert with_recommended(replace(Settings(), max_tokens=4_000), path).max_tokens == 4_000
    assert with_recommended(Settings(), PATH).max_tokens == 0


def test_the_settings_page_shows_what_answers_use(stage: Stage) -> None:
    stage.start(FAKE)
    stage.engine.finish_load(sampling=Sampling(temperature=0.35))
    stage.wait_until_idle()
    stage.window.preferences.open()
    stage.wait_until_idle()
    page = stage.window.preferences.page
    assert page is not None
    row = page.rows["temperature"]

    def shown() -> tuple[str, str]:
        assert isinstance(row.field, LineField)
        return row.field.line.text(), row.source.text()

    def used() -> float:
        stage.controller.send("hello")
        stage.wait_until_idle()
        stage.engine.finish()
        stage.wait_until_idle()
        return stage.engine.last_generate.sampling.temperature

    assert shown() == ("0.35", "Recommended by the file of Small Model 135M.")
    assert row.reset.isHidden()
    assert used() == 0.35
    assert isinstance(row.field, LineField)
    row.field.line.setText("0.7")  # the usual value, chosen
    row.field.line.setModified(True)
    row.field.line.editingFinished.emit()
    assert shown() == ("0.7", "Your choice; 0.35 is recommended for Small Model 135M.")
    assert used() == 0.7
    row.reset.click()
    assert shown() == ("0.35", "Recommended by the file of Small Model 135M.")
    assert used() == 0.35
    stage.controller.library.defaults.change(FAKE, ModelDefaults(temperature=0.5))
    assert shown() == ("0.35", "Small Model 135M uses 0.5, its own setting.")
    assert used() == 0.5


def test_answers_use_what_the_loaded_file_recommends(stage: Stage) -> None:
    stage.start(FAKE)
    own = Sampling(temperature=0.35, min_p=0.2, typical_p=0.8)
    stage.engine.finish_load(sampling=own)
    stage.wait_until_idle()
    stage.controller.send("hello")
    stage.wait_until_idle()
    used = stage.engine.last_generate.sampling
    assert (used.temperature, used.min_p, used.typical_p) == (0.35, 0.2, 0.8)
    stage.engine.finish()
    stage.wait_until_idle()
    stage.controller.change_settings(temperature=1.2)
    stage.controller.send("again")
    stage.wait_until_idle()
    used = stage.engine.last_generate.sampling
    assert (used.temperature, used.min_p) == (1.2, 0.2)
    stage.controller.library.defaults.show(FAKE)
    stage.wait_until_idle()
    view = stage.states.library.defaults
    assert view is not None
    assert view.settings.min_p == 0.2
