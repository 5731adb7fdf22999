"""Sampling recommended for a model file: its publisher's, or the one measured for the starter.

It takes the place of the app's defaults, never of a value that the user has changed.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from app.downloads import catalog
from app.downloads.catalog import CatalogError, CatalogSampling
from app.settings.table import Settings
from engine import starter_path

# Measured with sixty plain questions: tests/benchmarks/starter_sampling.md.
STARTER = CatalogSampling(temperature=0.3)


def with_recommended(settings: Settings, path: Path) -> Settings:
    """The settings, with the recommended sampling of this file where the user changed nothing."""
    recommended = _by_file().get(path.name)
    if recommended is None:
        return settings
    usual = Settings()
    values = {
        name: value
        for name, value in asdict(recommended).items()
        if value is not None and getattr(settings, name) == getattr(usual, name)
    }
    return replace(settings, **values)


@cache
def _by_file() -> dict[str, CatalogSampling]:
    """The recommended sampling by file name; the starter's alone if the catalog is damaged."""
    try:
        known = {model.file: model.sampling for model in catalog.load()}
    except CatalogError:
        known = {}
    return known | {starter_path().name: STARTER}
