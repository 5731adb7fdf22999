"""Quantizer of GGUF files: copies the metadata and converts every matrix, one at a time.

The output is written to a `.part` file and renamed when complete, so an interrupted run leaves no
incomplete model under the target's name.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import torch

from engine.errors import ModelFileError, RequestError
from engine.gguf.reader import GGUFFile, TensorInfo
from engine.gguf.tensor_info import padded
from engine.gguf.values import Kind, shown
from engine.machine import disk_files
from kernels.weights.formats import FORMATS, Format, by_name
from kernels.weights.weight import Weight

_ALIGNMENT = 32  # bytes
_CHUNK_WEIGHTS = 1 << 22  # quantized at once
_BUSY_SECONDS = 30.0  # for a virus scanner that reads the finished file
_FILE_TYPE, _VERSION = "general.file_type", "general.quantization_version"
_DROPPED_KEYS = ("split.", "oxibonsai.")  # prefixes
# Parts of the names of matrices that are copied: llama.cpp computes with most of them only in the
# format that its converter writes, F32, and ends the program for another.
# Source: https://github.com/ggml-org/llama.cpp/blob/master/src/llama-quant.cpp
_KEPT = (
    "_norm.weight",
    ".ffn_gate_inp.",  # routers: errors select the wrong experts
    ".ssm_conv1d",
    ".shortconv.conv.",
    "position_embd.",
    "token_types.",
    "altup",
    "laurel",
    "per_layer_model_proj.",
)


def quantize(
    source: Path,
    target: Path,
    name: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
    checkpoint: Callable[[], None] = lambda: None,
) -> str:
    """Write the model of `source` to `target` with its matrices in the format called `name`.

    Matrices whose rows are not whole blocks become Q8_0 or F16; vectors and `_KEPT` matrices are
    copied. `progress` counts weights; `checkpoint` may raise to stop. Returns a summary to print.
    Raises RequestError, ModelFileError, or OSError, for example when the disk is full.
    """
    wanted = _wanted(name)
    if target.exists():
        raise RequestError(f"The file {str(target)!r} already exists.", "Choose another name.")
    with GGUFFile.open(source) as file:
        if not file.tensors:
            raise ModelFileError("The file holds no tensors.", "Choose a complete model.")
        plan = [(info, format_for(info, wanted)) for info in file.tensors.values()]
        partial = target.with_name(target.name + ".part")
        try:
            with partial.open("xb") as out:
                try:
                    _write(file, plan, wanted, out, progress, checkpoint)
                finally:  # an OSError may be that of a page that the source does not have any more
                    file.check()
                out.flush()
                os.fsync(out.fileno())
            disk_files.replace(partial, target, seconds=_BUSY_SECONDS)
        except FileExistsError:
            raise RequestError(
                f"The file {str(partial)!r} already exists.",
                "Delete it if no other quantization is writing it.",
            ) from None
        except BaseException:
            disk_files.delete(partial)
            raise
    return _summary(plan, target)


def _wanted(name: str) -> Format:
    made = {row.name: row for row in FORMATS.values() if row.quantize}
    if name.upper() not in made:
        raise RequestError(
            f"There is no quantizer for {name!r}.",
            f"Choose one of these: {', '.join(sorted(made))}.",
        )
    return made[name.upper()]


def format_for(info: TensorInfo, wanted: Format) -> Format:
    """The target format of a tensor: only matrices change, but not those that `_KEPT` names."""
    kept = any(part in info.name for part in _KEPT)
    if len(info.shape) < 2 or kept or not info.name.endswith(".weight"):
        return info.format
    for format in (wanted, by_name("Q8_0"), by_name("F16")):
        if info.shape[-1] % format.block == 0:
            return format
    raise AssertionError("F16 stores rows of any length")


def _write(
    file: GGUFFile,
    plan: list[tuple[TensorInfo, Format]],
    wanted: Format,
    out: BinaryIO,
    progress: Callable[[int, int], None],
    checkpoint: Callable[[], None],
) -> None:
    entries = _entries(file, wanted)
    out.write(struct.pack("<4sIQQ", b"GGUF", 3, len(plan), len(entries)))
    out.writelines(entries)
    offset = 0
    for info, format in plan:
        out.write(_text(info.name) + struct.pack("<I", len(info.shape)))
        out.write(struct.pack(f"<{len(info.shape)}Q", *reversed(info.shape)))
        out.write(struct.pack("<IQ", format.file_id, offset))
        offset = padded(offset + _size(info, format), _ALIGNMENT)
    _pad(out)
    total = sum(math.prod(info.shape) for info, _ in plan)
    done = 0
    for info, format in plan:
        for chunk, weights in _chunks(file, info, format):
            checkpoint()
            out.write(chunk)
            done += weights
            progress(done, total)
        _pad(out)
        file.drop_pages(info.name)


def _entries(file: GGUFFile, wanted: Format) -> list[bytes]:
    """The metadata entries of the source, with those about quantization replaced."""
    added = {_VERSION: _number(_VERSION, 2)}
    if wanted.file_type is not None:
        added[_FILE_TYPE] = _number(_FILE_TYPE, wanted.file_type)
    if wanted.oxibonsai:
        key = "oxibonsai.quant_format"
        added[key] = _text(key) + struct.pack("<I", Kind.STRING) + _text(wanted.name)
    kept = {
        key: stored
        for key, stored in file.entries().items()
        if not key.startswith(_DROPPED_KEYS) and key not in ("general.alignment", _FILE_TYPE)
    }
    return list((kept | added).values())


def _number(key: str, value: int) -> bytes:
    return _text(key) + struct.pack("<II", Kind.UINT32, value)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _pad(out: BinaryIO) -> None:
    out.write(bytes(-out.tell() % _ALIGNMENT))


def _size(info: TensorInfo, format: Format) -> int:
    return math.prod(info.shape) // format.block * format.size


def _chunks(file: GGUFFile, info: TensorInfo, format: Format) -> Iterator[tuple[bytes, int]]:
    """A tensor's bytes in the new format and their number of weights, some rows at a time."""
    data = file.data(info.name)
    if format is info.format:
        yield bytes(data), math.prod(info.shape)
        return
    weight = Weight.from_bytes(data, info.format, info.shape)
    rows, columns = weight.data.shape[0], info.shape[-1]
    step = max(_CHUNK_WEIGHTS // columns, 1)
    quantizer = format.quantize
    assert quantizer is not None, format.name
    for start in range(0, rows, step):
        end = min(start + step, rows)
        dense = torch.empty(end - start, columns)
        weight.decode(start, end, dense)
        if not bool(dense.isfinite().all()):
            raise ModelFileError(
                f"The tensor {shown(info.name)} has infinite or NaN values.",
                "The file is damaged; get another copy.",
            )
        yield quantizer(dense.view(-1, format.block)).numpy().tobytes(), dense.numel()


def _summary(plan: list[tuple[TensorInfo, Format]], target: Path) -> str:
    """File name, size, and the number of tensors of each format."""
    counts: dict[str, int] = {}
    for _, format in plan:
        counts[format.name] = counts.get(format.name, 0) + 1
    formats = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"{target.name}: {target.stat().st_size:,} bytes; tensors: {formats}"
