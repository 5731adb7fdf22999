"""PEFT adapters of every module of every family: as llama.cpp's converter changes their weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import architecture_files as files
import oracle_peft
import peft_factors
import transformers_files
from engine.adapters.peft_modules import targets
from engine.adapters.stack import load_adapter
from engine.errors import AdapterError, FaultKind
from engine.models import ARCHITECTURES
from sessions import open_decoder

RECORDED = peft_factors.recorded()
MODELS = transformers_files.recorded()
# Families that transformers does not have, or whose tiny models the converter does not take; their
# modules have the names of others.
OTHERS = {
    "bailingmoe2",
    "bitnet",
    "maple",
    "minicpm",
    "nanbeige",
    "phimoe",
    "qwen2vl",
    "qwen3vl",
    "qwen3vlmoe",
    "spark2_5",
    "starcoder",
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_changes_are_those_of_llamacpps_converter(name: str, tmp_path: Path) -> None:
    modules, changed = RECORDED[name]["modules"], RECORDED[name]["tensors"]
    base = open_decoder(MODELS[name].write(tmp_path / "m.gguf")).base
    folder = peft_factors.write_folder(tmp_path / "adapter", modules)
    found = load_adapter(folder, base).pairs
    products = {tensor: (pair.scale * (pair.b @ pair.a)).numpy() for tensor, pair in found.items()}
    assert {tensor: peft_factors.checksum(one) for tensor, one in products.items()} == changed


def test_every_family_is_covered() -> None:
    covered = {MODELS[name].skeleton.architecture for name in RECORDED}
    covered |= {
        "llama" if case.base == "mixtral" else case.base for case in oracle_peft.CASES.values()
    }
    assert ARCHITECTURES.keys() - covered - OTHERS == {
        "falcon-h1",
        "bailingmoe3",
        "gemma",
    }


@pytest.mark.parametrize("fused", [False, True], ids=["gates and ups apart", "in one tensor"])
def test_modules_of_single_experts_are_stacked(fused: bool, tmp_path: Path) -> None:
    """Some experts are left out, and one has another rank: these are zeros."""
    name = "gemma4-moe" if fused else "qwen3moe-moe"
    skeleton = files.recorded()[name].without_scales().without_ranking()
    base = open_decoder(files.write(skeleton, tmp_path / "m.gguf")).base
    down = "blk.0.ffn_down_exps.weight"
    experts, width, inner = base.shapes[down]
    shapes = {
        f"model.layers.0.mlp.experts.{expert}.{part}_proj": [inner, width]
        if part != "down"
        else [width, inner]
        for expert in range(experts)
        if expert != 1
        for part in ("gate", "up", "down")
    }
    found = load_adapter(peft_factors.write_folder(tmp_path / "adapter", shapes), base).pairs

    def change(part: str, expert: int) -> np.ndarray:
        module = f"model.layers.0.mlp.experts.{expert}.{part}_proj"
        if module not in shapes:
            return np.zeros((width, inner) if part == "down" else (inner, width), np.float32)
        a, b = peft_factors.factors(module, shapes[module])
        return peft_factors.SCALE * (b @ a)

    wanted = {down: np.stack([change("down", expert) for expert in range(experts)])}
    halves = [np.stack([change(part, one) for one in range(experts)]) for part in ("gate", "up")]
    if fused:
        wanted["blk.0.ffn_gate_up_exps.weight"] = np.concatenate(halves, 1)
    else:
        wanted |= {
            f"blk.0.ffn_{part}_exps.weight": half
            for part, half in zip(("gate", "up"), halves, strict=True)
        }
    assert found.keys() == wanted.keys()
    for tensor, pair in found.items():
        assert np.array_equal((pair.scale * torch.bmm(pair.b, pair.a)).numpy(), wanted[tensor])


def test_an_expert_that_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    skeleton = files.recorded()["qwen3moe-moe"].without_scales().without_ranking()
    base = open_decoder(files.write(skeleton, tmp_path / "m.gguf")).base
    experts, width, inner = base.shapes["blk.0.ffn_down_exps.weight"]
    folder = peft_factors.write_folder(
        tmp_path / "adapter", {f"model.layers.0.mlp.experts.{experts}.down_proj": [width, inner]}
    )
    with pytest.raises(AdapterError) as caught:
        load_adapter(folder, base)
    assert caught.value.fault.kind is FaultKind.OTHER_MODEL


@pytest.mark.parametrize(
    "module", ["model.layers.0.self_attn.kv_b_proj", "model.layers.0.mlp.experts.0.up_proj"]
)
def test_a_part_of_another_shape_is_refused(module: str, tmp_path: Path) -> None:
    skeleton = files.recorded()["deepseek2-moe"].without_scales().without_ranking()
    base = open_decoder(files.write(skeleton, tmp_path / "m.gguf")).base
    layer = next(one for one in base.shapes if "ffn_down_exps" in one).split(".")[1]
    module = module.replace("layers.0", f"layers.{layer}")
    folder = peft_factors.write_folder(tmp_path / "adapter", {module: [30, 6]})
    with pytest.raises(AdapterError) as caught:
        load_adapter(folder, base)
    assert caught.value.fault.kind is FaultKind.OTHER_MODEL


def test_a_module_is_not_said_to_be_missing_from_the_model(tmp_path: Path) -> None:
    skeleton = files.recorded()["mamba2-dense"]
    base = open_decoder(files.write(skeleton, tmp_path / "m.gguf")).base
    with pytest.raises(AdapterError, match="for which this version knows no tensor"):
        targets("backbone.layers.0.mixer.conv1d", base)
