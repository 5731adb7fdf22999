"""Per-model settings and the library's JSON files: validation and atomic writes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.library import folders as library_places
from app.library.folders import Places
from app.settings import model_settings as model_defaults
from app.settings.model_settings import AS_IN_SETTINGS, ModelDefaults, applied, in_settings
from app.settings.table import Settings
from app.system import json_file
from app.system.json_file import JsonFileError
from engine import CacheType

MODEL = Path("/models/a.gguf")
ALL = ModelDefaults(4096, CacheType.Q8_0, 0.5, 20, 0.9, 0.1, 1.2, Path("/models/small.gguf"), 2.5)


def test_saved_model_settings_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "config" / "models.json"
    odd = Path("/models/نموذج 模型 \udcff.gguf")
    model_defaults.save(path, {MODEL: ALL, odd: ModelDefaults(top_k=0), Path("/b"): AS_IN_SETTINGS})
    assert model_defaults.load(path) == {MODEL: ALL, odd: ModelDefaults(top_k=0)}
    assert list(path.parent.iterdir()) == [path]


def test_model_values_override_the_settings() -> None:
    settings = Settings(temperature=0.9, top_k=7, context=2048)
    held = applied(settings, ModelDefaults(temperature=0.1))
    assert (held.temperature, held.top_k, held.context) == (0.1, 7, 2048)
    assert applied(settings, AS_IN_SETTINGS) == settings
    whole = in_settings(settings)
    assert None not in (whole.context, whole.cache, whole.temperature, whole.repeat_penalty)


@pytest.mark.parametrize(
    "values",
    [
        {"context": -1},
        {"context": 1.5},
        {"context": True},
        {"context": "4096"},
        {"temperature": math.nan},
        {"temperature": 99},
        {"top_p": 0},
        {"cache": "q2"},
        {"cache": ["f16"]},
        {"unheard": 1},
        [],
        None,
    ],
)
def test_invalid_value_is_skipped(tmp_path: Path, values: object) -> None:
    path = tmp_path / "models.json"
    path.write_text(json.dumps({"defaults": {str(MODEL): values}}), encoding="utf-8")
    assert model_defaults.load(path) == {}


@given(
    some.recursive(
        some.none() | some.booleans() | some.floats() | some.integers() | some.text(),
        lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    )
)
def test_no_json_content_prevents_the_start(
    tmp_path_factory: pytest.TempPathFactory, content: object
) -> None:
    path = tmp_path_factory.mktemp("config") / "models.json"
    path.write_text(
        json.dumps({"defaults": content, "folders": content, "files": {"a": content}}),
        encoding="utf-8",
    )
    assert all(isinstance(key, Path) for key in model_defaults.load(path))
    assert all(folder.is_absolute() for folder in library_places.load(path).folders)


def test_damaged_file_is_renamed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "models.json"
    path.write_bytes(b"{ half")
    assert model_defaults.load(path) == {}
    (aside,) = tmp_path.iterdir()
    assert aside.read_bytes() == b"{ half"
    assert "set aside" in caplog.text


def test_places_keep_their_order_and_skip_relative_paths(tmp_path: Path) -> None:
    path = tmp_path / "library.json"
    b, a, c = (Path(f"/{name}").absolute() for name in ("b", "a", "c.gguf"))
    places = Places((b, a), (c,))
    library_places.save(path, places)
    assert library_places.load(path) == places
    path.write_text(
        json.dumps({"folders": ["relative", str(a), str(a), 7, "/x\0y"], "files": "no"}),
        encoding="utf-8",
    )
    assert library_places.load(path) == Places((a,), ())


def test_keys_of_another_version_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "library.json"
    path.write_text('{"newer": [1]}', encoding="utf-8")
    library_places.save(path, Places())
    assert json_file.read(path) == {"newer": [1], "folders": [], "files": []}


def test_failed_write_has_a_reason_and_keeps_the_old_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(JsonFileError, match="could not be written") as refused:
        library_places.save(blocked / "library.json", Places())
    assert refused.value.remedy
    path = tmp_path / "library.json"
    library_places.save(path, Places((Path("/a"),)))
    before = path.read_bytes()
    (tmp_path / "target").mkdir()
    with pytest.raises(JsonFileError):
        json_file.write(tmp_path / "target", {})
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "library.json", "target"]
