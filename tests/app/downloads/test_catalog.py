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
from app.net.hub import HUB, kind_of
from app.net.hub_links import parse_link
from app.settings.table import SETTINGS
from engine import LayerGroup, belonging, supported_architectures
from engine.models import ARCHITECTURES
from engine.models.rope import SCALINGS
from engine.vision.pairing import may_fit
from kernels.weights.formats import FORMATS, UNSUPPORTED, by_name

MODELS = catalog.load()
FORMAT_NAMES = {row.name for row in FORMATS.values()}
RECIPES = FORMAT_NAMES | {f"{name}_M" for name in FORMAT_NAMES}
# Fallback formats of a recipe, for rows that are not a multiple of 256.
PROJECTORS = ("qwen3vl_merger", "gemma4v", "gemma3", "pixtral")
FALLBACK = {"Q4_K": "Q5_0"}


def test_every_required_family_is_in_the_catalog() -> None:
    sizes = {family: set[str]() for family in {model.family for model in MODELS}}
    for model in MODELS:
        sizes[model.family].add(model.name.removeprefix(model.family).strip())
    assert sizes == {
        "Bonsai": {"27B", "8B", "4B", "1.7B"},
        "Ternary Bonsai": {"27B", "2 27B", "8B", "4B", "1.7B"},
        "Qwen3": {"0.6B", "1.7B", "4B", "8B", "30B-A3B"},
        "Qwen3.5": {"0.8B", "2B", "4B", "9B", "27B"},
        "Qwen3.6": {"27B", "35B-A3B"},
        "Qwen3.8": {"27B"},
        "Gemma 3": {"270M", "1B", "4B"},
        "Gemma 4": {"E2B", "E4B", "12B", "26B-A4B", "31B"},
        "gpt-oss": {"20B"},
        "Ministral 3": {"3B", "8B", "14B"},
        "Llama 3.2": {"1B", "3B"},
        "LFM2": {"2.6B", ".5 1.2B", ".5 8B-A1B"},
        "Granite": {"4.0 H Tiny"},
        "SmolLM2": {"135M", "360M", "1.7B"},
        "SmolLM3": {"3B"},
        "Phi-4": {"mini"},
    }


def test_every_layout_of_the_27b_bonsais_is_in_the_catalog() -> None:
    found = {(model.name, model.format) for model in MODELS if "Bonsai" in model.name}
    assert {each for each in found if each[0].endswith("27B")} == {
        ("Bonsai 27B", "Q1_0"),
        ("Ternary Bonsai 27B", "PQ2_0"),
        ("Ternary Bonsai 27B", "Q2_0"),
        ("Ternary Bonsai 2 27B", "PTQ1_0"),
        ("Ternary Bonsai 2 27B", "PQ2_0"),
    }


def test_there_is_one_choice_for_each_size_of_computer_and_one_that_sees_from_8_gb_on() -> None:
    choices = [(model.memory_gb, bool(model.encoder)) for model in MODELS if model.choice]
    assert sorted(choices) == [(4, False), (8, False), (8, True), (16, True), (32, True)]


def test_the_models_that_see_name_the_encoder_in_their_repository() -> None:
    named = {model.id: model for model in MODELS if model.encoder}
    assert named.keys() == {
        *("qwen3.5-0.8b", "qwen3.5-2b", "qwen3.5-4b", "qwen3.5-9b", "qwen3.5-27b"),
        *("qwen3.6-27b", "qwen3.6-35b-a3b", "qwen3.8-27b", "gemma3-4b", "gemma4-e2b"),
        *("gemma4-e4b", "gemma4-26b-a4b", "gemma4-31b", "ministral3-3b", "ministral3-8b"),
        *("ministral3-14b", "bonsai-27b", "ternary-bonsai-27b-pq2", "ternary-bonsai-27b-q2"),
        *("ternary-bonsai-2-27b-ptq1", "ternary-bonsai-2-27b-pq2"),
    }
    for model in named.values():
        assert kind_of(model.encoder) == "projector", model.id
        assert belonging(model.encoder, model.file) >= 0, model.id
        assert any(may_fit(kind, 0, model.architecture, 0) for kind in PROJECTORS), model.id
        assert 200_000_000 < model.encoder_bytes < 1_300_000_000, model.id


