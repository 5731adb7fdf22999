"""Checklist: every instruction is made by a test of the kernels.

That every format has a second decoder, `test_formats.py` checks by their names.
"""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest

from kernels.program import Instruction

TESTS = Path(__file__).parent
# Tested where there are files to read weights from.
ELSEWHERE = {"Fetch": TESTS.parent / "engine" / "loading" / "test_paging.py"}


@pytest.fixture(scope="module")
def text_of_tests() -> str:
    paths = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


@pytest.mark.parametrize("kind", typing.get_args(Instruction), ids=lambda kind: kind.__name__)
def test_an_instruction_is_made_by_a_test_of_the_kernels(kind: type, text_of_tests: str) -> None:
    if kind.__name__ in ELSEWHERE:
        assert ELSEWHERE[kind.__name__].is_file()
        return
    made = re.search(rf"\b{kind.__name__}\(", text_of_tests)
    assert made, f"no test in tests/kernels makes an instruction {kind.__name__}"
