"""What llama.cpp's converter makes of LoRA changes of every linear module, recorded.

Run from the project's folder with transformers installed. LLAMA_CPP is a folder of llama.cpp's
source.

    python tests/recorders/golden_peft_modules.py LLAMA_CPP [NAME...]

Each model of `transformers_cases.py` is converted without and with the change merged that the
adapter of `peft_factors.py` has; recorded are the modules with their shapes, and for each tensor that
differs a checksum of its difference, which is exact.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

import golden_transformers as models
from transformers_cases import CASES

import peft_factors  # isort: skip  # on the path since `golden_transformers` was imported


def saved(name: str, model: Any, folder: Path) -> dict[str, Any]:
    """The tensors of the file that the converter makes of a model."""
    from gguf import GGUFReader  # that of LLAMA_CPP

    case = CASES[name]
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if case.rename:
        case.rename(config)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    words = {f"<{token}>": token for token in range(case.vocabulary)}
    text = json.dumps({"model": {"vocab": words}, "added_tokens": []})
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    path = folder.with_suffix(".gguf")
    models.convert(folder, path)
    return {one.name: np.array(one.data) for one in GGUFReader(path).tensors}


def record(name: str, folder: Path) -> dict[str, Any]:
    """The modules and the changed tensors of one case."""
    model = models.make(CASES[name], zlib.crc32(name.encode()))
    before = saved(name, model, folder / f"{name}-before")
    modules: dict[str, list[int]] = {}
    for module, layer in model.named_modules():
        if not isinstance(layer, torch.nn.Linear) or peft_factors.is_left_out(module):
            continue
        modules[module] = list(layer.weight.shape)
        a, b = peft_factors.factors(module, modules[module])
        with torch.no_grad():
            layer.weight.add_(torch.from_numpy(peft_factors.SCALE * (b @ a)))
    after = saved(name, model, folder / f"{name}-after")
    changed = {
        tensor: peft_factors.checksum(after[tensor] - value)
        for tensor, value in before.items()
        if not np.array_equal(value, after[tensor])
    }
    return {"modules": modules, "tensors": changed}


def main() -> int:
    """Record the cases named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *CASES], metavar="NAME")
    options = parser.parse_args()
    sys.path[:0] = [str(options.llama_cpp / "gguf-py"), str(options.llama_cpp)]
    logging.disable(logging.INFO)
    cases = peft_factors.recorded() if options.names else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or CASES:
            if not peft_factors.is_read(name):
                continue
            cases[name] = record(name, Path(folder))
            print(f"{name}: {len(cases[name]['modules'])} modules", flush=True)
    peft_factors.save(cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
