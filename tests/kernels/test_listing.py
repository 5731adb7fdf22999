"""Listings of programs: each kind of layer is printed once, and nothing of the program is missing."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import every_architecture
import tiny
from engine.cli.program import program_of
from engine.loading.loader import LoadedModel, load
from kernels import backends
from kernels.backend import listing

needs_cpu = pytest.mark.skipif("cpu" not in backends.BACKENDS, reason="no native kernels here")

LLAMA = """\
buffers [columns]: stream [64], normed [64], query 64 [64], key 32 [32], value 32 [32], mixed 64 [64],
  sublayer out [64], gate 128 [128], up 128 [128], logits [307]

beginning
  Embed   out=stream                          table=F32[307x64]

layer 0
  Norm    x=stream out=normed                 weight=f32[64]                    epsilon=1e-05
  Linear  x=normed outs=query 64, key 32,     weights=F32[64x64], 2*F32[32x64]
          value 32
  Attend  q=query 64 k=key 32 v=value 32      frequencies=f32[8]                layer=0 head_width=16
          out=mixed 64                                                          interleaved=True epsilon=0
                                                                                rope_scale=1 scale=0.25
  Linear  x=mixed 64 outs=sublayer out        weights=F32[64x64]
  Add     x=stream y=sublayer out
  Norm    x=stream out=normed                 weight=f32[64]                    epsilon=1e-05
  Linear  x=normed outs=gate 128, up 128      weights=2*F32[128x64]
  Gate    gate=gate 128 up=up 128                                               activation=silu
          out=gate 128
  Linear  x=gate 128 outs=sublayer out        weights=F32[64x128]
  Add     x=stream y=sublayer out
  layers 1-3 as layer 0

head
  Norm    x=stream out=normed                 weight=f32[64]                    epsilon=1e-05
  Linear  x=normed outs=logits                weights=F32[307x64]

reference runs this instruction by instruction."""


def text_of(model: LoadedModel) -> str:
    decoder = model.decoder
    return listing.placed_text(program_of(model), decoder.placement, decoder.refused)


def test_a_program_in_columns(tmp_path: Path) -> None:
    model = load(tiny.write(tmp_path / "m.gguf", layers=4), backend="reference")
    assert text_of(model) == LLAMA


@needs_cpu
def test_the_operations_of_a_section_stand_below_its_instructions(tmp_path: Path) -> None:
    text = text_of(load(tiny.write(tmp_path / "m.gguf", format="Q8_0"), backend="cpu"))
    parts = re.split(r"^(beginning|layer 0|head)\n", text, flags=re.MULTILINE)
    titles, bodies = parts[1::2], parts[2::2]
    operations = [re.findall(r"^    ([A-Z]\w+)", body, re.MULTILINE) for body in bodies]
    layer = ["NORM", "LINEAR", "ROPE", "ATTEND", "QUANTIZE", "LINEAR"]
    assert dict(zip(titles, operations, strict=True)) == {
        "beginning": ["ANGLES", "EMBED"],
        "layer 0": [*layer, "NORM", "LINEAR", "QUANTIZE", "LINEAR"],
        "head": ["NORM", "LINEAR"],
    }
    assert re.search(r"LINEAR +x=gate 128 add_to=stream +Q8_0\[64x128\] +width=128\n", text)
    assert re.search(r"NORM +x=stream out=normed +weight +barrier=BATCH quantize=16", text)


@needs_cpu
def test_layers_with_and_without_a_window_are_two_kinds(tmp_path: Path) -> None:
    path = every_architecture.write("gemma3", tmp_path / "m.gguf", context=256, window=32)
    text = text_of(load(path, backend="cpu"))
    assert re.findall(r"^(?:layer \d+|  layers.*)$", text, re.MULTILINE) == [
        "layer 0",
        "  layers 1-4, 6 as layer 0",
        "layer 5",
    ]
    # Local and global layers rotate by other angles, and each kind shows its own.
    assert re.findall(r"^ +(?:ANGLES +|)out=(angles \d)", text, re.MULTILINE) == [
        "angles 0",
        "angles 1",
        "angles 0",
        "angles 1",
    ]


@needs_cpu
def test_numbers_that_differ_between_layers_of_a_kind_are_named(tmp_path: Path) -> None:
    path = every_architecture.write("gemma4", tmp_path / "m.gguf", context=256, window=32)
    text = text_of(load(path, backend="cpu"))
    assert "  layer 2 as layer 0, with other values of scale, start\n" in text


def test_each_stage_of_a_placement_has_its_layers(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", layers=4)
    text = text_of(load(path, parts=[("reference", 3), ("torch", 0)]))
    first, second = text.split("\n\non torch cpu\n\n")
    assert first.startswith("on reference\n\nbuffers")
    assert "layer 0\n" in first
    assert "  layers 1-2 as layer 0\n" in first
    assert "\nhead\n" not in first
    assert re.findall(r"^\w+(?: \d+)?$", second, re.MULTILINE) == ["layer 3", "head"]


@needs_cpu
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("qwen35moe", "deepseek2") else pytest.mark.sweep)
        for name in every_architecture.names()
    ],
)
def test_the_listing_of_every_architecture_fits_and_is_complete(name: str, tmp_path: Path) -> None:
    path = every_architecture.write(name, tmp_path / "m.gguf", context=256, window=32)
    model = load(path, backend="cpu", embeddings=True, ids_only=True)
    program, text = program_of(model), text_of(model)
    assert max(map(len, text.splitlines())) <= listing.WIDTH
    assert {type(one).__name__ for one in (*program.body, *program.head)} <= set(
        re.findall(r"^  ([A-Z]\w+)", text, re.MULTILINE)
    )
    if "  lowered:" in text:  # in every section: no operation is fused across layers
        titles = Counter(re.findall(r"^(layer \d+|beginning|head)$", text, re.MULTILINE))
        assert text.count("  lowered:\n") == titles.total()
