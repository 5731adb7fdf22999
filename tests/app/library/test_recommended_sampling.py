"""The recommended sampling of a model, and what takes precedence over it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.downloads import catalog
from app.library import recommended_sampling
from app.library.recommended_sampling import STARTER, with_recommended
from app.settings.table import Settings, sampling
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
    own = Sampling(temperature=0.9, top_k=7, xtc_probability=0.5)
    found = with_recommended(Settings(), PATH, own)
    named = with_recommended(Settings(), PATH)
    assert (found.temperature, found.top_k) == (0.9, 7)
    assert found.top_p == named.top_p  # the engine's default may not be meant
    assert found.repeat_penalty == Settings().repeat_penalty
    kept = with_recommended(replace(Settings(), temperature=1.1), PATH, own)
    assert (kept.temperature, kept.top_k) == (1.1, 7)
    used = sampling(found, own)
    assert (used.temperature, used.top_k, used.xtc_probability) == (0.9, 7, 0.5)
    assert sampling(found).xtc_probability == 0


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
