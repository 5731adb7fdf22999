"""Writes tiny GGUF test models: complete metadata, small real tokenizers, seeded random weights.

Writing one takes a few milliseconds; equal arguments give equal bytes. The weights are scaled so
that activations stay near one and the next token depends on all layers. The generated text is
meaningless.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from numpy.typing import NDArray

from engine.gguf.reader import GGUFFile
from kernels.weights.formats import Format, by_name

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type
_MERGES = 48
_TEXT = (
    "the quick brown fox jumps over the lazy dog and then the dog sleeps under the old tree; "
    "hello there, how are you today? one two three four five, this is the answer to that question."
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Hyperparameters that determine the tensor shapes."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    context: int


def write(
    path: Path,
    *,
    architecture: str = "llama",
    format: str = "F32",
    layers: int = 2,
    hidden: int = 0,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 0,
    ffn: int = 0,
    context: int = 256,
    seed: int = 0,
    tied: bool = False,
    template: str | None = CHATML,
    tokenizer: str | None = "",
    vocabulary: int = 0,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model of `architecture` (llama, qwen3, gemma3) whose matrices are in `format`.

    Widths of 0 become 64, 16 and 128 (`hidden`, `head_dim`, `ffn`), or 256, 64 and 256 for formats
    of large blocks. `tokenizer` is "bpe", "spm" or None; "" is "spm" for gemma3, else "bpe".
    The token list is padded with unused tokens to a size of `vocabulary`. `metadata` replaces or
    adds keys; a value of None removes one. gemma3 always has tied embeddings.
    """
    row = by_name(format)
    wide = row.block > 32
    sizes = Sizes(
        layers,
        hidden or (256 if wide else 64),
        heads,
        kv_heads,
        head_dim or (64 if wide else 16),
        ffn or (256 if wide else 128),
        context,
    )
    kind = ("spm" if architecture == "gemma3" else "bpe") if tokenizer == "" else tokenizer
    words = _vocabulary(kind, architecture, template)
    vocabulary = pad_vocabulary(words, vocabulary)
    keys = _keys(architecture, format, sizes, vocabulary) | words
    for key, value in (metadata or {}).items():
        keys[key] = value
    writer = GGUFWriter(path, architecture)
    writer.kv_data[0].clear()
    for key, value in keys.items():
        if value is not None:
            add_key(writer, key, value)
    random = np.random.default_rng(seed)
    tied = tied or architecture == "gemma3"
    for name, shape, spread in _tensors(architecture, sizes, vocabulary, tied):
        _add_tensor(writer, random, name, shape, spread, row)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rewrite(source: Path, path: Path, changes: Mapping[str, Any]) -> Path:
    """Copy a model with other values of some metadata keys; a value of None removes a key."""
    with GGUFFile.open(source) as file:
        writer = GGUFWriter(path, "")
        writer.kv_data[0].clear()
        for key, value in (dict(file.metadata) | dict(changes)).items():
            if value is not None:
                add_key(writer, key, value)
        for info in file.tensors.values():
            raw = np.frombuffer(file.data(info.name), np.int8).reshape(*info.shape[:-1], -1)
            writer.add_tensor(info.name, raw, raw_shape=info.shape, raw_dtype=info.format.id)  # type: ignore[arg-type]
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return path


# --- metadata -----------------------------------------------------------------------------------


def _keys(architecture: str, format: str, sizes: Sizes, vocabulary: int) -> dict[str, Any]:
    """Metadata keys of each architecture, as llama.cpp's converter writes them."""
    a = architecture
    keys: dict[str, Any] = {
        "general.architecture": a,
        "general.type": "model",
        "general.name": f"tiny {a} {format}",
        "general.file_type": by_name(format).file_type,
        "general.quantization_version": 2,
        # These type numbers denote these formats only in files marked as OxiBonsai's.
        "oxibonsai.quant_format": format if by_name(format).oxibonsai else None,
        f"{a}.block_count": sizes.layers,
        f"{a}.context_length": sizes.context,
        f"{a}.embedding_length": sizes.hidden,
        f"{a}.feed_forward_length": sizes.ffn,
        f"{a}.attention.head_count": sizes.heads,
        f"{a}.attention.head_count_kv": sizes.kv_heads,
        f"{a}.attention.layer_norm_rms_epsilon": 1e-5 if a == "llama" else 1e-6,
        f"{a}.rope.freq_base": 10_000.0 if a == "llama" else 1_000_000.0,
    }
    if a == "llama":
        keys[f"{a}.rope.dimension_count"] = sizes.head_dim
        keys[f"{a}.vocab_size"] = vocabulary
    # llama files state the head width only where it differs from hidden / heads.
    if a != "llama" or sizes.head_dim * sizes.heads != sizes.hidden:
        keys[f"{a}.attention.key_length"] = sizes.head_dim
        keys[f"{a}.attention.value_length"] = sizes.head_dim
    if a == "gemma3":
        keys[f"{a}.attention.sliding_window"] = 32
    return keys


