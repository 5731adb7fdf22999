"""A made-up weight format: its row, decoder and quantizer are all that files and models need.

Kernels come beside them: kernels/cpu/native/formats, kernels/gpu/layout.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tiny

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
import torch
from kernels.weights import decoders, formats, quantizers

SHIFTS = torch.arange(0, 24, 6, dtype=torch.int32)
BYTES = torch.arange(0, 24, 8, dtype=torch.int32)


def decode(blocks):
    three = blocks[:, 2:].reshape(-1, 8, 3).to(torch.int32) << BYTES
    codes = three.sum(2, dtype=torch.int32).unsqueeze(2) >> SHIFTS & 63
    return (codes.flatten(1) - 32).to(torch.float32) * decoders.half(blocks, 0)


def quantize(x):
    d = (x.abs().amax(1, keepdim=True) / 31).to(torch.float16)
    codes = torch.round(x / d.float().clamp(min=1e-8)).clamp(-32, 31).to(torch.int32) + 32
    words = (codes.view(-1, 8, 4) << SHIFTS).sum(2, dtype=torch.int32).unsqueeze(2) >> BYTES
    return torch.cat((d.view(torch.uint8), (words & 255).to(torch.uint8).flatten(1)), dim=1)


made = formats.Format("E6_2", 77, 32, 26, 1e-4, "6-bit, groups of 32", "")
formats.FORMATS[made.id] = made
formats._BY_NAME[made.name] = made
decoders.e6_2, quantizers.e6_2 = decode, quantize

from app.library.offers import layout_of, runs
from engine import model_name
from engine.cli.commands import main
from kernels.__main__ import matrix
from pathlib import Path

source, target = sys.argv[1:]
assert main(["quantize", source, target, "--type", "e6_2"]) == 0
assert main(["info", "-m", target]) == 0
assert main(["logits", "-m", target, "--tokens", "5,6,7", "--top", "1"]) == 0
print(matrix())
print(layout_of(target), runs("E6_2"), model_name(Path(target)))
"""


def test_a_row_with_a_decoder_and_a_quantizer_is_a_format(tmp_path: Path) -> None:
    source = tiny.write(tmp_path / "source.gguf", format="F32")
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, source, tmp_path / "Small-E6_2.gguf"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    for said in ("16 E6_2", "| E6_2 | 6.5 | 6-bit, groups of 32 | reference | reference |"):
        assert said in ran.stdout
    assert ran.stdout.splitlines()[-1] == "E6_2 True Small"
