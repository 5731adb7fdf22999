"""Records what llama.cpp answers with files that `engine.quantize` wrote.

    python tests/golden_quantize.py SERVER [SMOLLM2]

SERVER is llama.cpp's `llama-server`, SMOLLM2 the real model, which takes a minute. Writes
golden/quantized.json: greedy ids by weight format.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import tiny
from engine.quantize import quantize
from kernels.quantizers import QUANTIZERS
from llama_server import Refusal, ask, serving, version

GOLDEN = Path(__file__).parent / "golden" / "quantized.json"
OF_TINY = [[5, 6, 7, 8], [100, 3, 250, 41, 77, 19], list(range(10, 60))]
OF_SMOLLM2 = [[504, 3575, 282, 4649, 314], [1, 9690, 198, 2683, 359]]
REAL_FORMATS = ("F16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL")
COUNT = 16  # tokens after each prompt


def source(folder: Path) -> Path:
    """The model that is written in every format: every width is a whole number of blocks."""
    return tiny.write(folder / "source.gguf", format="F32", hidden=256, head_dim=64, ffn=512)


def greedy(program: str, model: Path, prompts: list[list[int]]) -> list[list[int]]:
    """What llama.cpp says after each prompt: the ids of the most likely tokens, up to its end."""
    options = {"n_predict": COUNT, "temperature": 0, "cache_prompt": False, "return_tokens": True}
    with serving(program, model, "-c", "256", "--no-warmup") as address:
        return [
            ask(address, "completion", options | {"prompt": prompt})["tokens"] for prompt in prompts
        ]


def main(program: str, real: Path | None) -> None:
    """Write, load and ask, format by format; names those llama.cpp does not load."""
    found: dict[str, dict[str, Any]] = {"tiny": {}, "smollm2": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted = [("tiny", source(folder), kind, OF_TINY) for kind in QUANTIZERS]
        if real is not None:
            wanted += [("smollm2", real, kind, OF_SMOLLM2) for kind in REAL_FORMATS]
        for of, model, kind, prompts in wanted:
            target = folder / "target.gguf"
            quantize(model, target, kind)
            try:
                found[of][kind] = greedy(program, target, prompts)
                print(of, kind, found[of][kind][0])
            except Refusal as refusal:
                print(of, kind, "REFUSED", refusal)
            target.unlink()
    origin = f"llama.cpp, {version(program)}; written by tests/golden_quantize.py"
    lines = [f' "origin": {json.dumps(origin)}']
    for of, formats in found.items():
        rows = ",\n".join(f"  {json.dumps(kind)}: {ids}" for kind, ids in formats.items())
        lines.append(f' "{of}": {{\n{rows}\n }}')
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None)
