"""Sampling recommended for a model file: its publisher's, or the one measured for the starter.

It takes the place of the app's defaults, never of a value that the user has changed.
"""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path

from app.downloads import catalog
from app.downloads.catalog import CatalogError, CatalogSampling
from app.settings.table import Settings
from engine import Sampling, starter_path

# Measured with sixty plain and sixty everyday questions: tests/benchmarks/starter_sampling.md and
# loops.md. DRY over the whole text ends what the repeat penalty alone does not.
STARTER = CatalogSampling(temperature=0.3, dry_multiplier=0.8, dry_allowed_length=12)


def with_recommended(settings: Settings, path: Path, own: Sampling | None = None) -> Settings:
    """The settings, with the recommended sampling of this file where the user changed nothing.

    `own` is what the file itself recommends: it comes before what is known of the file's name.
    """
    values = {**_known(path), **_differing(own)}
    usual = Settings()
    unchanged = {
        name: value
        for name, value in values.items()
        if getattr(settings, name) == getattr(usual, name)
    }
    return replace(settings, **unchanged)


def _known(path: Path) -> dict[str, float]:
    """What is recommended for files of this name."""
    found = _by_file().get(path.name)
    return {} if found is None else {k: v for k, v in asdict(found).items() if v is not None}


def _differing(own: Sampling | None) -> dict[str, float]:
    """The values with a setting that a file recommends; an engine's default may not be meant."""
    if own is None:
        return {}
    usual, names = Sampling(), [field.name for field in fields(CatalogSampling)]
    found = {name: getattr(own, name) for name in names}
    return {name: value for name, value in found.items() if value != getattr(usual, name)}


@cache
def _by_file() -> dict[str, CatalogSampling]:
    """The recommended sampling by file name; the starter's alone if the catalog is damaged."""
    try:
        known = {model.file: model.sampling for model in catalog.load()}
    except CatalogError:
        known = {}
    return known | {starter_path().name: STARTER}
