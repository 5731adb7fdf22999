"""Small random models that transformers ran and llama.cpp converted: their files and logits.

`golden_transformers.py` records them in `golden/transformers.npz`: for each case the metadata of the
GGUF file that llama.cpp's converter wrote, its tensors, tokens, and transformers' float32 logits.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray

import architecture_files as files

RECORDED = Path(__file__).parents[1] / "golden" / "transformers.npz"


@dataclass(frozen=True)
class Recorded:
    """One model: its file without a vocabulary, and the logits [T, V] of some tokens."""

    skeleton: files.Skeleton
    tensors: dict[str, NDArray[Any]]  # float16, or float32 where float16 would round them
    tokens: list[int]
    logits: files.Rows

    def write(self, path: Path) -> Path:
        """Write the model as a GGUF file in F32."""
        return files.write(
            self.skeleton, path, values=lambda name, _: self.tensors[name].astype(np.float32)
        )

    def error(self, found: files.Rows) -> float:
        """The largest difference from the logits, in standard deviations of its row."""
        expected = self.logits.astype(np.float64)
        error = np.abs(found - expected) / expected.std(1, keepdims=True)
        return float(error.max()) if np.isfinite(error).all() else math.inf


def read(path: Path, tokens: list[int], logits: files.Rows) -> Recorded:
    """The model of a converted file, with what transformers gave for it."""
    skeleton = files.read_skeleton(path)
    kept = {
        key: value
        for key, value in skeleton.metadata.items()
        if not key.startswith("general.") or key == "general.architecture"
    }
    tensors: dict[str, NDArray[Any]] = {}
    for one in GGUFReader(path).tensors:
        with np.errstate(over="ignore"):
            half = one.data.astype(np.float16)
        exact = np.array_equal(half.astype(np.float32), one.data)
        tensors[one.name] = half if exact else np.array(one.data)
    skeleton = files.Skeleton(skeleton.architecture, kept, skeleton.tensors)
    return Recorded(skeleton, tensors, tokens, logits)


def save(cases: dict[str, Recorded], origin: str) -> None:
    """Write the file of all cases.

    The tensors of a case are joined, and all first bytes of numbers precede all second ones and so
    on: this compresses better.
    """
    rows: dict[str, NDArray[Any]] = {"origin": np.array(origin)}
    for name, case in cases.items():
        header = {
            "metadata": case.skeleton.metadata,
            "tensors": [[key, one.dtype.name, one.shape] for key, one in case.tensors.items()],
        }
        text = json.dumps(header, separators=(",", ":"), sort_keys=False)
        rows[f"{name}/header"] = np.frombuffer(text.encode(), np.uint8)
        for kind in ("float16", "float32"):
            flat = [one.ravel() for one in case.tensors.values() if one.dtype.name == kind]
            rows[f"{name}/{kind}"] = _planes(np.concatenate(flat or [np.empty(0, kind)]))
        rows[f"{name}/tokens"] = np.array(case.tokens, np.uint8)
        rows[f"{name}/logits"] = _planes(case.logits)
    np.savez_compressed(RECORDED, **rows)


def recorded() -> dict[str, Recorded]:
    """The recorded cases by name."""
    with np.load(RECORDED) as rows:
        names = [key.removesuffix("/header") for key in rows.files if key.endswith("/header")]
        return {name: _restore({key: rows[f"{name}/{key}"] for key in _PARTS}) for name in names}


_PARTS = ("header", "float16", "float32", "tokens", "logits")


def _planes(numbers: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes [size of a number, count] of numbers."""
    whole = np.ascontiguousarray(numbers.ravel())
    return np.ascontiguousarray(whole.view(np.uint8).reshape(-1, whole.itemsize).T)


def _numbers(planes: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    return np.ascontiguousarray(planes.T).view(kind).ravel()


def _restore(parts: dict[str, NDArray[Any]]) -> Recorded:
    header = json.loads(parts["header"].tobytes())
    flat = {kind: _numbers(parts[kind], kind) for kind in ("float16", "float32")}
    metadata = {key: (kind, value) for key, (kind, value) in header["metadata"].items()}
    tensors: dict[str, NDArray[Any]] = {}
    start = {"float16": 0, "float32": 0}
    for name, kind, shape in header["tensors"]:
        end = start[kind] + math.prod(shape)
        tensors[name] = flat[kind][start[kind] : end].reshape(shape)
        start[kind] = end
    shapes = {name: one.shape for name, one in tensors.items()}
    skeleton = files.Skeleton(metadata["general.architecture"][1], metadata, shapes)
    tokens = parts["tokens"].tolist()
    logits = _numbers(parts["logits"], "float32").reshape(len(tokens), -1)
    return Recorded(skeleton, tensors, tokens, logits)