def test_sizes_of_encoders_of_one_tower_differ_by_their_last_product() -> None:
    """[width, rows] in F16 and a bias in float32: so the sizes without a record are computed."""
    size = {model.id: model.encoder_bytes for model in MODELS}
    assert size["qwen3.6-27b"] - size["qwen3.5-9b"] == 1_024 * (4_608 * 2 + 4), "both recorded"
    for wide, narrow, columns, rows in (
        ("qwen3.5-27b", "qwen3.5-9b", 1_024, 4_608),
        ("qwen3.8-27b", "qwen3.5-9b", 1_024, 4_608),
        ("qwen3.5-4b", "qwen3.5-2b", 512, 4_096),
    ):
        assert size[wide] - size[narrow] == columns * (rows * 2 + 4), wide


def test_the_smallest_computer_of_a_model_leaves_it_enough_memory() -> None:
    for model in MODELS:
        # Weights, the context memory of a chat of 4,096 tokens, and a little for a pass.
        groups = model.layer_groups or (LayerGroup(model.layers, model.kv_heads, model.head_width),)
        token = sum(4 * group.layers * group.kv_heads * group.head_width for group in groups)
        needed = model.size_bytes + 4_096 * token
        assert catalog.smallest_computer(needed) <= model.memory_gb, model.id
        assert model.memory_gb <= catalog.smallest_computer(int(1.15 * needed) + 800_000_000), (
            model.id
        )


@pytest.mark.parametrize(
    ("reported", "counted"),
    [(2, 4), (4, 4), (7.8, 8), (12.6, 8), (15.4, 16), (24, 16), (31.1, 32), (512, 32)],
)
def test_a_computer_counts_as_the_size_it_was_sold_as(reported: float, counted: int) -> None:
    assert catalog.computer_of(int(reported * 1e9)) == counted


def test_links_have_the_hub_format() -> None:
    for model in MODELS:
        address = model.address()
        assert re.fullmatch(
            r"https://huggingface\.co/[\w.-]+/[\w.-]+/resolve/([0-9a-f]{40}|main)/[\w.-]+\.gguf",
            address,
        )
        assert parse_link(address) == replace(model.source, size_bytes=0, sha256=""), model.id
        assert model.address("https://mirror.example/").startswith("https://mirror.example/")
        assert safe_name(model.file) == model.file, model.id
        assert model.page() == f"{HUB}/{model.repository}", model.id


def test_parameter_counts_match_the_shapes() -> None:
    for model in MODELS:
        if model.architecture in ("llama", "qwen3", "gemma3"):
            assert model.parameters in (counted(model, tied=True), counted(model, tied=False)), (
                model.id
            )
        elif model.architecture != "gemma4":  # whose embeddings of each layer are in no field
            near = pytest.approx(model.parameters, rel=0.005)
            assert counted(model, tied=True) == near or counted(model, tied=False) == near, model.id


def counted(model: CatalogModel, *, tied: bool) -> int:
    """Parameter count of a model of this shape, for hybrids without small vectors."""
    norms = {"gemma3": 2 * model.head_width + 2 * model.width, "qwen3": 2 * model.head_width}
    tables = model.vocabulary * model.width * (1 if tied else 2)
    vectors = 2 * model.width + norms.get(model.architecture, 0)
    layers = model.layers * (vectors + feed_forward(model))
    groups = model.layer_groups or (LayerGroup(model.layers, model.kv_heads, model.head_width),)
    layers += sum(group.layers * mixing(model, group) for group in groups)
    return tables + model.width + layers + extra(model)


def feed_forward(model: CatalogModel) -> int:
    """Of one layer: its experts, those shared by all tokens, and the router."""
    one = 3 * model.width * model.feed_forward
    shared = {"qwen35moe": 1, "granitehybrid": 2}.get(model.architecture, 0)
    if not model.experts:
        return one
    return one * (model.experts + shared) + model.width * model.experts


