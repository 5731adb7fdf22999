"""Ahead-of-time compilation: the machine code of recorded launches, for GPUs that are not here.

Inside `recorded_launches` kernels do not run: each launch is noted with its types, and `compiled`
makes the code of one for a GPU. Tensors may be on torch's meta device, so a launch of any size
takes no memory.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource
from triton.runtime import JITFunction

_TYPES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int8: "i8",
    torch.uint8: "u8",
}
_OPTIONS = ("num_warps", "num_stages", "maxnreg", "enable_fp_fusion")


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: the kernel, the types of its operands and its constants."""

    kernel: Any
    signature: dict[str, Any]
    constants: dict[tuple[int, ...], Any]
    attributes: dict[tuple[int, ...], Any]
    options: dict[str, Any]
    grid: tuple[int, ...]

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.__name__


@dataclass(frozen=True, slots=True)
class Code:
    """Machine code of a launch for one GPU, and what it takes there."""

    registers: int
    spilled: int  # bytes of registers that are stored to memory and loaded again
    shared: int  # bytes
    ptx: str


@contextmanager
def recorded_launches() -> Iterator[list[Launch]]:
    """Note launches instead of running kernels."""
    found: list[Launch] = []
    before = JITFunction.run

    def run(self: Any, *operands: Any, grid: Any, warmup: bool, **named: Any) -> None:
        del warmup
        found.append(_launch(self, operands, named, grid))

    JITFunction.run = run  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield found
    finally:
        JITFunction.run = before


def compiled(launch: Launch, capability: int) -> Code:
    """The code of a launch for GPUs of a compute capability such as 90."""
    source = ASTSource(launch.kernel, launch.signature, launch.constants, launch.attributes)
    made = triton.compile(source, GPUTarget("cuda", capability, 32), launch.options)
    registers, spilled = _examined(made.asm["ptx"], capability)
    return Code(registers, spilled, made.metadata.shared, made.asm["ptx"])


def _launch(kernel: Any, operands: tuple[Any, ...], named: dict[str, Any], grid: Any) -> Launch:
    options = {key: named.pop(key) for key in _OPTIONS if key in named}
    names = [one.name for one in kernel.params]
    values = dict(zip(names, operands, strict=False)) | named
    constant = {one.name for one in kernel.params if one.is_constexpr}
    signature: dict[str, Any] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for at, name in enumerate(names):
        if name in constant:
            signature[name], constants[at,] = "constexpr", values[name]
        else:
            signature[name] = _type((at,), values[name], constants, attributes)
    return Launch(kernel, signature, constants, attributes, options, tuple(grid))


def _type(
    at: tuple[int, ...], value: Any, constants: dict[Any, Any], attributes: dict[Any, Any]
) -> Any:
    """The type of an operand, as Triton specializes it."""
    if isinstance(value, tuple):
        return tuple(
            _type((*at, number), one, constants, attributes) for number, one in enumerate(value)
        )
    if isinstance(value, Tensor):
        attributes[at] = [["tt.divisibility", 16]]
        return f"*{_TYPES[value.dtype]}"
    if isinstance(value, float):
        return "fp32"
    assert isinstance(value, int), value
    if value == 1:
        constants[at] = 1
        return "constexpr"
    if value % 16 == 0:
        attributes[at] = [["tt.divisibility", 16]]
    return "i32" if value < 1 << 31 else "i64"


def _examined(ptx: str, capability: int) -> tuple[int, int]:
    """Registers and spilled bytes that the assembler reports."""
    tool = get_ptxas(capability).path
    target = re.search(r"^\.target (\w+)", ptx, re.M)
    assert target, "every assembly text names its target"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(ptx, encoding="utf-8")
        command = [
            tool,
            "-v",
            "--regAllocOptLevel=2",
            "--gpu-name",
            target[1],
            str(file),
            "-o",
            f"{file}.cubin",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    registers = re.search(r"Used (\d+) registers", done.stderr)
    assert registers, done.stderr + done.stdout
    spilled = re.findall(r"(\d+) bytes spill (?:stores|loads)", done.stderr)
    return int(registers[1]), sum(map(int, spilled))
