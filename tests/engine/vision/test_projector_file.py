"""Damaged and foreign files of picture encoders: one sentence each, and no other exception."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import vision_files
from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.vision.encoder import Encoder
from engine.vision.encoders import build_encoder
from kernels.backends import BACKENDS

VISION = "clip.vision"
# Files may lack them: ranges, and biases of products.
OPTIONAL = re.compile(r"_(min|max)$|(?<!norm)(?<!ln)(?<!ln[12])\.bias$")
ABSURD = (
    0,
    1,
    3,
    2**20,
    2**32 - 1,
    -1.0,
    math.nan,
    "text",
    True,
    [],
    [1.0],
    [math.nan] * 3,
    [True] * 9,
)


@cache
def file_of(name: str) -> tuple[dict[str, Any], vision_files.Tensors]:
    """Metadata and tensors of a recorded model."""
    model = vision_files.recorded()[name]
    return vision_files.keys(model.case), vision_files.tensors(model.case, model.state)


def open_encoder(
    path: Path, keys: Mapping[str, Any], tensors: vision_files.Tensors, architecture: str = "clip"
) -> Encoder:
    vision_files.write(path, keys, tensors, architecture=architecture)
    with GGUFFile.open(path) as file:
        return build_encoder(file, BACKENDS["reference"])


def parts_of(tensors: vision_files.Tensors) -> list[str]:
    """The names of tensors, of only one layer."""
    return [one for one in tensors if not one.startswith("v.blk.") or "v.blk.1." in one]


@contextlib.contextmanager
def refused(words: str = r"\w", kind: type[ModelFileError] = ModelFileError) -> Iterator[None]:
    """Whether the block raises an error that is one sentence with these words."""
    with pytest.raises(kind, match=words) as caught:
        yield
    said = str(caught.value)
    assert said.endswith(".")
    assert "\n" not in said
    assert caught.value.remedy.endswith(".")


@pytest.mark.parametrize("name", vision_files.CASES)
def test_every_tensor_is_needed(name: str, tmp_path: Path) -> None:
    keys, tensors = file_of(name)
    for one in parts_of(tensors):
        if not OPTIONAL.search(one):
            rest = {other: value for other, value in tensors.items() if other != one}
            with refused():
                open_encoder(tmp_path / "m.gguf", keys, rest)


@pytest.mark.parametrize("name", vision_files.CASES)
@pytest.mark.parametrize("axis", [0, pytest.param(-1, marks=pytest.mark.sweep)])
def test_every_tensor_has_its_shape(name: str, axis: int, tmp_path: Path) -> None:
    keys, tensors = file_of(name)
    for one in parts_of(tensors):
        value = tensors[one]
        longer = np.concatenate((value, value.take([0], axis)), axis)
        with refused(r"shape|square|missing"):
            open_encoder(tmp_path / "m.gguf", keys, {**tensors, one: longer})


@pytest.mark.parametrize("name", vision_files.CASES)
def test_a_tensor_that_no_encoder_has_is_refused(name: str, tmp_path: Path) -> None:
    keys, tensors = file_of(name)
    for one in ("v.blk.0.attn_sinks", "v.blk.7.ln1.weight", "mm.9.weight", "v.class_embd"):
        if one in tensors:
            continue
        with refused("does not use", UnsupportedModel):
            open_encoder(tmp_path / "m.gguf", keys, tensors | {one: np.ones(4)})


DAMAGED = {
    "heads that share no channels": ("qwen3vl", {"attention.head_count": 5}, "5 attention heads"),
    "heads of single channels": ("gemma3", {"attention.head_count": 36}, "36 attention heads"),
    "no heads": ("pixtral", {"attention.head_count": 0}, "head_count' is 0"),
    "no layers": ("lfm2", {"block_count": 0}, "block_count' is 0"),
    "fewer layers": ("lfm2", {"block_count": 1}, "v.blk.1"),
    "more layers": ("idefics3", {"block_count": 2**20}, "v.blk.2.*missing"),
    "another width": ("gemma4v", {"embedding_length": 48}, "requires"),
    "no patches": ("gemma4v", {"patch_size": 0}, "patch_size' is 0"),
    "other patches": ("gemma4v", {"patch_size": 7}, "v.patch_embd.weight.*requires"),
    "another picture": ("gemma3", {"image_size": 63}, "v.position_embd.weight.*requires"),
    "squares that do not fit": ("gemma3", {"projector.scale_factor": 3}, "whole squares of 3"),
    "no squares": ("qwen3vl", {"spatial_merge_size": 0}, "spatial_merge_size' is 0"),
    "larger squares": ("pixtral", {"spatial_merge_size": 3}, "mm.patch_merger.weight.*requires"),
    "squares without end": ("lfm2", {"projector.scale_factor": 99}, "scale_factor' is 99"),
    "more deep layers than layers": (
        "qwen3vl",
        {"is_deepstack_layers": [False, False, True]},
        "has 3 values for 2 layers",
    ),
    "a deep layer without tensors": ("qwen3vl", {"is_deepstack_layers": [True]}, "deepstack.0"),
    "deep tensors of no layer": ("qwen3vl-deep", {"is_deepstack_layers": []}, "does not use"),
    "a deviation of zero": ("gemma3", {"image_std": [0.5, 0.0, 0.5]}, "image_std' is not three"),
    "two means": ("gemma3", {"image_mean": [0.5, 0.5]}, "image_mean' is not three"),
    "a mean that is no number": ("lfm2", {"image_mean": [math.nan] * 3}, "image_mean' is not"),
    "means of text": ("lfm2", {"image_mean": ["a", "b", "c"]}, "image_mean' is not three"),
    "tiles that do not fit": ("internvl", {"projector.scale_factor": 4}, "whole squares of 4"),
    "tiles of other patches": ("internvl", {"image_size": 28}, "v.position_embd.weight.*requires"),
    "tiles without end": ("internvl", {"preproc_max_tiles": 129}, "preproc_max_tiles' is 129"),
    "more tiles than the most": (
        "internvl",
        {"preproc_min_tiles": 7, "preproc_max_tiles": 6},
        "preproc_min_tiles' is 7, more",
    ),
    "no layer to merge after": ("minicpmv4_6", {"wa_layer_indexes": [3]}, "none of 3 layers"),
    "another merger": ("minicpmv4_6", {"projector.scale_factor": 3}, "3 x 3 patches, and only"),
    "a negative epsilon": ("lfm2", {"attention.layer_norm_epsilon": -1.0}, "layer_norm_epsilon"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_wrong_value_of_a_key_is_named(damage: str, tmp_path: Path) -> None:
    name, values, words = DAMAGED[damage]
    keys, tensors = file_of(name)
    wrong = {f"{VISION}.{key}": value for key, value in values.items()}
    with refused(words):
        open_encoder(tmp_path / "m.gguf", {**keys, **wrong}, tensors)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.sweep] if name != "qwen3vl" else [])
        for name in vision_files.CASES
    ],
)
def test_any_value_of_any_key_is_refused_or_encodes(name: str, tmp_path: Path) -> None:
    keys, tensors = file_of(name)
    model = vision_files.recorded()[name]
    picture = vision_files.pixels(model.case, model.pictures[0])
    for key in (*keys, f"{VISION}.projector.scale_factor", "clip.use_silu"):
        for value in (None, *ABSURD):
            wrong = {other: one for other, one in keys.items() if other != key}
            wrong |= {} if value is None else {key: value}
            with contextlib.suppress(ModelFileError, ValueError):
                rows = open_encoder(tmp_path / "m.gguf", wrong, tensors).encode(picture)
                assert rows.shape[1] == model.rows[0].shape[1], (key, value)


@pytest.mark.parametrize("missing", ["block_count", "embedding_length", "patch_size", "image_size"])
def test_a_missing_key_is_named(missing: str, tmp_path: Path) -> None:
    keys, tensors = file_of("gemma3")
    rest = {key: value for key, value in keys.items() if key != f"{VISION}.{missing}"}
    with refused(f"{VISION}.{missing}' is missing"):
        open_encoder(tmp_path / "m.gguf", rest, tensors)


def test_ranges_that_hold_nothing_are_refused(tmp_path: Path) -> None:
    keys, tensors = file_of("gemma4v-clipped")
    for least in (9.0, math.nan):
        wrong = tensors | {"v.blk.1.ffn_up.input_min": np.array([least])}
        with refused("v.blk.1.ffn_up.weight"):
            open_encoder(tmp_path / "m.gguf", keys, wrong)


def test_positions_that_are_no_square_are_refused(tmp_path: Path) -> None:
    keys, tensors = file_of("lfm2")
    table = tensors["v.position_embd.weight"]
    with refused("24 positions"):
        open_encoder(tmp_path / "m.gguf", keys, {**tensors, "v.position_embd.weight": table[1:]})


@pytest.mark.parametrize("kind", ["gemma4x", "mlp", "a" * 5_000, "\n"])
def test_an_unknown_projector_is_unsupported_whatever_else_is_missing(
    kind: str, tmp_path: Path
) -> None:
    with refused("which this version does not support", UnsupportedModel):
        open_encoder(tmp_path / "m.gguf", {"clip.projector_type": kind}, {"x": np.ones(4)})


def test_files_without_a_picture_encoder_say_so(tmp_path: Path) -> None:
    keys, tensors = file_of("gemma3")
    for wrong, architecture in (
        (keys, "llama"),
        (keys | {"clip.has_vision_encoder": False}, "clip"),
    ):
        with refused("has no picture encoder"):
            open_encoder(tmp_path / "m.gguf", wrong, tensors, architecture)
    with (
        refused("has no picture encoder"),
        GGUFFile.open(tiny.write(tmp_path / "text.gguf")) as file,
    ):
        build_encoder(file, BACKENDS["reference"])


def test_squares_of_patches_may_be_of_another_size(tmp_path: Path) -> None:
    keys, tensors = file_of("gemma3")
    encoder = open_encoder(
        tmp_path / "m.gguf", {**keys, f"{VISION}.projector.scale_factor": 2}, tensors
    )
    assert encoder.encode(torch.zeros(56, 56, 3)).shape == (16, 40)


def test_a_resampler_of_other_models_is_refused(tmp_path: Path) -> None:
    keys, tensors = file_of("resampler")
    with refused(r"before 2\.6 or unknown \(version 2 in", UnsupportedModel):
        open_encoder(tmp_path / "m.gguf", {**keys, "clip.minicpmv_version": 2}, tensors)
    with refused("is not whole heads of 128 channels"):
        query = tensors["resampler.query"][:, :40]
        open_encoder(tmp_path / "m.gguf", keys, {**tensors, "resampler.query": query})
