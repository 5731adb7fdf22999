"""Backends: the reference has everything, others fall back to it, several work side by side."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernels.backend import reference
from kernels.backend.backend import OTHER_OPS, Backend
from kernels.backends import BACKENDS, NAMES, choose
from kernels.ops import Softcap
from kernels.weights.formats import FORMATS, by_name
from kernels.weights.weight import Weight

REFERENCE = BACKENDS["reference"]
REPOSITORY = Path(__file__).parents[2]


def fast_linear() -> str:
    return "fast"


@pytest.fixture(autouse=True)
def no_choice_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELS", raising=False)


def fast(words: Callable[[], str] | None = None) -> Backend:
    """A backend with one kernel."""
    return Backend("fast", {("linear", "Q4_0"): fast_linear}, words)


@pytest.mark.parametrize("op", ["prepare", "linear", "embed"])
def test_the_reference_reads_every_format(op: str) -> None:
    for format in FORMATS.values():
        assert REFERENCE.ops.find(op, format.name) is getattr(reference, op)


@pytest.mark.parametrize("op", OTHER_OPS)
def test_the_reference_has_every_other_op(op: str) -> None:
    assert REFERENCE.ops.find(op) is getattr(reference, op)


@pytest.mark.parametrize(("op", "format"), [("linear", "I8"), ("fly", "F32")])
def test_refuses_what_not_even_the_reference_has(op: str, format: str) -> None:
    with pytest.raises(ValueError, match=f"{op}: no kernel for {format} weights"):
        fast().ops.find(op, format)


def test_falls_back_to_the_reference_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    backend = fast()
    assert backend.ops.find("linear", "Q4_0") is fast_linear
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert backend.ops.find("linear", "Q8_0") is reference.linear
    assert caplog.messages == ["linear Q8_0: fast lacks it, reference runs"]


def test_excluded_ops_run_on_the_reference_for_these_ops_alone() -> None:
    table = {("rope", "F32"): fast_linear, ("rope_bytes", "F32"): fast_linear}
    ops = Backend("fast", table).ops
    assert ops.without(["rope"]).find("rope") is reference.rope
    assert ops.find("rope") is fast_linear


def test_an_observer_sees_the_ops_it_was_given_alone() -> None:
    seen: list[str] = []
    ops = REFERENCE.ops
    x, one = torch.ones(3, 1), Softcap("x", 2.0)
    ops.watched(lambda op, operands, result: seen.append(op)).in_place(one, x, x)
    ops.in_place(one, x, x)
    assert seen == ["softcap"]


def test_backends_are_used_side_by_side(random: torch.Generator) -> None:
    """Each prepares weights in its layout and runs its products; neither changes the other."""
    rows = Weight(torch.randn(20, 64, generator=random), by_name("F32"), (20, 64))
    x = torch.randn(3, 64, generator=random)
    prepared = {name: backend.prepare(rows) for name, backend in BACKENDS.items()}
    for _ in range(2):
        for name, backend in BACKENDS.items():
            found = backend.ops.linear(x, prepared[name])
            torch.testing.assert_close(found, x @ rows.data.T, rtol=1e-5, atol=1e-5)
    if "cpu" in BACKENDS:
        with pytest.raises(ValueError, match="is packed for the backend 'cpu'"):
            REFERENCE.ops.linear(x, prepared["cpu"])


def test_the_environment_chooses_a_backend_where_no_name_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert choose() is next(iter(BACKENDS.values()))
    monkeypatch.setenv("KERNELS", "reference")
    assert choose() is REFERENCE
    for name, backend in BACKENDS.items():
        assert choose(name) is backend


def test_an_unknown_backend_is_refused_with_those_present(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = f"There is no backend 'quantum'; this build has: {', '.join(NAMES)}."
    with pytest.raises(ValueError, match=words):
        choose("quantum")
    monkeypatch.setenv("KERNELS", "quantum")
    with pytest.raises(ValueError, match=words):
        choose()


def test_in_use_names_the_backend_of_every_op(caplog: pytest.LogCaptureFixture) -> None:
    used = fast().in_use(["Q4_0", "F32", "Q4_0"])
    assert not caplog.messages  # asking is not falling back
    assert used == {
        "linear Q4_0": "fast",
        "linear F32": "reference",
        "embed Q4_0": "reference",
        "embed F32": "reference",
        **dict.fromkeys(OTHER_OPS, "reference"),
    }
    assert set(REFERENCE.in_use(["Q4_1"]).values()) == {"reference"}


def test_people_read_more_than_the_name_of_a_backend() -> None:
    used = fast(lambda: "fast on two wheels").in_use(["Q4_0", "Q8_0"])
    assert used["linear Q4_0"] == "fast on two wheels"
    assert used["linear Q8_0"] == "reference"


def test_the_matrix_lists_every_format_and_op() -> None:
    environment = os.environ | {"PYTHONUTF8": "1"}
    command = [sys.executable, "-W", "error", "-m", "kernels"]
    printed = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    ).stdout
    first = [line.split(" | ")[0].removeprefix("| ") for line in printed.splitlines()]
    assert {row.name for row in FORMATS.values()} <= set(first)
    assert set(OTHER_OPS) <= set(first)
    # What is supported, whether or not this machine has the library.
    every = "cpu, reference, cuda, metal"
    assert f"| Q1_0 | 1.125 | 1-bit, groups of 128 | {every} | {every} |" in printed
    assert f"| attention | {every} |" in printed
    assert "| rope | cpu, reference |" in printed
