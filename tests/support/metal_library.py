"""A fake of `torch.mps.compile_shader`: compiles Metal Shading Language with g++, for tests.

The same text that a Mac compiles is compiled as C++, with the headers of the folder `metal`, after
a small change of the text: attributes in [[ ]] are removed, parameters with an attribute get their
value from the launch, and arrays of thread groups become static. Lines keep their numbers. A call
is checked more strictly than torch does: types of tensors and numbers, their count, and access
beyond a tensor (see `metal_memory`).

Not understood: kernels made by macros or left out by `#if`, and `[[host_name]]`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from metal_memory import GuardedArguments

_FOLDER = Path(__file__).parent / "metal"
_BUILD = Path(__file__).parents[2] / "build" / "metal"
# As Metal: no float64, no fused multiply-add that the text does not ask for.
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-w", "-ffp-contract=off", "-fno-strict-aliasing")
_MOST_THREADS = 1024  # of a group
_MOST_BUFFERS = 31
_KEPT_SECONDS = 7 * 24 * 3600  # of a library that no run has used

_LOCK = threading.Lock()  # fibers of one kernel at a time, as of a queue of a GPU
_MEMORY = GuardedArguments()

_THREAD_VALUES = {
    "thread_position_in_grid": "grid",
    "thread_position_in_threadgroup": "local",
    "threadgroup_position_in_grid": "group",
    "threads_per_grid": "threads",
    "threads_per_threadgroup": "group_size",
    "threadgroups_per_grid": "groups",
    "thread_index_in_threadgroup": "index",
    "thread_index_in_simdgroup": "lane",
    "simdgroup_index_in_threadgroup": "simdgroup",
    "simdgroups_per_threadgroup": "simdgroups",
    "threads_per_simdgroup": "32",
}
_DIMENSIONS = ("grid", "local", "group", "threads", "group_size", "groups")
_IDS = """
struct ShimIds {
  uint grid[3], local[3], group[3];
  uint threads[3], group_size[3], groups[3];
  uint index, lane, simdgroup, simdgroups;
};
"""
# Types of tensors that a pointer to a type may be given; vectors by the type of their elements.
_DTYPES = {
    "float": (torch.float32,),
    "half": (torch.float16,),
    "long": (torch.int64,),
    "ulong": (torch.int64,),
    "int": (torch.int32,),
    "uint": (torch.int32, torch.uint32),
    "short": (torch.int16,),
    "ushort": (torch.int16, torch.uint16, torch.float16, torch.bfloat16),
    "char": (torch.int8, torch.uint8),
    "uchar": (torch.uint8, torch.int8),
    "bool": (torch.bool,),
    "atomic_uint": (torch.int32,),
    "atomic_int": (torch.int32,),
    "atomic_float": (torch.float32,),
}
_C_TYPES = {
    "float": ctypes.c_float,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "int16": ctypes.c_int16,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
}
# Types of a number that a parameter may read: little-endian, so an int64 is also its low half.
_READS = {
    "float": ("float",),
    "int64": ("long", "ulong", "int", "uint"),
    "int32": ("int", "uint"),
    "int16": ("short", "ushort"),
    "int8": ("char",),
    "uint8": ("uchar", "bool"),
}


@dataclass(frozen=True)
class _Parameter:
    """A parameter of a kernel that a call gives."""

    name: str
    type: str  # without address space, const, * and &
    is_pointer: bool
    space: str  # device or constant

    @property
    def element(self) -> str:
        return re.sub(r"[234]$", "", self.type) if self.type[:-1] in _DTYPES else self.type


class Kernel:
    """A kernel of a library: call it as one of torch's."""

    def __init__(self, name: str, parameters: Sequence[_Parameter], library: ctypes.CDLL) -> None:
        self.name = name
        self._parameters = parameters
        self._call = getattr(library, f"shim_call_{name}")
        self._run = library.shim_run
        self._run.restype = ctypes.c_char_p

    max_threads_per_threadgroup = _MOST_THREADS
    thread_execution_width = 32

    def __call__(
        self,
        *args: Tensor | float | Sequence[float],
        threads: int | Sequence[int] | None = None,
        group_size: int | Sequence[int] | None = None,
        arg_casts: str | dict[int, str] | None = None,
    ) -> None:
        """Run the kernel for `threads` in groups of `group_size`; threads of one tensor's elements."""
        if len(args) != len(self._parameters):
            raise TypeError(
                f"{self.name}: {len(args)} arguments for {len(self._parameters)} parameters"
            )
        if len(args) > _MOST_BUFFERS:
            raise TypeError(
                f"{self.name}: {len(args)} arguments; Metal has {_MOST_BUFFERS} buffers"
            )
        casts = dict.fromkeys(range(len(args)), arg_casts) if isinstance(arg_casts, str) else {}
        casts |= arg_casts if isinstance(arg_casts, dict) else {}
        numbers: dict[int, ctypes.Array[ctypes._SimpleCData[object]]] = {}
        for index, (arg, parameter) in enumerate(zip(args, self._parameters, strict=True)):
            if isinstance(arg, Tensor):
                self._check(arg, parameter)
                threads = arg.numel() if threads is None else threads
                continue
            numbers[index] = self._numbers(arg, parameter, casts.get(index) or "")
        if threads is None:
            raise ValueError(f"{self.name}: the number of threads is not given")
        grid = _sizes(threads)
        group = _sizes(group_size) if group_size is not None else (min(_MOST_THREADS, grid[0]),)
        if group_size is not None and len(group) != len(grid):
            raise ValueError(f"{self.name}: threads {grid} and groups {group} differ in dimension")
        grid, group = (*grid, 1, 1)[:3], (*group, 1, 1)[:3]
        if min(*grid, *group) < 1 or group[0] * group[1] * group[2] > _MOST_THREADS:
            raise ValueError(f"{self.name}: {grid} threads in groups of {group}")
        with _LOCK:
            places = (ctypes.c_void_p * max(len(args), 1))()
            for index, arg in enumerate(args):
                found = _MEMORY.place(arg) if isinstance(arg, Tensor) else 0
                places[index] = found or ctypes.addressof(numbers[index])
            sizes = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*group)
            failure = self._run(self._call, places, *sizes).decode()
            if failure:
                _MEMORY.forget()
            elif not _MEMORY.collect():
                failure = "a thread writes beside a tensor"
        if failure:
            raise RuntimeError(f"{self.name}: {failure}")

    def _check(self, tensor: Tensor, parameter: _Parameter) -> None:
        where = f"{self.name}: {parameter.name}"
        if tensor.device.type != "cpu":
            raise TypeError(f"{where} is on {tensor.device}")
        if parameter.element in _DTYPES and tensor.dtype not in _DTYPES[parameter.element]:
            raise TypeError(f"{where} is of {tensor.dtype}, not {parameter.type}")
        width = int(parameter.type[-1]) if parameter.element != parameter.type else 1
        if tensor.data_ptr() % ((4 if width == 3 else width) * tensor.element_size()):
            raise TypeError(f"{where} is not aligned for {parameter.type}")

    def _numbers(
        self, arg: float | Sequence[float], parameter: _Parameter, cast: str
    ) -> ctypes.Array[ctypes._SimpleCData[object]]:
        where = f"{self.name}: {parameter.name}"
        values = [arg] if isinstance(arg, int | float) else list(arg)
        if parameter.space != "constant" or not values:
            raise TypeError(f"{where} takes a tensor, not {arg!r}")
        if not all(isinstance(value, type(values[0])) for value in values):
            raise TypeError(f"{where}: numbers of several types, {values}")
        if cast not in ("", "int32", "int16", "int8", "uint8"):
            raise ValueError(f"{where}: torch has no cast '{cast}', or the stand-in has not")
        kind = cast or ("float" if isinstance(values[0], float) else "int64")
        if parameter.element not in _READS[kind] or (
            len(values) > 1 and parameter.element != _READS[kind][0] and kind == "int64"
        ):
            raise TypeError(f"{where} is of {parameter.type}, not {kind} {arg!r}")
        number = float if kind == "float" else int
        return (_C_TYPES[kind] * len(values))(*map(number, values))


