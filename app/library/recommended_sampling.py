"""Sampling recommended for a model file: its publisher's, or the one measured for the starter.

It takes the place of the app's defaults, never of a value that the user has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from app.downloads import catalog
from app.downloads.catalog import CatalogError, CatalogSampling
from app.settings.table import SAMPLING, Settings, is_own
from app.settings.used_sampling import Origin, UsedValue
from engine import starter_path

# Measured with sixty plain and sixty everyday questions: tests/benchmarks/starter_sampling.md and
# loops.md: with DRY fewer of its answers loop, and as many are right.
# Answers that go on for longer than that are not finding an end.
STARTER = CatalogSampling(
    temperature=0.3, dry_multiplier=0.8, dry_allowed_length=12, max_tokens=1_500
)


def used_values(
    settings: Settings, path: Path, by_file: Mapping[str, float], by_model: Mapping[str, float]
) -> dict[str, UsedValue]:
    """The sampling values of a model, by the names of their settings.

    `by_file` is what the file itself recommends: it comes before what is known of the file's name.
    `by_model` are the user's values for this model alone.
    """
    by_name = _known(path)
    found: dict[str, UsedValue] = {}
    for name in dict.fromkeys((*SAMPLING, *by_name, *by_file)):
        value, recommended = getattr(settings, name), by_file.get(name, by_name.get(name))
        if is_own(settings, name):
            origin = Origin.YOURS
        elif recommended is None:
            origin = Origin.USUAL
        else:
            value, origin = recommended, Origin.FILE if name in by_file else Origin.KNOWN
        found[name] = UsedValue(value, origin, value, recommended)
        if name in by_model:
            found[name] = replace(found[name], value=by_model[name], origin=Origin.MODEL)
    return found


def with_recommended(
    settings: Settings, path: Path, by_file: Mapping[str, float] | None = None
) -> Settings:
    """The settings, with the recommended sampling of this file where the user chose nothing."""
    used = used_values(settings, path, by_file or {}, {})
    return replace(settings, **{name: one.value for name, one in used.items()})


def _known(path: Path) -> dict[str, float]:
    """What is recommended for files of this name."""
    found = _by_file().get(path.name)
    return {} if found is None else {k: v for k, v in asdict(found).items() if v is not None}


@cache
def _by_file() -> dict[str, CatalogSampling]:
    """The recommended sampling by file name; the starter's alone if the catalog is damaged."""
    try:
        known = {model.file: model.sampling for model in catalog.load()}
    except CatalogError:
        known = {}
    return known | {starter_path().name: STARTER}
