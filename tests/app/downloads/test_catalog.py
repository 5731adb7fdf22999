"""Model catalog: its contents, and errors for invalid files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.downloads import catalog
from app.downloads.catalog import CatalogError, CatalogModel
from app.downloads.names import safe_name
from app.net.hub import HUB, parse_link
from app.settings.table import SETTINGS
from engine import ModelShape
from engine.models import ARCHITECTURES
from engine.models.rope import SCALINGS
from kernels.formats import FORMATS, UNSUPPORTED, by_name

MODELS = catalog.load()
FORMAT_NAMES = {row.name for row in FORMATS.values()}
RECIPES = FORMAT_NAMES | {f"{name}_M" for name in FORMAT_NAMES}
each_model = pytest.mark.parametrize("model", MODELS, ids=[model.id for model in MODELS])
# Fallback formats of a recipe, for rows that are not a multiple of 256.
FALLBACK = {"Q4_K": "Q5_0"}


def test_every_required_family_is_in_the_catalog() -> None:
    sizes = {family: set[str]() for family in {model.family for model in MODELS}}
    for model in MODELS:
        sizes[model.family].add(model.name.removeprefix(model.family).strip())
    assert sizes == {
        "Bonsai": {"8B", "4B", "1.7B"},
        "Ternary Bonsai": {"8B", "4B", "1.7B"},
        "Qwen3": {"0.6B", "1.7B", "4B", "8B"},
        "Gemma 3": {"270M", "1B", "4B"},
        "Llama 3.2": {"1B", "3B"},
        "SmolLM2": {"135M", "360M", "1.7B"},
    }


@each_model
def test_links_have_the_hub_format(model: CatalogModel) -> None:
    address = model.address()
    assert re.fullmatch(
        r"https://huggingface\.co/[\w.-]+/[\w.-]+/resolve/([0-9a-f]{40}|main)/[\w.-]+\.gguf",
        address,
    )
    assert parse_link(address) == replace(model.source, size_bytes=0, sha256="")
    assert model.address("https://mirror.example/").startswith("https://mirror.example/")
    assert safe_name(model.file) == model.file
    assert model.page() == f"{HUB}/{model.repository}"


@each_model
def test_parameter_counts_match_the_shapes(model: CatalogModel) -> None:
    assert model.parameters in (counted(model, tied=True), counted(model, tied=False))


def counted(model: CatalogModel, *, tied: bool) -> int:
    """Parameter count of a model of this shape."""
    norms = {"llama": 0, "qwen3": 2 * model.head_width}
    extra = norms.get(model.architecture, 2 * model.head_width + 2 * model.width)
    layer = model.shape.layer_weights + 2 * model.width + extra
    tables = model.vocabulary * model.width * (1 if tied else 2)
    return tables + model.width + model.layers * layer


@each_model
def test_file_sizes_match_parameters_and_layout(model: CatalogModel) -> None:
    known = {
        row.name: 8 * row.size / row.block for row in (*FORMATS.values(), *UNSUPPORTED.values())
    }
    bits = known[model.format if model.format in known else model.format.removesuffix("_M")]
    found = 8 * model.size_bytes / model.parameters
    # Recipes quantize embeddings with more bits, and the file includes the vocabulary.
    assert bits <= found <= bits * (1.06 if model.format in known else 1.45)


@each_model
def test_layout_names_match_the_engine(model: CatalogModel) -> None:
    base = model.format if model.format in RECIPES - FORMAT_NAMES else ""
    name = base.removesuffix("_M") or model.format
    if base and model.width % 256:
        name = FALLBACK[name]
    if name in FORMAT_NAMES:
        assert model.layout == by_name(name).words
    else:
        assert name in {row.name for row in UNSUPPORTED.values()}


@each_model
def test_memory_prediction_uses_the_catalog_shape(model: CatalogModel) -> None:
    shape = model.shape
    assert isinstance(shape, ModelShape)
    assert (shape.architecture, shape.layers, shape.kv_heads) == (
        model.architecture,
        model.layers,
        model.kv_heads,
    )
    assert shape.format == model.format


@each_model
def test_sampling_values_are_in_the_ranges_of_the_settings(model: CatalogModel) -> None:
    for name in ("temperature", "top_k", "top_p", "min_p"):
        value = getattr(model.sampling, name)
        row = SETTINGS[name]
        assert value is None or row.low <= value <= row.high


def test_unsupported_model_has_a_problem_sentence() -> None:
    said = {model.id: catalog.problem(model, RECIPES) for model in MODELS}
    for model in MODELS:
        runs = (
            model.architecture in ARCHITECTURES
            and model.format in RECIPES
            and model.rope_scaling in catalog.ROPE_SCALINGS
        )
        assert bool(said[model.id]) != runs
    assert said["bonsai-1.7b"] == said["ternary-bonsai-4b"] == said["smollm2-135m"] == ""
    strange = replace(MODELS[0], format="I8")
    assert catalog.problem(strange, RECIPES) == "I8 is not supported yet."


def test_unknown_architecture_has_a_problem_sentence() -> None:
    strange = replace(MODELS[0], architecture="mamba")
    assert catalog.problem(strange, RECIPES) == "mamba models are not supported yet."


def test_architectures_match_the_engine() -> None:
    assert set(catalog.ARCHITECTURES) == set(ARCHITECTURES)


def test_rope_scalings_match_the_engine() -> None:
    assert set(catalog.ROPE_SCALINGS) == set(SCALINGS)


def edited(tmp_path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """The catalog with one change."""
    content = {"version": 1, "models": [json.loads(json.dumps(stored_row()))]}
    edit(content)
    path = tmp_path / "catalog.json"
    path.write_text(json.dumps(content))
    return path


def stored_row() -> dict[str, Any]:
    path = catalog.paths.resources() / "catalog.json"
    return json.loads(path.read_bytes())["models"][0]


def test_an_unchanged_row_is_read(tmp_path: Path) -> None:
    assert catalog.load(edited(tmp_path, lambda content: None)) == MODELS[:1]


def test_a_row_without_size_and_hash_is_read(tmp_path: Path) -> None:
    path = edited(tmp_path, lambda c: c["models"][0].update(size_bytes=0, sha256=""))
    (model,) = catalog.load(path)
    assert (model.source.size_bytes, model.source.sha256) == (0, "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", "With Space"),
        ("name", ""),
        ("repository", "no-owner"),
        ("repository", "../x/y"),
        ("revision", "HEAD"),
        ("file", "../up.gguf"),
        ("file", "model.bin"),
        ("size_bytes", -1),
        ("size_bytes", 1.5),
        ("size_bytes", True),
        ("sha256", "ABC"),
        ("sha256", "g" * 64),
        ("licence_url", "http://plain.example"),
        ("description", "No full stop"),
        ("parameters", 0),
        ("layers", "36"),
        ("kv_heads", 5),
        ("context", None),
        ("sampling", {"temperature": 9}),
        ("sampling", {"temprature": 0.5}),
        ("sampling", []),
        ("sampling", {"top_k": 1.5}),
    ],
)
def test_invalid_value_is_named_in_the_error(tmp_path: Path, name: str, value: object) -> None:
    path = edited(tmp_path, lambda content: content["models"][0].update({name: value}))
    with pytest.raises(
        CatalogError, match=rf"^The catalog's row 1 has a wrong value for {name}\.$"
    ):
        catalog.load(path)


@pytest.mark.parametrize(
    "edit",
    [
        lambda content: content["models"][0].pop("sha256"),
        lambda content: content["models"][0].update(extra=1),
        lambda content: content["models"].append(5),
        lambda content: content["models"].append(content["models"][0]),
        lambda content: content.update(version=2),
        lambda content: content.pop("models"),
    ],
    ids=["missing", "extra", "no object", "twice", "version", "no models"],
)
def test_catalog_of_another_structure_is_refused(
    tmp_path: Path, edit: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(CatalogError) as caught:
        catalog.load(edited(tmp_path, edit))
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000])
def test_a_damaged_catalog_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "catalog.json"
    path.write_text(text)
    with pytest.raises(CatalogError):
        catalog.load(path)


def test_a_missing_catalog_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="cannot be read"):
        catalog.load(tmp_path / "none.json")
