"""Dispatch: the reference has everything, backends are preferred, and falling back is logged."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import dispatch, ops, reference
from kernels.dispatch import Dispatch
from kernels.formats import FORMATS

REPOSITORY = Path(__file__).parents[2]


def fast_linear() -> str:
    return "fast"


@pytest.fixture(autouse=True)
def no_choice_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELS", raising=False)


@pytest.fixture
def two_backends() -> Dispatch:
    """A backend with one kernel, preferred, before the reference."""
    return Dispatch({"fast": {("linear", "Q4_0"): fast_linear}, "reference": reference.KERNELS})


@pytest.mark.parametrize("op", ["prepare", "linear", "embed"])
def test_the_reference_reads_every_format(op: str) -> None:
    with ops.only("reference"):
        for format in FORMATS.values():
            assert dispatch.find(op, format.name) is getattr(reference, op)


@pytest.mark.parametrize("op", ["rms_norm", "rope", "attention", "gated", "softcap"])
def test_the_reference_has_every_other_op(op: str) -> None:
    with ops.only("reference"):
        assert dispatch.find(op) is getattr(reference, op)


@pytest.mark.parametrize(("op", "format"), [("linear", "I8"), ("fly", "F32")])
def test_refuses_what_not_even_the_reference_has(op: str, format: str) -> None:
    with pytest.raises(ValueError, match=f"{op}: no kernel for {format} weights"):
        dispatch.find(op, format)


def test_prefers_the_first_backend(two_backends: Dispatch) -> None:
    assert two_backends.find("linear", "Q4_0") is fast_linear


def test_falls_back_to_the_reference_and_says_so_once(
    two_backends: Dispatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert two_backends.find("linear", "Q8_0") is reference.linear
    assert caplog.messages == ["linear Q8_0: fast lacks it, reference runs"]


def test_only_forces_a_backend_until_its_block_ends(two_backends: Dispatch) -> None:
    assert two_backends.find("linear", "Q4_0") is fast_linear
    with two_backends.only("reference"):
        assert two_backends.find("linear", "Q4_0") is reference.linear
        with two_backends.only("fast"):
            assert two_backends.find("linear", "Q4_0") is fast_linear
        assert two_backends.find("linear", "Q4_0") is reference.linear
    assert two_backends.find("linear", "Q4_0") is fast_linear


def test_only_ends_when_its_block_raises(two_backends: Dispatch) -> None:
    with pytest.raises(KeyError), two_backends.only("reference"):
        raise KeyError
    assert two_backends.find("linear", "Q4_0") is fast_linear


def test_the_environment_forces_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELS", "reference")
    backends = {"fast": {("linear", "Q4_0"): fast_linear}, "reference": reference.KERNELS}
    assert Dispatch(backends).find("linear", "Q4_0") is reference.linear


def test_an_unknown_backend_is_refused_with_those_present(
    two_backends: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "There is no backend 'quantum'; this build has: fast, reference."
    with pytest.raises(ValueError, match=words), two_backends.only("quantum"):
        pass
    monkeypatch.setenv("KERNELS", "quantum")
    with pytest.raises(ValueError, match=words):
        two_backends.find("linear", "Q4_0")


def test_in_use_names_the_backend_of_every_op(
    two_backends: Dispatch, caplog: pytest.LogCaptureFixture
) -> None:
    used = two_backends.in_use(["Q4_0", "F32", "Q4_0"])
    assert not caplog.messages  # asking is not falling back
    assert used == {
        "linear Q4_0": "fast",
        "linear F32": "reference",
        "embed Q4_0": "reference",
        "embed F32": "reference",
        "rms_norm": "reference",
        "layer_norm": "reference",
        "rope": "reference",
        "attention": "reference",
        "gated": "reference",
        "route": "reference",
        "softcap": "reference",
    }
    with ops.only("reference"):
        assert set(ops.in_use(["Q4_1"]).values()) == {"reference"}


def test_people_read_more_than_the_name_of_a_backend() -> None:
    backends = {"fast": {("linear", "Q4_0"): fast_linear}, "reference": reference.KERNELS}
    used = Dispatch(backends, {"fast": lambda: "fast on two wheels"}).in_use(["Q4_0", "Q8_0"])
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
    assert set(dispatch.OTHER_OPS) <= set(first)
    # What is supported, whether or not this machine has the library.
    assert "| Q1_0 | 1.125 | 1-bit, groups of 128 | cpu, reference | cpu, reference |" in printed
    assert "| attention | cpu, reference |" in printed
