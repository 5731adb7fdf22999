"""Small random models of every architecture, written again from the skeletons of llama.cpp's own.

A skeleton is the metadata of a file without its vocabulary, and the names and shapes of its tensors.
The weights are float32 and depend on the names alone, through the raw output of PCG64, which numpy
keeps the same in every version. `golden_architectures.py` records llama.cpp's logits of them.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from numpy.typing import NDArray

import tiny

if TYPE_CHECKING:
    from engine.core.session import Session

GOLDEN = Path(__file__).parents[1] / "golden"
SKELETONS, LOGITS = GOLDEN / "architectures.json", GOLDEN / "architectures.npz"
TOKENS = 300  # of the sequence, unless the model has learned positions for fewer
# Of the rows that are recorded: around the ends of blocks of 64 tokens and of llama.cpp's windows.
POSITIONS = (0, 1, 30, 31, 32, 33, *range(61, 67), *range(126, 132), *range(254, 259), 298, 299)
LENGTHS = (1, 2, 63, 64, 65, TOKENS)
PIECES = (1, 62, 64, 3, 33, 1, 1)  # then the rest
SPREAD = 0.1
_SEED = 7

# Whose layers amplify the rounding of llama.cpp's table of GELU: what they add is made smaller.
_CALMED = ("gemma3n", "gemma4")
_LAST_OF_PARTS = (
    *("post_attention_norm.weight", "post_ffw_norm.weight", "post_norm.weight"),
    *("laurel_post_norm.weight", "altup_predict_coef.weight"),
)

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Skeleton:
    """What a model is without its weights and its vocabulary."""

    architecture: str
    metadata: dict[str, tuple[str, Any]]  # type ("UINT32", "INT32[]") and value by key
    tensors: dict[str, tuple[int, ...]]  # shapes, rows first as in numpy

    @property
    def vocabulary(self) -> int:
        return self.tensors["token_embd.weight"][0]

    @property
    def length(self) -> int:
        """The number of tokens that can be run."""
        positions = self.tensors.get("position_embd.weight")
        return min(TOKENS, positions[0]) if positions else TOKENS

    @property
    def tokens(self) -> list[int]:
        raw = np.random.PCG64([_SEED, self.vocabulary]).random_raw(TOKENS) >> 33
        return (raw % self.vocabulary).tolist()[: self.length]

    @property
    def positions(self) -> list[int]:
        """Those of `POSITIONS` that exist."""
        return [position for position in POSITIONS if position < self.length]

    @property
    def few_positions(self) -> list[int]:
        """Of the rows that are recorded with scales of weights."""
        return [0, 65, self.length - 1]

    def changed(self, vocabulary: int, keys: dict[str, int]) -> Skeleton:
        """The same for a vocabulary of another size, with other values of keys that it has.

        `keys` are without the architecture's prefix.
        """
        tables = ("token_embd.weight", "output.weight", "per_layer_token_embd.weight")
        tensors = {
            name: (vocabulary, *shape[1:]) if name in tables else shape
            for name, shape in self.tensors.items()
        }
        metadata = dict(self.metadata)
        for key, value in (keys | {"vocab_size": vocabulary}).items():
            if (full := f"{self.architecture}.{key}") in metadata:
                metadata[full] = metadata[full][0], value
        return replace(self, metadata=metadata, tensors=tensors)

    def without_scales(self) -> Skeleton:
        """The same without the factors of single weights, which files of few formats have."""
        kept = {
            name: shape
            for name, shape in self.tensors.items()
            # Gemma 4's router is not a matrix with a factor: it scales its input.
            if not name.endswith((".scale", ".input_scale")) or name.endswith("gate_inp.scale")
        }
        return replace(self, tensors=kept)

    def without_ranking(self) -> Skeleton:
        """The same without the head that scores documents: a model with it does not chat."""
        kept = {name: at for name, at in self.tensors.items() if not name.startswith("cls.")}
        return replace(self, tensors=kept)


def read_skeleton(path: Path) -> Skeleton:
    """The skeleton of a file."""
    reader = GGUFReader(path)
    metadata: dict[str, tuple[str, Any]] = {}
    for key, field in reader.fields.items():
        if key.startswith(("GGUF.", "tokenizer.")):
            continue
        kind, *inner = (one.name for one in field.types)
        value = field.contents()
        if value != []:
            metadata[key] = f"{inner[-1]}[]" if inner else kind, value
    tensors = {one.name: tuple(one.shape.tolist()[::-1]) for one in reader.tensors}
    return Skeleton(metadata["general.architecture"][1], metadata, tensors)


# --- the file of skeletons ----------------------------------------------------------------------


def save(skeletons: dict[str, Skeleton]) -> None:
    """Write the skeletons, one a line. Layers with equal tensors share an entry."""
    lines = [f"{json.dumps(name)}:{_dump(skeletons[name])}" for name in sorted(skeletons)]
    SKELETONS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def recorded() -> dict[str, Skeleton]:
    """The recorded skeletons by the name of llama.cpp's file: "qwen3-dense", "llama-moe"."""
    loaded: dict[str, Any] = json.loads(SKELETONS.read_text(encoding="utf-8"))
    return {name: _restore(parts) for name, parts in loaded.items()}


def recorded_rows(name: str) -> tuple[Rows, Rows]:
    """llama.cpp's logits [positions, V] of a recorded model, without scales and with them."""
    with np.load(LOGITS) as file:
        return file[name], file[f"{name} with scales"]


