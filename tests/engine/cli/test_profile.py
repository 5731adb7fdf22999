"""`bench --profile` times each operation of a step and of a chunk; times themselves are not tested."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import every_architecture
import tiny
import tiny_encoders
from engine.cli.commands import main
from kernels import backends

needs_cpu = pytest.mark.skipif("cpu" not in backends.BACKENDS, reason="no native kernels here")


def profiled(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> list[dict[str, Any]]:
    command = ["bench", "-m", str(path), "--profile", "-p", "20", "-r", "1", "-c", "64", "--json"]
    assert main([*command, *options]) == 0
    return json.loads(capsys.readouterr().out)["passes"]


def calls(one: dict[str, Any]) -> dict[str, int]:
    return {row["name"]: row["calls"] for row in one["operations"]}


@needs_cpu
def test_each_native_operation_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q8_0", layers=3)
    decode, prefill = profiled(capsys, path, "--backend", "cpu", "-d", "5")
    assert (decode["pass"], decode["tokens"], decode["position"]) == ("decode", 1, 25)
    assert (prefill["pass"], prefill["tokens"], prefill["position"]) == ("prefill", 20, 5)
    layers = {"NORM": 2, "LINEAR": 4, "ROPE": 1, "ATTEND": 1, "QUANTIZE": 2}
    once = {"EMBED": 1, "ANGLES": 1}
    expected = {name: 3 * count for name, count in layers.items()} | once
    expected |= {"NORM": 7, "LINEAR": 13}  # with those of the head
    assert calls(decode) == calls(prefill) == expected
    for one in (decode, prefill):
        assert one["seconds"] > 0
        assert sum(row["seconds"] for row in one["operations"]) > 0
    (linear,) = (row for row in decode["operations"] if row["name"] == "LINEAR")
    by_weights = {row["name"]: row["calls"] for row in linear["weights"]}
    assert by_weights["Q8_0[64x64] Q8_0[32x64] Q8_0[32x64]"] == 3
    assert sum(row["bytes"] for row in linear["weights"]) == linear["bytes"] > 0


def test_each_instruction_is_timed_where_the_program_is_interpreted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny.write(tmp_path / "m.gguf", layers=3)
    decode, prefill = profiled(capsys, path, "--backend", "reference")
    layers = {"Norm": 7, "Linear": 13, "Attend": 3, "Gate": 3, "Add": 6, "Embed": 1}
    assert calls(decode) == calls(prefill) == layers
    assert all(row["seconds"] > 0 for row in decode["operations"])
    (embed,) = (row for row in prefill["operations"] if row["name"] == "Embed")
    assert embed["bytes"] == 20 * 64 * 4  # the rows of the tokens


@needs_cpu
def test_the_parts_of_a_model_on_two_backends_are_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny.write(tmp_path / "m.gguf", layers=3)
    decode, _ = profiled(capsys, path, "--placement", "cpu=2,reference")
    assert (calls(decode)["ATTEND"], calls(decode)["Attend"]) == (2, 1)
    assert calls(decode)["Linear"] == 5


def test_a_profile_of_an_encoder_is_that_of_a_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny_encoders.write(tmp_path / "m.gguf")
    (text,) = profiled(capsys, path, "--backend", "reference")
    assert text["tokens"] == 20
    assert calls(text)["Embed"] == 1


@needs_cpu
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "qwen35moe" else pytest.mark.sweep)
        for name in every_architecture.names()
    ],
)
def test_every_architecture_can_be_timed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = every_architecture.write(name, tmp_path / "m.gguf", context=256, window=32)
    for one in profiled(capsys, path, "--backend", "cpu", "--cache", "q8_0"):
        assert sum(row["seconds"] for row in one["operations"]) > 0


@needs_cpu
def test_operations_with_several_weights_are_told_apart_by_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = every_architecture.write("qwen35moe", tmp_path / "m.gguf", context=256, window=32)
    decode, _ = profiled(capsys, path, "--backend", "cpu")
    counts = {row["name"]: len(row["weights"]) for row in decode["operations"]}
    assert counts["EXPERT_LINEAR"] == 2
    assert counts["EMBED"] == 0  # all with the same
    assert [name for name, count in counts.items() if count == 1] == []


def test_the_table_ends_with_the_sum_and_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tiny.write(tmp_path / "m.gguf"))
    command = ["bench", "-m", path, "--profile", "-p", "8", "-r", "1", "--backend", "reference"]
    assert main(command) == 0
    decode, prefill = capsys.readouterr().out.split("\n\n")[1:]
    assert decode.startswith("decode: one token at position 8\n  operation ")
    assert re.search(r"\n  sum [\d.]+ ms, step [\d.]+ ms$", decode)
    assert re.search(r"\n  sum [\d.]+ ms, chunk [\d.]+ ms\n$", prefill)
    assert re.search(r"^  Linear +9 +[\d,]+ +[\d.]+% +[\d.]+ +[\d.]+$", prefill, re.MULTILINE)
    assert max(map(len, (decode + prefill).splitlines())) <= 110


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--lora", "x.gguf"), "A profile is that of the model alone."),
        (("-p", "0"), "A profile needs at least one prompt token and one repetition."),
        (("-p", "50", "-c", "40"), "The context has 40 tokens."),
    ],
)
def test_options_that_cannot_be_profiled(
    options: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tiny.write(tmp_path / "m.gguf"))
    assert main(["bench", "-m", path, "--profile", "--backend", "reference", *options]) == 1
    assert words in capsys.readouterr().err