def mixing(model: CatalogModel, group: LayerGroup) -> int:
    """Of the attention, the recurrence or the convolution of one layer."""
    width = model.width
    if group.kv_heads:
        gate = model.architecture.startswith("qwen35")  # as wide as the queries
        return width * group.head_width * ((3 if gate else 2) * model.heads + 2 * group.kv_heads)
    if not group.recurrence:
        return 4 * width * width  # the projections of a gated short convolution
    heads, _, value_width = group.recurrence
    values, channels = heads * value_width, group.convolution[0]
    small = width * heads * (2 if model.architecture.startswith("qwen35") else 1)
    return width * (channels + values) + small + values * width + 4 * channels


def extra(model: CatalogModel) -> int:
    """Of the first two layers of `lfm2moe`, which have a wide feed-forward instead of experts."""
    dense = 3 * model.width * 7168 - feed_forward(model)
    return 2 * dense if model.architecture == "lfm2moe" else 0


def test_file_sizes_match_parameters_and_layout() -> None:
    rows = (*FORMATS.values(), *UNSUPPORTED.values())
    known = {row.name: 8 * row.size / row.block for row in rows}
    for model in MODELS:
        bits = known[model.format if model.format in known else model.format.removesuffix("_M")]
        found = 8 * model.size_bytes / model.parameters
        # Recipes quantize embeddings with more bits, and the file includes the vocabulary. So do the
        # publishers of these two, whose files are named after the format of their other weights.
        mixed = model.format not in known or model.architecture in ("gemma4", "gpt-oss")
        assert bits <= found <= bits * (1.45 if mixed else 1.06), model.id


def test_layout_names_match_the_engine() -> None:
    for model in MODELS:
        base = model.format if model.format in RECIPES - FORMAT_NAMES else ""
        name = base.removesuffix("_M") or model.format
        if base and model.width % 256:
            name = FALLBACK[name]
        if name in FORMAT_NAMES:
            assert model.layout == by_name(name).words, model.id
        else:
            assert name in {row.name for row in UNSUPPORTED.values()}, model.id


def test_memory_prediction_uses_the_catalog_shape() -> None:
    for model in MODELS:
        shape = model.shape
        found = (shape.architecture, shape.layers, shape.kv_heads, shape.format)
        assert found == (model.architecture, model.layers, model.kv_heads, model.format), model.id


def test_unsupported_model_has_a_problem_sentence() -> None:
    said = {model.id: catalog.problem(model, RECIPES, ARCHITECTURES) for model in MODELS}
    for model in MODELS:
        runs = (
            model.architecture in ARCHITECTURES
            and model.format in RECIPES
            and model.rope_scaling in catalog.ROPE_SCALINGS
        )
        assert bool(said[model.id]) != runs
    assert said["bonsai-1.7b"] == said["ternary-bonsai-4b"] == said["smollm2-135m"] == ""
    strange = replace(MODELS[0], format="I8")
    assert catalog.problem(strange, RECIPES, ARCHITECTURES) == "I8 is not supported yet."


def test_unknown_architecture_has_a_problem_sentence() -> None:
    strange = replace(MODELS[0], architecture="mamba")
    said = catalog.problem(strange, RECIPES, ARCHITECTURES)
    assert said == f"{strange.name} is not supported yet."


def test_the_engine_is_asked_for_the_architectures_it_runs() -> None:
    assert supported_architectures() == set(ARCHITECTURES)


def test_rope_scalings_match_the_engine() -> None:
    assert set(catalog.ROPE_SCALINGS) == set(SCALINGS)


def edited(tmp_path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """The catalog with one change."""
    content = {"version": 1, "models": [json.loads(json.dumps(stored_row()))]}
    edit(content)
    path = tmp_path / "catalog.json"
    path.write_text(json.dumps(content), encoding="utf-8")
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
        ("thinking", "sometimes"),
        ("memory_gb", 12),
        ("choice", 1),
        ("experts", -1),
        ("layer_groups", {}),
        ("layer_groups", [{"kv_heads": 8}]),
        ("layer_groups", [{"layers": 36, "recurrence": [16, 128]}]),
        ("layer_groups", [{"layers": 36, "window": 512}]),
        ("layer_groups", [{"layers": 35}]),
        *(
            ("sampling", {name: SETTINGS[name].high + 1})
            for name in ("temperature", "top_k", "top_p", "min_p")
        ),
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
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CatalogError):
        catalog.load(path)


def test_a_missing_catalog_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="cannot be read"):
        catalog.load(tmp_path / "none.json")