def _dump(skeleton: Skeleton) -> str:
    prefix = f"{skeleton.architecture}."
    keys: dict[str, dict[str, Any]] = {}
    for key, (kind, value) in skeleton.metadata.items():
        keys.setdefault(kind, {})[key.replace(prefix, "*.", 1)] = value
    tensors: dict[str, list[Any]] = {}  # name without the layer to [layers, shape] pairs
    for name, shape in skeleton.tensors.items():
        layer, plain = _split(name)
        entry = tensors.setdefault(plain, [])
        if not entry or entry[-1][1] != list(shape):
            entry.append([[], list(shape)])
        entry[-1][0].append(layer)
    return json.dumps({"keys": keys, "tensors": tensors}, separators=(",", ":"))


def _restore(parts: dict[str, Any]) -> Skeleton:
    name = parts["keys"]["STRING"]["general.architecture"]
    metadata = {
        key.replace("*.", f"{name}.", 1): (kind, value)
        for kind, values in parts["keys"].items()
        for key, value in values.items()
    }
    tensors = {
        plain.replace("*", str(layer), 1): tuple(shape)
        for plain, entry in parts["tensors"].items()
        for layers, shape in entry
        for layer in layers
    }
    return Skeleton(name, metadata, tensors)


def _split(name: str) -> tuple[int, str]:
    """The layer of a tensor, and its name with an asterisk in place of that."""
    first, layer, rest = (*name.split(".", 2), "", "")[:3]
    if first == "blk" and layer.isdigit():
        return int(layer), f"blk.*.{rest}"
    return -1, name


# --- the model ----------------------------------------------------------------------------------


def write(
    skeleton: Skeleton,
    path: Path,
    words: dict[str, Any] | None = None,
    values: Callable[[str, Sequence[int]], Rows] | None = None,
) -> Path:
    """Write the model; equal skeletons give equal bytes.

    `words` are the keys of its tokenizer, by default those of none; `values` gives the weights of a
    tensor by its name and shape, by default `weights`.
    """
    writer = _writer(skeleton, path, words)
    for name, shape in skeleton.tensors.items():
        found = (values or weights)(name, shape)
        if values is None and skeleton.architecture in _CALMED and name.endswith(_LAST_OF_PARTS):
            found = found * np.float32(0.1)
        writer.add_tensor(name, found)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_empty(skeleton: Skeleton, path: Path) -> Path:
    """Write the model with weights of zero, which take no room on the disk."""
    writer = _writer(skeleton, path)
    size = 0
    for name, shape in skeleton.tensors.items():
        of_one = 4 * math.prod(shape)
        writer.add_tensor_info(name, shape, np.dtype(np.float32), of_one)
        size += writer.ggml_pad(of_one, writer.data_alignment)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    os.truncate(path, writer.ggml_pad(path.stat().st_size, writer.data_alignment) + size)
    return path


def _writer(skeleton: Skeleton, path: Path, words: dict[str, Any] | None = None) -> GGUFWriter:
    """A writer with all keys of the model."""
    writer = GGUFWriter(path, skeleton.architecture)
    writer.kv_data[0].clear()
    for key, (kind, value) in skeleton.metadata.items():
        if kind.endswith("[]"):
            writer.add_key_value(key, value, GGUFValueType.ARRAY, GGUFValueType[kind[:-2]])
        else:
            writer.add_key_value(key, value, GGUFValueType[kind])
    for key, value in (words or {"tokenizer.ggml.model": "no_vocab"}).items():
        tiny.add_key(writer, key, value)
    return writer


def weights(name: str, shape: Sequence[int]) -> Rows:
    """The weights of a tensor: near 1 where they scale, negative where they are rates of decay."""
    raw = np.random.PCG64([_SEED, zlib.crc32(name.encode())]).random_raw(math.prod(shape))
    # Four uniform numbers of 16 bits: nearly normal, and exact in float32 on every machine.
    sums = raw.astype("<u8").view("<u2").reshape(-1, 4).sum(1, dtype=np.int32)
    normal = ((sums - 131_070) / 37_837).astype(np.float32).reshape(shape)
    if name.endswith(("ssm_a", "ssm_a.weight")):
        return -0.25 - np.abs(normal)
    if name.startswith(("rope_freqs", "rope_factors")) or ".rope_f" in name:
        return 1 + np.abs(normal)
    if (name.endswith(".weight") and "norm" in name) or name.endswith(("scale", "_scale.weight")):
        return 1 + SPREAD * normal
    return SPREAD * normal


def run(session: Session, tokens: Sequence[int], pieces: Sequence[int] = ()) -> Rows:
    """Logits [T, V] of our engine, read in pieces of these lengths, then the rest."""
    session.rewind(0)
    rows: list[torch.Tensor] = []
    start = 0
    with torch.inference_mode():
        for length in (*pieces, len(tokens)):
            piece = tokens[start : start + length]
            rows += [session.logits(hidden) for hidden in session.prefill(piece)] if piece else []
            start += len(piece)
    return torch.cat(rows).float().numpy()


def nmse(found: Rows, expected: Rows) -> float:
    """The squared error relative to the squares of what is expected; infinite if not finite."""
    found, wanted = found.astype(np.float64), expected.astype(np.float64)
    error = float(((found - wanted) ** 2).sum() / max((wanted**2).sum(), 1e-300))
    return error if math.isfinite(error) else math.inf