def add_key(writer: GGUFWriter, key: str, value: Any) -> None:
    of = _kind(value[0]) if isinstance(value, list) else None
    if of is GGUFValueType.UINT32:  # llama.cpp requires arrays of signed integers
        of = GGUFValueType.UINT8 if key.endswith("charsmap") else GGUFValueType.INT32
    writer.add_key_value(key, value, _kind(value), of)


def _kind(value: Any) -> GGUFValueType:
    """GGUF type of a value as converters choose it: unsigned unless negative, float32."""
    if isinstance(value, list):
        return GGUFValueType.ARRAY
    if isinstance(value, bool):
        return GGUFValueType.BOOL
    if isinstance(value, int):
        return GGUFValueType.UINT32 if value >= 0 else GGUFValueType.INT32
    return GGUFValueType.FLOAT32 if isinstance(value, float) else GGUFValueType.STRING


# --- tokenizers ---------------------------------------------------------------------------------


def _vocabulary(kind: str | None, architecture: str, template: str | None) -> dict[str, Any]:
    if kind is None:
        return {}
    keys = bpe(architecture) if kind == "bpe" else spm()
    return keys if template is None else keys | {"tokenizer.chat_template": template}


def pad_vocabulary(words: dict[str, Any], wanted: int) -> int:
    """Pad the token lists to `wanted`; returns the vocabulary size, also without a tokenizer."""
    if not words:
        return wanted or 320
    tokens = words["tokenizer.ggml.tokens"]
    missing = range(len(tokens), wanted)
    tokens += [f"[PAD{number}]" for number in missing]
    words["tokenizer.ggml.token_type"] += [UNUSED for _ in missing]
    if "tokenizer.ggml.scores" in words:
        words["tokenizer.ggml.scores"] += [-float(number) for number in missing]
    return len(tokens)


def bpe(architecture: str) -> dict[str, Any]:
    """Byte-level BPE: three control tokens, every byte, and merges learned from one sentence."""
    controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    letters = byte_letters()
    words = [
        [letters[byte] for byte in word.encode()] for word in _TEXT.replace(" ", "\0 ").split("\0")
    ]
    merges = _learn(words)
    tokens = controls + letters + [left + right for left, right in merges]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2" if architecture == "qwen3" else "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL] * len(controls) + [NORMAL] * (len(tokens) - 3),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in merges],
        "tokenizer.ggml.bos_token_id": 0 if architecture == "qwen3" else 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }


