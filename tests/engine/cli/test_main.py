"""Command line: JSON keys, text output, exit status, error messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tiny
from chosen_backend import ops
from engine.cli.commands import main
from kernels import backends


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(tiny.write(tmp_path / "tiny.gguf"))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    """The JSON objects that a subcommand prints."""
    assert main([*arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The single line on stderr of a subcommand that must fail."""
    assert main(arguments) != 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("tokonoma: ")
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    return printed.err


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_an_answer_has_every_key(
    command: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (result,) = run(capsys, command, "-m", model, "-p", "hello", "-n", "5", "--temp", "0")
    assert set(result) == {
        "text", "token_ids", "prompt_tokens", "reused_tokens", "generated_tokens", "finish_reason",
        "prefill_seconds", "decode_seconds", "decode_tokens_per_second", "backend",
        "drafted_tokens", "accepted_tokens", "draft_gain", "forced_tokens", "incomplete", "seed",
        "thought_tokens", "thought_seconds", "thought_budget_reached",
    }  # fmt: skip
    assert len(result["token_ids"]) == result["generated_tokens"] == 5
    assert result["finish_reason"] == "length"
    assert {result["backend"]} == set(ops.in_use(["F32"]).values())


@pytest.mark.parametrize("text", ["none", "2X", "-1G", "0", "nan", "inf", "1e40", "G"])
def test_an_amount_of_memory_that_is_none_is_refused(
    text: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, "complete", "-m", model, "-p", "hello", f"--memory={text}")
    assert line == (f"tokonoma: --memory {text!r} is not an amount of memory. Write 2G or 800M.\n")


@pytest.mark.skipif("cpu" not in backends.BACKENDS, reason="no native kernels here")
def test_a_model_larger_than_its_memory_says_so_and_answers_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"hidden": 512, "head_dim": 128, "ffn": 1_024}
    path = str(tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=12, **sizes))
    command = ("complete", "-m", path, "-p", "hello", "-n", "6", "--temp", "0", "-c", "64")
    (whole,) = run(capsys, *command)
    facts = ("info", "-m", path, "-c", "64", "--cache", "f32")
    (memory,) = (one["memory"] for one in run(capsys, *facts))
    size = str(memory["total_bytes"] - 5_000_000)
    assert main([*command, "--memory", size, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("The model does not fit in memory: ")
    assert printed.err.count("\n") == 1
    assert json.loads(printed.out)["token_ids"] == whole["token_ids"]
    (offloaded,) = (one["memory"] for one in run(capsys, *facts, "--memory", size))
    assert f"{offloaded['offloaded_layers']} of its layers" in printed.err
    assert offloaded["offloaded_bytes"] > 0


def test_a_seed_repeats_an_answer(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("complete", "-m", model, "-p", "hello", "-n", "20", "--temp", "1", "--seed", "4")
    assert run(capsys, *options)[0]["token_ids"] == run(capsys, *options)[0]["token_ids"]


def test_a_system_prompt_is_part_of_the_prompt(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("chat", "-m", model, "-p", "hello", "-n", "1")
    (plain,), (system,) = run(capsys, *options), run(capsys, *options, "--system", "Be brief.")
    assert system["prompt_tokens"] > plain["prompt_tokens"]


def test_tokenize_a_text_a_file_and_a_batch(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "hello <|im_end|> 你好"
    (file := tmp_path / "text.txt").write_text(text, encoding="utf-8")
    (batch := tmp_path / "batch.json").write_text(json.dumps([text, "", "x"]), encoding="utf-8")
    (one,) = run(capsys, "tokenize", "-m", model, "-p", text)
    assert run(capsys, "tokenize", "-m", model, "-f", str(file)) == [one]
    rows = run(capsys, "tokenize", "-m", model, "--batch", str(batch))
    assert rows[0] == one
    assert len(rows) == 3
    (plain,) = run(capsys, "tokenize", "-m", model, "-p", text, "--no-bos", "--no-parse-special")
    assert len(plain["token_ids"]) > len(one["token_ids"])
    assert len(one["pieces"]) == len(one["token_ids"])


def test_logits_are_sorted_and_complete_with_top_0(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (few,) = run(capsys, "logits", "-m", model, "--tokens", "5,6,7", "--top", "4")
    (row,) = few["positions"]
    assert row["position"] == 2
    assert len(row["token_ids"]) == 4
    assert row["logits"] == sorted(row["logits"], reverse=True)
    (whole,) = run(capsys, "logits", "-m", model, "--tokens", "5,6,7", "--top", "0", "--all")
    assert [entry["position"] for entry in whole["positions"]] == [0, 1, 2]
    ids = whole["positions"][2]["token_ids"]
    assert sorted(ids) == list(range(len(ids)))
    assert ids[:4] == row["token_ids"]
    (named,) = run(
        capsys, "logits", "-m", model, "--tokens", "5,6,7", "--top", "0", "--positions", "2,0"
    )
    for found, expected in zip(named["positions"], (2, 0), strict=True):
        assert found["position"] == expected
        assert found["token_ids"][:3] == whole["positions"][expected]["token_ids"][:3]
        assert found["logits"] == pytest.approx(whole["positions"][expected]["logits"], abs=1e-4)


def test_perplexity_counts_half_of_each_window(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "text.txt").write_text("hello world " * 60, encoding="utf-8")
    (result,) = run(capsys, "perplexity", "-m", model, "-f", str(file), "-c", "32")
    (tokens,) = run(capsys, "tokenize", "-m", model, "-f", str(file))
    assert result["tokens"] == len(tokens["token_ids"]) // 32 * 15
    assert result["perplexity"] > 1


def test_info_reports_architecture_formats_and_memory(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (facts,) = run(capsys, "info", "-m", model, "--backend", "reference")
    assert {"architecture", "formats", "parameters", "context", "memory", "kernels"} <= set(facts)
    assert facts["memory"]["fits"] is True
    assert facts["formats"][0]["format"] == "F32"
    assert facts["kernels"]["linear F32"] == "reference"


@pytest.mark.skipif("cpu" not in ops.BACKENDS, reason="no native kernels here")
def test_info_names_formats_without_a_kernel(
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = str(tiny.write(tmp_path / "m.gguf", format="IQ1_S"))
    (facts,) = run(capsys, "info", "-m", path)
    slow = {slow["part"]: slow["reason"] for slow in facts["slow"]}
    assert slow == {"linear IQ1_S": "no_kernel", "embed IQ1_S": "no_kernel"}
    (facts,) = run(capsys, "info", "-m", path, "--backend", "reference")
    assert facts["slow"] == []  # the reference was chosen explicitly
    assert main(["info", "-m", model]) == 0
    assert "slow: nothing\n" in capsys.readouterr().out


def test_layers_are_placed_on_several_backends(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    split = ("--placement", "reference=1,torch:cpu")
    (facts,) = run(capsys, "info", "-m", model, *split)
    assert facts["placement"] == "layers 1: reference, 2: torch cpu"
    assert facts["kernels"]["linear F32"] == "reference + torch cpu"
    found, wanted = (
        run(capsys, "logits", "-m", model, "--tokens", "5,6,7", "--top", "4", *options)[0]
        for options in (split, ("--backend", "reference"))
    )
    for one, other in zip(found["positions"], wanted["positions"], strict=True):
        assert one["token_ids"] == other["token_ids"]
        assert one["logits"] == pytest.approx(other["logits"], abs=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--placement", "reference=one"), "is not a list of backends and layers"),
        (("--placement", "=3"), "is not a list of backends and layers"),
        (("--placement", "reference=9999999"), "is not a list of backends and layers"),
        (("--placement", "reference=3"), "do not divide the 2 layers"),
        (("--placement", "quantum"), "There is no backend 'quantum'"),
        (("--backend", "quantum"), "There is no backend 'quantum'"),
        (("--backend", "torch:quantum"), "torch has no device 'quantum'"),
    ],
)
def test_wrong_placements_are_refused(
    options: tuple[str, str], words: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "-m", model, *options]) == 1
    assert words in capsys.readouterr().err


def test_a_device_that_is_not_there_is_said(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = "This computer has no device 'cuda:99'."
    (facts,) = run(capsys, "info", "-m", model, "--device", "cuda:99")
    assert facts["not_as_asked"] == said
    assert main(["complete", "-m", model, "-p", "a", "-n", "1", "--device", "cuda:99"]) == 0
    assert f"{said} The model runs on the processor." in capsys.readouterr().err


def test_bench_has_every_key(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = run(capsys, "bench", "-m", model, "-p", "16", "-n", "4", "-d", "8", "-r", "1")
    assert set(result) == {
        "model", "prefill_tokens_per_second", "decode_tokens_per_second", "gigabytes_per_second",
        "bandwidth_share", "read_bandwidth_gigabytes_per_second", "kernels", "threads", "cache",
        "prompt_tokens", "generated_tokens", "depth",
    }  # fmt: skip
    assert result["decode_tokens_per_second"] > 0
    assert result["cache"] == "q8_0"
    share = result["gigabytes_per_second"] / result["read_bandwidth_gigabytes_per_second"]
    assert result["bandwidth_share"] == pytest.approx(share)


def test_bench_measures_drafts_of_a_text_that_is_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny.write(tmp_path / "long.gguf", context=4096)
    short = ("bench", "-m", str(path), "-p", "16", "-n", "40", "-r", "1", "--ngram")
    assert "needs a context" in refused(capsys, *short)
    (result,) = run(capsys, *short, "-c", "4000")
    assert 0 < result["ngram_tokens"] <= 40
    assert 0 <= result["accepted_tokens"] <= result["drafted_tokens"]
    assert result["ngram_tokens_per_second"] > 0
    assert result["ngram_gain"] > 0


def test_bandwidth_is_measured_before_and_after_each_decode(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([1e9, 3e9, 10e9, 20e9, 4e9, 6e9])  # before and after each of three: 2, 15, 5
    monkeypatch.setattr(backends.choose(), "read_bandwidth", lambda _: next(found))
    (result,) = run(capsys, "bench", "-m", model, "-p", "4", "-n", "2", "-r", "3")
    assert result["read_bandwidth_gigabytes_per_second"] == 5.0
    assert next(found, None) is None


@pytest.mark.sweep
@pytest.mark.parametrize(("prompt", "generated", "depth"), [(1, 1, 0), (3, 9, 0), (9, 1, 30)])
def test_bench_supports_any_lengths(
    prompt: int, generated: int, depth: int, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = ("-p", str(prompt), "-n", str(generated), "-d", str(depth))
    (result,) = run(capsys, "bench", "-m", model, *lengths, "-r", "2", "-t", "1")
    assert (result["prompt_tokens"], result["generated_tokens"]) == (prompt, generated)
    assert (result["depth"], result["threads"]) == (depth, 1)
    assert result["prefill_tokens_per_second"] > 0


@pytest.mark.parametrize(
    "command",
    [
        ("chat", "-p", "hello", "-n", "2", "--temp", "0"),  # a sampled answer may be a space
        ("tokenize", "-p", "hello"),
        ("logits", "-p", "hello"),
        ("info",),
        ("bench", "-p", "4", "-n", "2", "-r", "1"),
    ],
)
def test_without_json_text_is_printed(
    command: tuple[str, ...], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "-m", model]) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("chat", "-m", "nowhere.gguf", "-p", "x"), "nowhere.gguf"),
        (("chat", "-m", "starter", "-p", "x"), "starter"),
        (("chat", "-p", "x"), "-m"),
        (("dance",), "dance"),
        ((), "COMMAND"),
        (("chat", "-m", "MODEL", "-p", "x", "--temp", "hot"), "--temp"),
        (("chat", "-m", "MODEL", "-p", "x", "--temp", "-1"), "temperature"),
        (("chat", "-m", "MODEL", "-p", "hello " * 500), "256"),
        (("complete", "-m", "MODEL", "-p", "", "-n", "2"), "empty"),
        (("logits", "-m", "MODEL", "--tokens", "1,x"), "--tokens"),
        (("logits", "-m", "MODEL", "--tokens", "999999"), "999999"),
        (("logits", "-m", "MODEL", "--tokens", "1,2", "--positions", "2"), "position 2"),
        (("perplexity", "-m", "MODEL", "-f", "nowhere.txt"), "nowhere.txt"),
        (("tokenize", "-m", "MODEL", "--batch", "MODEL"), "MODEL"),
        (("bench", "-m", "MODEL", "-p", "100", "-c", "64"), "128 tokens"),
        (("chat", "-m", "MODEL", "-p", "x", "-t", "-3"), "threads"),
        (("chat", "-m", "MODEL", "-p", "x", "-c", "999999999"), "memory"),
        (("chat", "-m", "MODEL", "-p", "x", "--cache", "f64"), "--cache"),
        (("complete", "-m", "MODEL"), "empty"),
        (("logits", "-m", "MODEL", "-p", "x", "--lora", "nowhere.gguf:0.5"), "nowhere.gguf"),
    ],
)
def test_error_is_one_line_that_names_the_fault(
    arguments: tuple[str, ...], named: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(capsys, *(model if part == "MODEL" else part for part in arguments))
    assert named.replace("MODEL", model).lower() in error.lower()


def test_unknown_kernels_are_named(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELS", "abacus")
    assert "abacus" in refused(capsys, "info", "-m", model)


def test_tokenize_needs_only_a_vocabulary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tiny.write(tmp_path / "vocabulary.gguf", layers=0))
    (result,) = run(capsys, "tokenize", "-m", path, "-p", "hello")
    assert result["token_ids"]
    refused(capsys, "chat", "-m", path, "-p", "hello")
