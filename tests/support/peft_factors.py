"""LoRA factors of every linear module of a model, and what llama.cpp's converter makes of them.

The factors are eighths, so that their products, and sums with the recorded weights, are exact in
float32. `golden_peft_modules.py` records the modules and the changes in `golden/peft_modules.json`.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

RECORDED = Path(__file__).parents[1] / "golden" / "peft_modules.json"
RANK, ALPHA = 2, 4
SCALE = np.float32(ALPHA / RANK)

Rows = NDArray[np.float32]


def factors(module: str, shape: Sequence[int]) -> tuple[Rows, Rows]:
    """A [R, in] and B [out, R] of a module whose weight has this shape."""
    rows, columns = shape
    raw = np.random.PCG64(zlib.crc32(module.encode())).random_raw(RANK * (rows + columns)) >> 33
    eighths = ((raw % 9).astype(np.float32) - 4) / 8
    a, b = np.split(eighths, [RANK * columns])
    return a.reshape(RANK, columns), b.reshape(rows, RANK)


def checksum(change: Rows) -> int:
    """Of a change of a tensor; that of no change does not depend on the signs of zeros."""
    return zlib.crc32((np.ascontiguousarray(change, np.float32) + np.float32(0)).tobytes())


def is_left_out(module: str) -> bool:
    """Whether an adapter of the module is refused: stacked matrices of streams, and a tied head."""
    return bool(re.search(r"altup_(unembed_)?projections\.|^lm_head$", module))


def is_read(case: str) -> bool:
    """Whether PEFT folders of the family are read: not where the file lacks factors of weights."""
    return not case.startswith("falcon-h1")


def write_folder(folder: Path, modules: dict[str, list[int]]) -> Path:
    """The PEFT folder with the factors of these modules."""
    tensors: dict[str, torch.Tensor] = {}
    for module, shape in modules.items():
        for half, values in zip("AB", factors(module, shape), strict=True):
            stem = f"base_model.model.{module}.lora_{half}.weight"
            tensors[stem] = torch.from_numpy(values.copy())
    folder.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "lora_alpha": ALPHA, "r": RANK}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def recorded() -> dict[str, Any]:
    """By case: shapes of "modules", and checksums of changed "tensors"."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def save(cases: dict[str, Any]) -> None:
    """Write all cases, one a line."""
    lines = [
        f"{json.dumps(name)}:{json.dumps(case, separators=(',', ':'))}"
        for name, case in sorted(cases.items())
    ]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