def spm() -> dict[str, Any]:
    """SentencePiece: control tokens, byte tokens, letters and merges with decreasing scores."""
    controls = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    words = [list("▁" + word) for word in _TEXT.split(" ")]
    merges = _learn(words)
    printable = [chr(code) for code in range(33, 127)]
    pieces = [left + right for left, right in merges] + ["▁", "\n", *printable, "é", "ß", "猫"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = controls + bytes_ + pieces
    fixed = len(controls) + len(bytes_)
    types = [UNKNOWN] + [CONTROL] * (len(controls) - 1) + [BYTE] * 256 + [NORMAL] * len(pieces)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * fixed + [-float(rank) for rank in range(len(pieces))],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.eot_token_id": 4,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }


def byte_letters() -> list[str]:
    """GPT-2's byte-to-unicode table: the printable character that stands for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) if byte in shown else chr(256 + hidden.index(byte)) for byte in range(256)]


def _learn(words: list[list[str]]) -> list[tuple[str, str]]:
    """Train BPE merges: the most frequent pair first, ties in alphabetical order."""
    merges: list[tuple[str, str]] = []
    while len(merges) < _MERGES:
        counts: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in itertools.pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        words = [_merged(word, best) for word in words]
    return merges


def _merged(word: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for piece in word:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


# --- tensors ------------------------------------------------------------------------------------


def _tensors(
    architecture: str, sizes: Sizes, vocabulary: int, tied: bool
) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Names, shapes and spreads as llama.cpp orders them; spread 0 is a norm, all near one."""
    embedding = 1 / math.sqrt(sizes.hidden)
    yield "token_embd.weight", (vocabulary, sizes.hidden), embedding
    for layer in range(sizes.layers):
        for name, shape, spread in _layer(architecture, sizes):
            yield f"blk.{layer}.{name}.weight", shape, spread
    yield "output_norm.weight", (sizes.hidden,), 0.0
    if not tied:
        yield "output.weight", (vocabulary, sizes.hidden), embedding


def _layer(architecture: str, sizes: Sizes) -> Iterator[tuple[str, tuple[int, ...], float]]:
    hidden, ffn = sizes.hidden, sizes.ffn
    query, key = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    yield "attn_norm", (hidden,), 0.0
    yield "attn_q", (query, hidden), hidden**-0.5
    yield "attn_k", (key, hidden), hidden**-0.5
    yield "attn_v", (key, hidden), hidden**-0.5
    yield "attn_output", (hidden, query), query**-0.5
    if architecture != "llama":
        yield "attn_q_norm", (sizes.head_dim,), 0.0
        yield "attn_k_norm", (sizes.head_dim,), 0.0
    yield "ffn_norm", (hidden,), 0.0
    yield "ffn_gate", (ffn, hidden), hidden**-0.5
    yield "ffn_up", (ffn, hidden), hidden**-0.5
    yield "ffn_down", (hidden, ffn), ffn**-0.5
    if architecture == "gemma3":
        yield "post_attention_norm", (hidden,), 0.0
        yield "post_ffw_norm", (hidden,), 0.0


def _add_tensor(
    writer: GGUFWriter,
    random: np.random.Generator,
    name: str,
    shape: tuple[int, ...],
    spread: float,
    row: Format,
) -> None:
    if not spread:
        norm = 1 + random.uniform(-0.1, 0.1, shape)
        writer.add_tensor(name, norm.astype(np.float32))
        return
    row_bytes = row.row_bytes(shape[-1])
    raw = _packed(random, shape, spread, row).reshape(*shape[:-1], row_bytes)
    # With dtype uint8 the writer would read `shape` as a shape in bytes; int8 avoids that.
    writer.add_tensor(name, raw.view(np.int8), raw_shape=shape, raw_dtype=row.file_id)  # type: ignore[arg-type]


def _packed(
    random: np.random.Generator, shape: tuple[int, ...], spread: float, row: Format
) -> NDArray[np.uint8]:
    """Random weights centred on zero in a weight format: the bytes of all blocks in order."""
    count = math.prod(shape) // row.block
    if row.name in _SCALES:
        return _codes_and_scales(random, count, spread, row)
    if row.name in ("Q2_0", "PQ2_0"):
        # PrismML's weights are ternary: the fourth code does not occur.
        chances = (0.4, 0.3, 0.2, 0.1) if row.name == "Q2_0" else (0.35, 0.3, 0.35, 0.0)
        codes = random.choice(np.arange(4, dtype=np.uint8), (count, row.block), p=chances)
        return np.hstack([_halves(random, count, spread), _neighbours(codes)])
    if row.name == "TQ2_0_G128":
        codes = random.integers(0, 3, (count, row.block), dtype=np.uint8)
        return np.hstack([_neighbours(codes), _halves(random, count, spread)])
    if row.name == "PTQ1_0":
        digits = [random.integers(0, 243, (count, 24)), 3 * random.integers(0, 81, (count, 2))]
        bytes_ = np.ceil(np.hstack(digits) * 256 / 243).astype(np.uint8)
        return np.hstack([bytes_, _halves(random, count, spread)])
    if row.name == "IQ1_M":
        return _iq1_m(random, count, spread)
    if row.name == "NVFP4":  # 4-bit float codes have a spread of about 2.8; 8-bit scales undo it
        codes = random.integers(0, 256, (count, 32), dtype=np.uint8)
        scales = torch.from_numpy(random.uniform(0.75, 1.25, (count, 4)) * spread / 2.8)
        return np.hstack([scales.to(torch.float8_e4m3fn).view(torch.uint8).numpy(), codes])
    if row.name in ("Q8_1", "Q8_K"):
        return _with_sums(random, count, spread, row)
    if row.name in _FLOATS:
        normal = torch.from_numpy(random.standard_normal((count, 32), np.float32))
        codes = normal.to(_FLOATS[row.name]).view(torch.uint8).numpy()
        return np.hstack([codes, _halves(random, count, spread)])
    weights = random.standard_normal(shape, np.float32) * np.float32(spread)
    if row.name == "Q1_0":
        return _q1_0(weights)
    if row.id in gguf.GGML_QUANT_SIZES:
        return gguf.quantize(weights, GGMLQuantizationType(row.id)).view(np.uint8)
    assert row.quantize, row.name
    return row.quantize(torch.from_numpy(weights).view(-1, row.block)).numpy()


_FLOATS = {"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}

# Formats that gguf-py cannot quantize to, and whose codes may be any bytes: index of each f16 scale
# (and minimum) in the block, and their ratio, which centres the weights on zero.
_SCALES = {
    "Q2_K": {-2: 1.0, -1: 1.5},
    "Q3_K": {-1: 1.0},
    "Q4_K": {0: 1.0, 1: 7.5},
    "Q5_K": {0: 1.0, 1: 15.5},
    "Q6_K": {-1: 1.0},
    "IQ4_NL": {0: 1.0},
    "IQ4_XS": {0: 1.0},
    **{key: {0: 1.0} for key in ("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")},
}


def _codes_and_scales(
    random: np.random.Generator, count: int, spread: float, row: Format
) -> NDArray[np.uint8]:
    """Random codes and sub-scales, with half-precision scales that give the requested spread.

    Scales differ between blocks, so that a kernel that uses a neighbour's scale fails.
    """
    blocks = random.integers(0, 256, (count, row.size), dtype=np.uint8)
    halves = blocks.view("<f2")
    for column, part in _SCALES[row.name].items():
        halves[:, column] = part
    unit = float(gguf.dequantize(blocks, GGMLQuantizationType(row.id)).std())
    scales = random.uniform(0.75, 1.25, count) * spread / unit
    for column in _SCALES[row.name]:
        halves[:, column] = halves[:, column] * scales
    return blocks


def _halves(random: np.random.Generator, count: int, spread: float) -> NDArray[np.uint8]:
    """Bytes of half-precision scales near `spread`: [count, 2]."""
    scales = random.uniform(0.75, 1.25, (count, 1)) * spread
    return scales.astype("<f2").view(np.uint8)


def _neighbours(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pack 2-bit codes [n, w], four neighbours per byte, lowest bits first → [n, w / 4]."""
    four = codes.reshape(len(codes), -1, 4)
    return (four << np.array([0, 2, 4, 6], np.uint8)).sum(axis=2, dtype=np.uint8)


def _iq1_m(random: np.random.Generator, count: int, spread: float) -> NDArray[np.uint8]:
    """Random codes; the scale is stored in the top 4 bits of each of the last four 16-bit words."""
    blocks = random.integers(0, 256, (count, 56), dtype=np.uint8)
    # 5/8 of the weights are not zero; sub-scales are odd numbers up to 15: the spread is about 7.3.
    scale = (random.uniform(0.75, 1.25, count) * spread / 7.3).astype("<f2").view("<u2")
    numbers = blocks[:, 48:].view("<u2")
    for part in range(4):
        numbers[:, part] = numbers[:, part] & 0x0FFF | (scale >> 4 * part & 15) << 12
    return blocks


def _with_sums(
    random: np.random.Generator, count: int, spread: float, row: Format
) -> NDArray[np.uint8]:
    """8-bit codes with a scale and the sums of codes that ggml's dot products use."""
    codes = np.clip(random.standard_normal((count, row.block)) * 40, -127, 127).astype(np.int8)
    scale = random.uniform(0.75, 1.25, (count, 1)) * spread / 40
    if row.name == "Q8_1":
        sums = (scale * codes.sum(axis=1, keepdims=True)).astype("<f2").view(np.uint8)
        return np.hstack([scale.astype("<f2").view(np.uint8), sums, codes.view(np.uint8)])
    sums = codes.reshape(count, 16, 16).sum(axis=2, dtype="<i2").view(np.uint8)
    return np.hstack([scale.astype("<f4").view(np.uint8), codes.view(np.uint8), sums])


def _q1_0(weights: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Quantize to Q1_0: the mean magnitude of 128 weights as f16, then the signs, low bit first."""
    groups = weights.reshape(-1, 128)
    scale = np.abs(groups).mean(axis=1, keepdims=True).astype("<f2").view(np.uint8)
    return np.hstack([scale, np.packbits(groups >= 0, axis=1, bitorder="little")])
