"""The table of the C interface, the headers made from it, and what a compiler makes of that."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from kernels.cpu import build, header, schema
from kernels.ops import Activation
from kernels.states.kv_pages import PAGE_TOKENS

STRUCTS: dict[str, type[ctypes.Structure]] = {
    "nk_weight": schema.NativeWeight,
    "nk_kv_layer": schema.NativeKVLayer,
    "nk_segment": schema.NativeSegment,
    "nk_op": schema.NativeOp,
    "nk_program": schema.NativeProgram,
}


def test_the_headers_are_what_the_tables_make(capsys: pytest.CaptureFixture[str]) -> None:
    assert header.main(["--check"]) == 0, capsys.readouterr().err


def test_a_compiler_sees_the_numbers_and_offsets_that_python_uses(tmp_path: Path) -> None:
    try:
        compiler = build.find_compiler()
    except build.NoCompiler as absent:
        pytest.skip(str(absent))
    lines = [f'#include "{header.HEADER.name}"', f"static_assert(NK_ABI == {schema.ABI});"]
    for enum, (_, prefix) in schema.ENUMS.items():
        lines += [f"static_assert({prefix}{one.name} == {int(one)});" for one in enum]
    for name, struct in STRUCTS.items():
        lines.append(f"static_assert(sizeof({name}) == {ctypes.sizeof(struct)});")
        for field, *_ in struct._fields_:
            offset = getattr(struct, field).offset
            lines.append(f"static_assert(offsetof({name}, {field}) == {offset});")
    assert len(lines) > 60
    source = tmp_path / "agree.cpp"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    flags = "-std=c++17", "-fsyntax-only", "-I", header.HEADER.parent
    ran = subprocess.run(
        [*compiler.command, *flags, source], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_every_activation_has_a_number() -> None:
    numbered = {one.name for one in schema.NativeActivation}
    assert {one.name for one in Activation} == numbered


def test_pages_have_as_many_positions_as_their_definition() -> None:
    assert schema.PAGE_TOKENS == PAGE_TOKENS