class Library:
    """The kernels of a compiled text, as attributes."""

    def __init__(self, kernels: dict[str, Kernel]) -> None:
        self._kernels = kernels

    def __getattr__(self, name: str) -> Kernel:
        try:
            return self.__dict__["_kernels"][name]
        except KeyError:
            raise AttributeError(f"the text has no kernel '{name}'") from None

    def __dir__(self) -> list[str]:
        return sorted(self._kernels)


def compile_shader(source: str) -> Library:
    """Compile Metal Shading Language. Raises RuntimeError with what the compiler says."""
    text = _without_comments(source)
    found = _kernels(text)
    _check_pointers(text)
    lines = ['#line 1 "shader"', _plain(text), _IDS]
    for name, parameters in found.items():
        lines.append(_caller(name, parameters))
    library = ctypes.CDLL(str(_compiled("\n".join(lines))))
    return Library(
        {
            name: Kernel(name, [one for one in each if isinstance(one, _Parameter)], library)
            for name, each in found.items()
        }
    )


def install(patch: pytest.MonkeyPatch) -> None:
    """Let torch have a Metal device that compiles with this module; tensors stay where they are."""
    patch.setattr("torch.mps.compile_shader", compile_shader)
    patch.setattr("torch.backends.mps.is_built", lambda: True)
    patch.setattr("torch.backends.mps.is_available", lambda: True)


