"""Damages every key and tensor of a model in turn: it still works or fails with one sentence."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import golden_families
import tiny
from engine.cli.commands import main
from engine.gguf.reader import GGUFFile

TINY = ("llama", "gemma3")
# Oracle cases that cover the other kinds of block: experts, parallel, biases, RoPE scalings.
OTHERS = (
    "mixtral", "qwen2", "qwen3moe", "gemma", "gemma2", "phi2", "phi3-long", "command-r", "cohere2",
    "starcoder", "starcoder2", "granite", "olmo2", "qwen3-yarn",
)  # fmt: skip
ARCHITECTURES = [*TINY, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
TOKENS = "tokenizer.ggml.tokens"
_PARTS = {
    f"blk.{layer}.{name}.weight": tuple(f"blk.{layer}.{part}.weight" for part in parts)
    for layer in range(2)
    for name, parts in {
        "attn_qkv": ("attn_q",),
        "ffn_up": ("ffn_gate",),
    }.items()
}


def _wrong_kind(value: Any) -> Any:
    return 7 if isinstance(value, str | list) else "text"


def _number(instead: float) -> Callable[[Any], Any]:
    """Replaces numeric values; removes others."""
    return lambda value: instead if type(value) in (int, float) else ...


FAULTS: dict[str, Callable[[Any], Any]] = {
    "missing": lambda value: None,
    "of another kind": _wrong_kind,
    "a list": lambda value: ... if isinstance(value, list) else [value],
    "zero": _number(0),
    "negative": _number(-1),
    "huge": _number((1 << 32) - 1),
    "half": _number(0.5),
    "not a number": _number(math.nan),
    "empty": lambda value: "" if isinstance(value, str) else ...,
    "too short": lambda value: value[:-1] if isinstance(value, list) else ...,
    "almost nothing": lambda value: value[:1] if isinstance(value, list) else ...,
    "twice as long": lambda value: value * 2 if isinstance(value, list) else ...,
    "other texts": lambda value: ["a", "b"] if isinstance(value, list) else ...,
}


def _keys(path: Path) -> dict[str, Any]:
    with GGUFFile.open(path) as file:
        return {key: file.metadata[key] for key in file.metadata}


def _tensors(path: Path) -> dict[str, tuple[int, ...]]:
    with GGUFFile.open(path) as file:
        return {name: info.shape for name, info in file.tensors.items()}


def _stored(name: str) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode()


def _misshapen(raw: bytes, name: str, shape: tuple[int, ...]) -> bytes:
    """The same bytes with another shape of the same size."""
    at = raw.index(_stored(name)) + len(_stored(name)) + 4
    dims = shape[::-1]
    other = (dims[0] - 1,) if len(dims) == 1 else (dims[0] // 2, dims[1] * 2, *dims[2:])
    return raw[:at] + struct.pack(f"<{len(dims)}Q", *other) + raw[at + 8 * len(dims) :]


def _whole(architecture: str, path: Path) -> Path:
    """A valid model."""
    if architecture in TINY:
        return tiny.write(path, architecture=architecture, layers=1)
    return golden_families.write(architecture, path)


def _faulty(architecture: str, fault: str, path: Path) -> Iterator[str]:
    """Write one faulty file after another; yields the key or tensor that is wrong."""
    whole = _whole(architecture, path.with_name("whole.gguf"))
    for key, value in _keys(whole).items():
        faulty = FAULTS[fault](value)
        if faulty is not ...:
            tiny.rewrite(whole, path, {key: faulty})
            yield key


def _error(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The error `complete` prints for a file, "" if it answers; must be exactly one sentence."""
    status = main(["complete", "-m", str(path), "-p", "hello", "-n", "2", "-t", "1"])
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    assert status == (1 if error.startswith("tokonoma: ") else 0), error
    assert len(error) < 500, error
    return error.strip() if status else ""


@pytest.mark.sweep
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_key_is_harmless_or_reported(
    architecture: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.gguf"
    errors = {key: _error(path, capsys) for key in _faulty(architecture, fault, path)}
    assert errors
    for key, error in errors.items():
        if error and not key.startswith(("general.", "tokenizer.")):
            assert key in error or "heads" in error or "widths" in error or "tensor" in error, error


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("fault", ["missing", "misshapen"])
def test_a_faulty_tensor_is_named(
    architecture: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _whole(architecture, tmp_path / "m.gguf")
    raw, tensors = path.read_bytes(), _tensors(path)
    for name, shape in tensors.items():
        other_name = name[:-1] + name[-1].upper()
        stored, other = _stored(name), _stored(other_name)
        faulty = raw.replace(stored, other) if fault == "missing" else _misshapen(raw, name, shape)
        path.write_bytes(faulty)
        error = _error(path, capsys)
        # Renaming an optional head reports the new name; a tensor that may be fused is reported as
        # one of its parts. Only phi3 fuses ffn_gate into ffn_up.
        parts = () if "ffn_up" in name and "phi3" not in architecture else _PARTS.get(name, ())
        known = (name, other_name, *parts)
        assert any(repr(one) in error for one in known), (name, error)


@pytest.mark.parametrize("architecture", TINY)
@pytest.mark.parametrize("size", [-1, 1, 4096])
def test_a_vocabulary_of_another_size_than_the_embedding(
    architecture: str, size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny.write(tmp_path / "m.gguf", architecture=architecture, layers=1)
    keys = _keys(path)
    lists = {key: keys[key] for key in keys if key.startswith("tokenizer.ggml.to")}
    lists |= {key: keys[key] for key in keys if key == "tokenizer.ggml.scores"}
    longer = {
        key: value[:size]
        if size < 0
        else value + [f"<extra {n}>" for n in range(size)]
        if key == TOKENS
        else value + [value[-1]] * size
        for key, value in lists.items()
    }
    tiny.write(path, architecture=architecture, layers=1, metadata=longer)
    error = _error(path, capsys)
    assert error == "" if size < 0 else "token_embd.weight" in error and "rows" in error


@pytest.mark.parametrize("key", ["bos", "eos", "unknown"])
@pytest.mark.parametrize("token", [1 << 31, -1, 100_000])
def test_a_token_id_outside_the_vocabulary_is_ignored(
    key: str, token: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {f"tokenizer.ggml.{key}_token_id": token, "tokenizer.ggml.add_bos_token": True}
    assert not _error(tiny.write(tmp_path / "m.gguf", layers=1, metadata=keys), capsys)


def test_invalid_merges_and_tokens_are_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny.write(tmp_path / "m.gguf", layers=1)
    keys = _keys(path)
    tokens = [*keys[TOKENS][:-2], keys[TOKENS][5], ""]
    merges = ["no such", "", " ", "nospace", "Ġ", *keys["tokenizer.ggml.merges"], "a b c"]
    tiny.write(path, layers=1, metadata={TOKENS: tokens, "tokenizer.ggml.merges": merges})
    assert not _error(path, capsys)


def test_a_context_of_one_token_is_too_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny.write(tmp_path / "m.gguf", layers=1, context=1)
    assert "can take in 1" in _error(path, capsys)
    assert main(["info", "-m", str(path)]) == 0


def test_a_chat_template_that_is_not_text_is_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny.write(tmp_path / "m.gguf", layers=1, metadata={"tokenizer.chat_template": [1, 2]})
    assert main(["chat", "-m", str(path), "-p", "hello", "-n", "2"]) == 0
    capsys.readouterr()
    assert main(["info", "-m", str(path), "--json"]) == 0
    output = capsys.readouterr().out
    assert '"chat_template": false' in output
    assert '"template": "built in, ChatML"' in output
