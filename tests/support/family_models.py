"""Programs of model families for benchmarks on a GPU: small random ones, and ones of real shapes.

Built by the builders of the families, without tokenizers and without what the loader needs. Small
models are those of `architecture_files.py`; their matrices can be quantized, alike for every
backend. The weights of models of real shapes are made in the memory of the device.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import real_shapes
import torch
from gguf import GGUFWriter
from torch import Tensor

import architecture_files
import tiny
from cuda_model import random_weight
from engine.adapters.stack import NO_ADAPTERS
from engine.gguf.reader import GGUFFile
from engine.gguf.tensor_info import TensorInfo
from engine.models import architecture
from engine.models.config import read_config
from engine.models.forward import forward_program
from engine.models.weights import Weights
from kernels.backend.backend import Backend
from kernels.backend.placement import Placement
from kernels.programs.program import Program
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, PageTable
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight


class QuantizedWeights(Weights):
    """Weights whose matrices of whole blocks are quantized when they are read; "": as they are."""

    quantization = "Q8_0"

    def _prepare(
        self, info: TensorInfo, backend: Backend, weight: Weight, start: int, expert: int
    ) -> Weight:
        name, columns = self.quantization, weight.columns
        if name and len(weight.shape) > 1 and columns % by_name(name).block == 0:
            format = by_name(name)
            assert format.quantize
            data = format.quantize(weight.dense().reshape(-1, format.block))
            weight = Weight.from_bytes(data.numpy().tobytes(), format, weight.shape)
        return backend.prepare(weight)


class DeviceWeights(Weights):
    """Random weights, made on the device as kernels read them; no file has their values."""

    def _made_here(self, info: TensorInfo, rows: Sequence[int]) -> list[Weight]:
        device = self.placement(1).head.device
        key = info.name, "device"
        if key not in self._made:
            made, columns = list[Weight](), info.shape[-1]
            for count in rows:
                if info.format.name == "F32":
                    data = _floats(info.name, count, columns, device)
                    made.append(Weight(data, info.format, (count, columns)))
                else:
                    made.append(random_weight(info.format.name, device)(count, columns))
            self._made[key] = made
        self._used.add(info.name)
        return self._made[key]

    def _read(self, info: TensorInfo, beside: str) -> Weight:
        rows = 1 if len(info.shape) == 1 else info.shape[0]
        return self._made_here(info, [rows])[0]

    def _parts(self, info: TensorInfo, rows: Sequence[int]) -> list[Weight]:
        return self._made_here(info, rows)

    def _gathered(self, info: TensorInfo, groups: int, rows: Sequence[int]) -> list[Weight]:
        return self._made_here(info, [groups * count for count in rows])


def _floats(name: str, rows: int, columns: int, device: torch.device) -> Tensor:
    values = torch.randn(rows, columns, device=device)
    if name.endswith("ssm_a"):
        return -0.25 - values.abs()
    if "norm" in name:
        return 1 + 0.1 * values
    return 0.1 * values


@dataclass(frozen=True, slots=True)
class Family:
    """A program on a backend, and how many columns its logits have."""

    name: str
    program: Program
    vocabulary: int


def small(name: str, backend: Backend, quantization: str, dtype: torch.dtype) -> Family:
    """The small model of a skeleton, such as "qwen35-dense"."""
    skeleton = architecture_files.recorded()[name].without_scales()
    path = architecture_files.write(skeleton, Path(tempfile.mkdtemp()) / "m.gguf")
    kind = type("SomeWeights", (QuantizedWeights,), {"quantization": quantization})
    return _built(name, GGUFFile.open(path), kind, backend, dtype)


def of_real_shape(
    shape: real_shapes.Shape, name: str, format: str, backend: Backend, layers: int = 0
) -> Family:
    """A model of a released one's shapes; with `layers` only so many of them."""
    count = layers or shape.layers
    path = Path(tempfile.mkdtemp()) / "m.gguf"
    writer = GGUFWriter(path, shape.architecture)
    keys = {"block_count": count, "embedding_length": shape.width, **shape.keys}
    for key, value in keys.items():
        some = value[:count] if isinstance(value, list) and len(value) == shape.layers else value
        tiny.add_key(writer, f"{shape.architecture}.{key}", some)
    if "vocab_size" not in keys:
        tiny.add_key(writer, f"{shape.architecture}.vocab_size", shape.vocabulary)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    file = GGUFFile.open(path)
    tensors = [("token_embd.weight", (shape.vocabulary, shape.width), "")]
    for index in range(count):
        made = shape.layer(shape, index)
        tensors += [(f"blk.{index}.{part}", size, kind) for part, size, kind in made]
    tensors.append((real_shapes._norm_name(shape), (shape.width,), real_shapes._NORM))
    if not shape.tied:
        tensors.append(("output.weight", (shape.vocabulary, shape.width), ""))
    for part, size, kind in tensors:
        floats = kind in ("F32", real_shapes._NORM, real_shapes._RATE)
        one = by_name("F32" if floats else kind or format)
        file.tensors[part] = TensorInfo(part, size, one, 0, 0, 0)
    return _built(name, file, DeviceWeights, backend, torch.float16)


def _built(
    name: str, file: GGUFFile, kind: type[Weights], backend: Backend, dtype: torch.dtype
) -> Family:
    build, config = architecture(file), read_config(file)
    weights = kind(file, placement=Placement.on(backend, config.layers))
    decoder = build(file, weights, min(config.context, 8192))
    program = forward_program(decoder, KVLayout(decoder.layer_states, dtype), NO_ADAPTERS)
    return Family(name, program, program.widths[program.logits])


def tables(kv: KVLayout, tokens: int, device: torch.device) -> list[PageTable]:
    """Page tables of a sequence with room for so many tokens; keys, values and states are zeros."""
    made: list[PageTable] = []
    for size in kv.page_bytes:
        table = PageTable()
        for _ in range(-(-tokens // PAGE_TOKENS) + 1):  # one more for the state after the last
            table.append(torch.zeros(size, dtype=torch.uint8, device=device))
        made.append(table)
    return made