def _sizes(given: int | Sequence[int]) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


# --- text -----------------------------------------------------------------------------------------


def _without_comments(source: str) -> str:
    """The text with spaces for comments; lines stay."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    return re.sub(r"//[^\n]*|/\*.*?\*/", blank, source, flags=re.DOTALL)


def _kernels(text: str) -> dict[str, list[_Parameter | tuple[str, str]]]:
    """Parameters of all kernels; of one with an attribute, its type and the attribute."""
    made: dict[str, list[_Parameter | tuple[str, str]]] = {}
    for found in re.finditer(r"\bkernel\s+(?:\[\[.*?\]\]\s*)?void\s+(\w+)\s*\(", text):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        made[found[1]] = [_parameter(one) for one in _split(text[found.end() : end - 1])]
    return made


def _split(text: str) -> list[str]:
    """Parameters between commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


def _parameter(text: str) -> _Parameter | tuple[str, str]:
    attribute = re.search(r"\[\[\s*(\w+).*?\]\]", text)
    plain = re.sub(r"\[\[.*?\]\]", "", text).strip()
    words = re.fullmatch(r"(.*?)([*&]?)\s*(\w+)", plain, re.DOTALL)
    assert words, text
    if attribute and attribute[1] in _THREAD_VALUES:
        return " ".join(words[1].split()), attribute[1]
    if attribute and attribute[1] != "buffer":
        raise RuntimeError(f"attribute '{attribute[1]}' is not known: {text.strip()}")
    space = re.search(r"\b(device|constant)\b", words[1])
    if not space or not words[2]:
        raise RuntimeError(f"a parameter needs an address space and * or &: {text.strip()}")
    type = " ".join(re.sub(r"\b(device|constant|const)\b", "", words[1]).split())
    return _Parameter(words[3], type, words[2] == "*", space[1])


_DECLARED = re.compile(r"\b(?:struct|typename|class)\s+(\w+)|\btypedef\b[^;]*?(\w+)\s*;")
_SPACE = re.compile(r"\b(?:device|constant|threadgroup|thread)\s+(?:const\s+|volatile\s+)*$")


def _check_pointers(text: str) -> None:
    """Raises RuntimeError for a pointer or a reference without address space, as Metal does."""
    vectors = (f"{name}{width}" for name in _DTYPES for width in "234")
    declared = (name for pair in _DECLARED.findall(text) for name in pair if name)
    types = "|".join(sorted({*_DTYPES, *vectors, *declared, "void"}, key=len, reverse=True))
    for found in re.finditer(rf"\b(?:{types})(?:<[\w, ]*>)?\s*[*&]\s*(?=[\w)>])", text):
        if not _SPACE.search(text[max(found.start() - 80, 0) : found.start()]):
            line = text.count("\n", 0, found.start()) + 1
            raise RuntimeError(f"shader:{line}: a pointer without address space: '{found[0]}'")


