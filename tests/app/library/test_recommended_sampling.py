"""The recommended sampling of a model, and what takes precedence over it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.downloads import catalog
from app.library import recommended_sampling
from app.library.recommended_sampling import STARTER, with_recommended
from app.settings.table import Settings
from engine import starter_path

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


def test_unknown_model_uses_the_settings() -> None:
    settings = replace(Settings(), top_k=7)
    assert with_recommended(settings, Path("/models/unknown.gguf")) is settings


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
