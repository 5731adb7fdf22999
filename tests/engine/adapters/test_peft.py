"""PEFT folders: equality with the peft library, and errors for unsupported or faulty ones."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save_file

import forward_pass
import oracle
import oracle_peft
import tiny
import tiny_lora
from engine import AdapterError, EngineError
from engine.adapters.stack import BaseModel, Stack, load_adapter
from engine.gguf.reader import GGUFFile
from engine.models import architecture
from engine.models.weights import Weights
from sessions import open_decoder

STEM = "base_model.model.model.layers"
HEADS = (4, 2)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def base(path: Path) -> BaseModel:
    return base_of(path)


def base_of(path: Path) -> BaseModel:
    with GGUFFile.open(path) as file:
        return architecture(file)(file, Weights(file, read=False), 64).base


@pytest.fixture
def folder(path: Path, tmp_path: Path) -> Path:
    """A valid folder of rank 4 and alpha 8 on queries and gates."""
    pairs = tiny_lora.pairs_for(path, targets=("attn_q", "ffn_gate"))
    return tiny_lora.write_peft(tmp_path / "poet", pairs, heads=HEADS)


def change_config(folder: Path, **keys: Any) -> None:
    file = folder / "adapter_config.json"
    file.write_text(
        json.dumps(json.loads(file.read_text(encoding="utf-8")) | keys), encoding="utf-8"
    )


def change_tensors(folder: Path, **changes: Any) -> None:
    """Replace or add tensors by the end of their names; None removes one."""
    file = folder / "adapter_model.safetensors"
    tensors = load(file.read_bytes())
    for name, value in changes.items():
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value
    save_file(tensors, file)


def refused(place: Path, base: BaseModel, *words: str) -> EngineError:
    """The error for a folder, checked to be one sentence with `words`, and a remedy."""
    with pytest.raises(AdapterError) as caught:
        load_adapter(place, base)
    for word in words:
        assert word in str(caught.value), caught.value
    assert str(caught.value).endswith(".")
    assert caught.value.remedy.endswith(".")
    assert caught.value.sentence.isprintable()
    return caught.value


@pytest.mark.parametrize("name", list(oracle_peft.CASES))
def test_logits_equal_the_peft_library(name: str, tmp_path: Path) -> None:
    case = oracle_peft.CASES[name]
    weights, state = oracle.recorded(case.base), oracle_peft.recorded(name)
    for key in ("tokens", "logits"):
        del weights[key]
    decoder = open_decoder(
        oracle.write_gguf(oracle.CASES[case.base], weights, tmp_path / "model.gguf")
    )
    adapter = load_adapter(oracle_peft.write_folder(tmp_path / "peft", state), decoder.base)
    stack = Stack([(adapter, 1.0)])
    found = forward_pass.logits(decoder, state["tokens"].tolist(), stack).numpy()
    assert np.abs(found - state["logits"]).max() <= 1e-4  # required: 1e-3
    assert adapter.rank == max(pair.rank for pair in adapter.pairs.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", list(oracle_peft.CASES))
def test_recorded_logits_equal_the_installed_peft(name: str) -> None:
    live, kept = oracle_peft.run_peft(oracle_peft.CASES[name]), oracle_peft.recorded(name)
    assert np.array_equal(live["tokens"], kept["tokens"])
    assert np.abs(live["logits"] - kept["logits"]).max() <= 1e-4


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3"])
def test_a_folder_and_its_gguf_conversion_are_equal(kind: str, tmp_path: Path) -> None:
    model = tiny.write(tmp_path / "m.gguf", architecture=kind)
    base = base_of(model)
    targets = (*tiny_lora.EVERY, "token_embd", "output")
    pairs = tiny_lora.pairs_for(model, rank=3, alpha=6.0, targets=targets)
    heads = HEADS if kind == "llama" else None
    one = load_adapter(
        tiny_lora.write(tmp_path / "a.gguf", model, rank=3, alpha=6.0, targets=targets), base
    )
    two = load_adapter(
        tiny_lora.write_peft(tmp_path / "peft", pairs, rank=3, alpha=6.0, heads=heads), base
    )
    assert set(one.pairs) == set(two.pairs)
    for name, pair in one.pairs.items():
        assert torch.equal(pair.a, two.pairs[name].a), name
        assert torch.equal(pair.b, two.pairs[name].b), name
        assert pair.scale == two.pairs[name].scale


@pytest.mark.parametrize("given_file", ["", "adapter_config.json", "adapter_model.safetensors"])
def test_the_folder_or_either_file_may_be_given(
    given_file: str, folder: Path, base: BaseModel
) -> None:
    place = folder / given_file
    found = load_adapter(place, base)
    assert (found.kind, found.name, found.path, found.rank) == ("PEFT", "poet", place, 4)
    assert sorted(found.pairs) == [
        f"blk.{layer}.{part}.weight" for layer in range(2) for part in ("attn_q", "ffn_gate")
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_halves_of_every_float_type_are_read(
    dtype: torch.dtype, path: Path, base: BaseModel, tmp_path: Path
) -> None:
    pairs = tiny_lora.pairs_for(path)
    found = load_adapter(
        tiny_lora.write_peft(tmp_path / "p", pairs, dtype=dtype, heads=HEADS), base
    )
    for name, pair in found.pairs.items():
        assert pair.b.dtype == torch.float32
        assert torch.equal(pair.b, torch.from_numpy(pairs[name][1]).to(dtype).float())


@pytest.mark.parametrize(
    ("keys", "scale"),
    [
        ({}, 8 / 4),
        ({"use_rslora": True}, 8 / math.sqrt(4)),
        ({"r": 16}, 8 / 4),
        ({"lora_alpha": 3.5}, 3.5 / 4),
        ({"alpha_pattern": {"q_proj": 2}}, 2 / 4),
        ({"alpha_pattern": {"layers.0.self_attn.q_proj": 2}}, 2 / 4),
        ({"alpha_pattern": {"layers.1.self_attn.q_proj": 2}}, 8 / 4),
        ({"alpha_pattern": {r".*\.0\.self_attn\.(q|k)_proj": 2}}, 2 / 4),
        ({"alpha_pattern": {"_proj": 2}}, 8 / 4),
        ({"alpha_pattern": {"q_proj": 2, "self_attn.q_proj": 6}}, 2 / 4),
        ({"alpha_pattern": None, "rank_pattern": None}, 8 / 4),
    ],
)
def test_the_scale_follows_the_configuration(
    keys: dict[str, Any], scale: float, folder: Path, base: BaseModel
) -> None:
    change_config(folder, **keys)
    assert load_adapter(folder, base).pairs["blk.0.attn_q.weight"].scale == scale


def test_a_rank_that_contradicts_the_tensors_is_noted(folder: Path, base: BaseModel) -> None:
    assert load_adapter(folder, base).notes == ()
    change_config(folder, rank_pattern={"q_proj": 4}, r=64)
    assert load_adapter(folder, base).notes == ()
    change_config(folder, rank_pattern={}, r=64)
    (note,) = load_adapter(folder, base).notes
    assert "64" in note
    assert "4" in note


@pytest.mark.parametrize(
    "stem",
    [
        "base_model.model.model.layers.{}.",
        "base_model.model.layers.{}.",
        "base_model.model.model.language_model.layers.{}.",
        "base_model.model.language_model.model.layers.{}.",
    ],
)
@pytest.mark.parametrize("end", [".weight", ".default.weight"])
def test_modules_are_found_under_every_common_prefix(
    stem: str, end: str, folder: Path, base: BaseModel
) -> None:
    file = folder / "adapter_model.safetensors"
    renamed = {
        stem.format(key.split(".")[4]) + ".".join(key.split(".")[5:-1]) + end: value
        for key, value in load(file.read_bytes()).items()
    }
    save_file(renamed, file)
    assert len(load_adapter(folder, base).pairs) == 4


def test_copies_of_base_weights_are_ignored_with_a_note(folder: Path, base: BaseModel) -> None:
    key = "base_model.model.model.embed_tokens.base_layer.weight"
    change_tensors(folder, **{key: torch.zeros(4, 4)})
    found = load_adapter(folder, base)
    assert len(found.pairs) == 4
    assert "embed_tokens.base_layer" in found.notes[0]


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_dora", True),
        ("use_qalora", True),
        ("bias", "all"),
        ("bias", "lora_only"),
        ("bias", ["x"]),
        ("modules_to_save", ["lm_head"]),
        ("lora_bias", True),
        ("trainable_token_indices", [1]),
        ("target_parameters", ["experts"]),
        ("layer_replication", [[0, 1]]),
        ("alora_invocation_tokens", [1, 2]),
        ("kasa_config", {"x": 1}),
        ("ensure_weight_tying", True),
        ("init_lora_weights", "loftq"),
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "pissa_niter_16"),
        ("init_lora_weights", "olora"),
        ("init_lora_weights", "lora_ga"),
        ("peft_type", "IA3"),
        ("peft_type", None),
        ("peft_type", 3),
        ("lora_alpha", "sixteen"),
        ("lora_alpha", True),
        ("lora_alpha", None),
        ("lora_alpha", float("nan")),
        ("lora_alpha", 1e12),
        ("lora_alpha", 10**400),
        ("alpha_pattern", ["q_proj"]),
        ("alpha_pattern", {"q_proj": "much"}),
        ("alpha_pattern", {"q_proj(": 4}),
        ("alpha_pattern", {"(a|aa)+$": 4}),
        ("alpha_pattern", {".*.*.*.*x": 4}),
        ("alpha_pattern", {".?" * 40: 4}),
        ("alpha_pattern", {"[[a]": 4}),
        ("alpha_pattern", {"(.|.)" * 40: 4}),
        ("alpha_pattern", {f"{index}.*x": 4 for index in range(17)}),
        ("alpha_pattern", {"x" * 300: 4}),
        ("rank_pattern", 7),
    ],
)
def test_unsupported_features_are_refused_by_key(
    key: str, value: object, folder: Path, base: BaseModel
) -> None:
    change_config(folder, **{key: value})
    refused(folder, base, f"'{key}'")


@pytest.mark.parametrize("value", ["gaussian", "eva", "orthogonal", True, False, None])
def test_initializations_that_keep_the_base_weights_are_accepted(
    value: object, folder: Path, base: BaseModel
) -> None:
    change_config(folder, init_lora_weights=value, loftq_config={}, lora_dropout=0.1)
    assert load_adapter(folder, base).rank == 4


def test_a_missing_alpha_is_named(folder: Path, base: BaseModel) -> None:
    file = folder / "adapter_config.json"
    keys = json.loads(file.read_text(encoding="utf-8"))
    del keys["lora_alpha"]
    file.write_text(json.dumps(keys), encoding="utf-8")
    refused(folder, base, "'lora_alpha'", "missing")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "a list of 2"),
        (b"null", "nothing"),
        (b" " * (2 << 20), "larger"),
    ],
)
def test_an_invalid_configuration_file_is_named(
    content: bytes, word: str, folder: Path, base: BaseModel
) -> None:
    (folder / "adapter_config.json").write_bytes(content)
    refused(folder, base, "adapter_config.json", word)


@pytest.mark.parametrize("given_file", ["", "adapter_model.bin"])
def test_pickled_weights_are_never_opened(given_file: str, folder: Path, base: BaseModel) -> None:
    (folder / "adapter_model.safetensors").unlink()
    (folder / "adapter_model.bin").write_bytes(b"\x80\x02cos\nsystem\n.")
    error = refused(folder / given_file, base, "'adapter_model.bin'")
    assert "safetensors" in error.remedy


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_missing_file_of_a_folder_is_named(name: str, folder: Path, base: BaseModel) -> None:
    (folder / name).unlink()
    refused(folder, base, "'poet'", f"'{name}'")
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        refused(folder / file, base, f"'{name}'")


def test_an_empty_folder_is_refused(tmp_path: Path, base: BaseModel) -> None:
    refused(tmp_path, base, "not an adapter")


def test_a_safetensors_file_of_another_name_is_refused(tmp_path: Path, base: BaseModel) -> None:
    save_file({"x": torch.zeros(2)}, tmp_path / "model.safetensors")
    refused(tmp_path / "model.safetensors", base, "'model.safetensors'")


def test_invalid_halves_are_named(folder: Path, base: BaseModel) -> None:
    a = f"{STEM}.0.self_attn.q_proj.lora_A.weight"
    for value, words in (
        (torch.zeros(4, 63), ["'blk.0.attn_q.weight'", "[64, 63]", "[64, 64]"]),
        (torch.zeros(3, 64), ["'blk.0.attn_q.weight'", "3", "4"]),
        (torch.zeros(4, 64, 1), ["'blk.0.attn_q.weight'", "[4, 64, 1]"]),
        (torch.zeros(0, 64), ["'blk.0.attn_q.weight'"]),
        (torch.zeros(4, 64, dtype=torch.int8), ["q_proj.lora_A", "I8"]),
        (torch.full((4, 64), math.nan), ["'blk.0.attn_q.weight'", "finite"]),
        (torch.full((4, 64), math.inf), ["'blk.0.attn_q.weight'", "finite"]),
        (torch.full((4, 64), 1e300, dtype=torch.float64), ["'blk.0.attn_q.weight'", "finite"]),
        (None, ["q_proj.lora_B", "without"]),
    ):
        change_tensors(folder, **{a: value})
        refused(folder, base, *words)


def test_a_pair_of_rank_zero_is_named(folder: Path, base: BaseModel) -> None:
    stem = f"{STEM}.0.self_attn.q_proj.lora_"
    halves = {f"{stem}A.weight": torch.zeros(0, 64), f"{stem}B.weight": torch.zeros(64, 0)}
    change_tensors(folder, **halves)
    refused(folder, base, "'blk.0.attn_q.weight'", "rank 0")


def test_the_remedy_names_the_folders_base_model(folder: Path, base: BaseModel) -> None:
    change_tensors(folder, **{f"{STEM}.0.self_attn.q_proj.lora_A.weight": torch.zeros(4, 9)})
    assert "somebody/tiny" in refused(folder, base).remedy


@pytest.mark.parametrize(
    "key",
    [
        "base_model.model.vision_tower.layers.0.self_attn.q_proj.lora_A.weight",
        f"{STEM}.0.self_attn.qkv_proj.lora_A.weight",
        f"{STEM}.9.self_attn.q_proj.lora_A.weight",
        f"{STEM}.x.self_attn.q_proj.lora_A.weight",
        f"{STEM}.lora_A.weight",
        "model." * 40 + "layers.0.self_attn.k_proj.lora_A.weight",
        f"{STEM}.0.self_attn.q_proj.lora_magnitude_vector",
        f"{STEM}.0.self_attn.q_proj.lora_B.bias",
        "base_model.model.lm_head.modules_to_save.weight",
        "base_model.model.lm_head.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "\n\x1b[31m",
    ],
)
def test_a_tensor_of_an_unknown_module_is_named(key: str, folder: Path, base: BaseModel) -> None:
    change_tensors(
        folder, **{key: torch.zeros(4, 64), key.replace("_A.", "_B."): torch.zeros(64, 4)}
    )
    refused(folder, base, "'")


def test_a_duplicate_half_is_named(folder: Path, base: BaseModel) -> None:
    key = "base_model.model.layers.0.self_attn.q_proj.lora_A.weight"
    change_tensors(folder, **{key: torch.zeros(4, 64)})
    refused(folder, base, "same half")


def test_an_adapter_without_pairs_is_named(folder: Path, base: BaseModel) -> None:
    save_file({}, folder / "adapter_model.safetensors")
    refused(folder, base, "no LoRA pairs")


def test_an_architecture_without_module_names_is_refused(folder: Path, base: BaseModel) -> None:
    other = BaseModel("falcon-h1", base.heads, base.kv_heads, base.shapes)
    error = refused(folder, other, "'falcon-h1'")
    assert "GGUF" in error.remedy


@given(st.data())
def test_a_damaged_folder_loads_or_is_refused(
    path: Path, base: BaseModel, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Random changes to either file or truncation give an adapter or an error of one sentence."""
    folder = tiny_lora.write_peft(
        tmp_path_factory.mktemp("damage") / "p", tiny_lora.pairs_for(path, targets=("attn_q",))
    )
    file = folder / data.draw(st.sampled_from(["adapter_config.json", "adapter_model.safetensors"]))
    stored = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, min(700, len(stored) - 1)))] = data.draw(
            st.integers(0, 255)
        )
    file.write_bytes(stored[: data.draw(st.integers(1, len(stored)))])
    problem: EngineError | None = None
    try:
        load_adapter(folder, base)
    except EngineError as error:
        problem = error
    assert problem is None or (str(problem).isprintable() and problem.remedy)