_SHARED = re.compile(r"(^|[;{}])(\s*)threadgroup\s+([\w:<>, ]+?)\s+(\w+)((?:\s*\[[^\];]*\])*)\s*;")


def _plain(text: str) -> str:
    """The text as C++: without attributes, arrays of thread groups static."""
    # One fiber registers an array, the first that comes: there is no other thread.
    shared = (
        r"\1\2static \3 \4\5; static bool shim_\4 = (shim_share(&\4, sizeof \4), true); "
        r"(void)shim_\4;"
    )
    text = _SHARED.sub(shared, text)
    text = _SHARED.sub(shared, text)  # of declarations that follow one another
    text = re.sub(r"\[\[[^\[\]]*(?:\([^)]*\))?[^\[\]]*\]\]", "", text)
    return re.sub(r"\bkernel(\s+void)", r"static\1", text)


def _caller(name: str, parameters: Sequence[_Parameter | tuple[str, str]]) -> str:
    """A function that calls a kernel with arguments by their addresses."""
    given: list[str] = []
    index = 0
    for one in parameters:
        if isinstance(one, _Parameter):
            star = "" if one.is_pointer else "*"
            given.append(f"{star}(({one.type}*)a[{index}])")
            index += 1
            continue
        type, value = one[0], _THREAD_VALUES[one[1]]
        if value not in _DIMENSIONS:
            given.append(f"{type}({value if value == '32' else 't->' + value})")
            continue
        count = int(type[-1]) if type[-1] in "23" else 1
        each = ", ".join(f"t->{value}[{i}]" for i in range(count))
        given.append(f"{type}({each})")
    return (
        f'extern "C" void shim_call_{name}(void *const *a, const ShimIds *t) '
        f"{{ {name}({', '.join(given)}); }}"
    )


# --- compiler -------------------------------------------------------------------------------------


def _compiled(text: str) -> Path:
    """The shared library of a text, of an earlier run if there is one."""
    runtime = _runtime()
    name = hashlib.sha256((text + runtime.name).encode()).hexdigest()[:32]
    target = _BUILD / f"{name}.so"
    if target.exists():
        target.touch()
    else:
        # -Wl,-Bsymbolic: every library has fibers of its own.
        command = (*_FLAGS, "-shared", f"-I{_FOLDER}", "-x", "c++", "-", "-x", "none", str(runtime))
        _run_compiler((*command, "-Wl,-Bsymbolic"), text, target)
    return target


@cache
def _runtime() -> Path:
    """The object file of the fibers; named after all that libraries depend on."""
    for old in _BUILD.glob("*"):
        with suppress(FileNotFoundError):  # another process may remove it
            if old.stat().st_mtime < time.time() - _KEPT_SECONDS:
                old.unlink()
    files = [path.read_bytes() for path in sorted(_FOLDER.iterdir()) if path.is_file()]
    name = hashlib.sha256(b"\0".join([*files, _compiler().encode(), repr(_FLAGS).encode()]))
    target = _BUILD / f"fibers-{name.hexdigest()[:16]}.o"
    if not target.exists():
        # A check of longjmp's glibc fails on stacks that it does not know.
        command = (*_FLAGS, "-U_FORTIFY_SOURCE", "-fcf-protection=none", "-c")
        if os.uname().machine not in ("x86_64", "i686"):
            command = (*_FLAGS, "-U_FORTIFY_SOURCE", "-c")
        _run_compiler((*command, str(_FOLDER / "fibers.cpp")), "", target)
    return target


@cache
def _compiler() -> str:
    """Path and version of the compiler."""
    command = os.environ.get("CXX") or "g++"
    shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    return f"{command}\n{shown.stdout}"


def _run_compiler(options: Sequence[str], text: str, target: Path) -> None:
    _BUILD.mkdir(parents=True, exist_ok=True)
    made = target.with_name(f"{target.name}.{os.getpid()}")
    command = [_compiler().split("\n")[0], *options, "-o", str(made)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the shader does not compile:\n{done.stderr[:4000]}")
    made.replace(target)
