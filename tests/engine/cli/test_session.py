"""Command line: session files, adapters and cache types."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import tiny
import tiny_lora
from engine import ModelLoaded
from engine.cli.client import Client
from engine.cli.commands import main
from engine.cli.options import Options, adapters, parser
from engine.state.disk.sequence_file import read_all

GREEDY = ("--temp", "0")
SEEDED = ("--temp", "0.8", "--seed", "6")  # samples no end token with any cache type
START = "the quick brown fox"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(tiny.write(tmp_path / "tiny.gguf", context=512))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "talk"


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    """The JSON object one subcommand prints."""
    assert main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([*map(str, arguments)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


# --- sessions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("drawn", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_answer_continued_in_pieces_equals_the_uninterrupted_one(
    drawn: tuple[str, ...], cache: str, model: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("complete", "-m", model, "--cache", cache, *drawn)
    whole = run(capsys, *options, "-p", START, "-n", "60")
    begun = run(capsys, *options, "-p", START, "-n", "7", "--session", file)
    ids, text = begun["token_ids"], begun["text"]
    for tokens in (1, 2, 20, 30):
        more = run(capsys, *options, "-n", str(tokens), "--session", file)
        assert more["reused_tokens"] == more["prompt_tokens"] - 1
        ids, text = ids + more["token_ids"], text + more["text"]
    assert ids == whole["token_ids"]
    assert text == whole["text"]  # even if a piece ends inside a character


class Interrupting(io.StringIO):
    """Standard output that raises SIGINT at the fifth piece of an answer."""

    pieces = 0

    def write(self, text: str, /) -> int:
        self.pieces += 1
        if self.pieces == 5:
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


def test_answer_interrupted_by_ctrl_c_is_saved_and_can_be_continued(
    model: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("complete", "-m", model, *SEEDED)
    most = 400  # tokens: the engine goes on until the interrupted thread has had its turn
    whole = run(capsys, *options, "-p", START, "-n", str(most))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out := Interrupting())
        assert main([*options, "-p", START, "--session", str(file)]) == 130
    begun = out.getvalue().removesuffix("\n")
    assert begun
    assert whole["text"].startswith(begun)
    (kept,) = read_all(file)
    saved = len(kept.tokens) + len(json.loads(kept.resume["pending"]))
    first = run(capsys, "tokenize", "-m", model, "-p", START)
    left = most - (saved - len(first["token_ids"]))
    more = run(capsys, *options, "-n", str(left), "--session", file)
    assert begun + more["text"] == whole["text"]


def test_cached_prompt_is_not_computed_again(
    model: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("-m", model, *GREEDY, "-n", "5", "--session", file)
    first = run(capsys, "chat", "-p", "hello " * 20, *options)
    assert first["reused_tokens"] == 0
    again = run(capsys, "chat", "-p", "hello " * 20, *options)
    # What the template writes behind a conversation is processed again.
    assert again["prompt_tokens"] - 12 <= again["reused_tokens"] < again["prompt_tokens"]
    assert again["token_ids"] == first["token_ids"]
    other = run(capsys, "chat", "-p", "hello " * 20 + "again", *options)
    assert 0 < other["reused_tokens"] < other["prompt_tokens"]


def test_prompt_that_extends_the_session_text_reuses_its_ids(
    model: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("complete", "-m", model, *GREEDY, "--session", file)
    first = run(capsys, *options, "-p", START, "-n", "1")
    longer = run(capsys, *options, "-p", START + " jumps over the lazy dog", "-n", "1")
    assert longer["reused_tokens"] >= first["prompt_tokens"] - 1


def test_status_line_reports_cached_tokens(
    model: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["chat", "-m", model, "-p", "hello", *GREEDY, "-n", "3", "--session", str(file)]
    assert main(command) == 0
    assert "cached" not in capsys.readouterr().err
    assert main(command) == 0
    assert "of them cached)" in capsys.readouterr().err


def test_session_files_that_do_not_match_are_refused_and_kept(
    model: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("-p", "hello", "-n", "3", "--session", file)
    run(capsys, "chat", "-m", model, *options)
    whole = contents(file)
    other = tiny.write(tmp_path / "other.gguf", seed=4)
    leaf = tiny_lora.write(tmp_path / "leaf.gguf", Path(model))
    for arguments, named in (
        (("-m", other), "with another model, tiny · F32."),
        (("-m", model, "--cache", "f16"), "type f32"),
        (("-m", model, "--lora", leaf), "without adapters"),
    ):
        error = refused(capsys, "chat", *arguments, *options)
        assert named in error
        assert f"delete {file} to start over" in error
    assert "can take in 16" in refused(capsys, "chat", "-m", model, "-c", "16", *options)
    assert contents(file) == whole
    (saved,) = (path for path in file.iterdir() if path.is_file())
    saved.write_bytes(saved.read_bytes()[:-1])
    assert "damaged" in refused(capsys, "chat", "-m", model, *options)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_session_of_an_older_version_is_refused_and_kept(
    model: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_bytes(b"a session in one file")
    error = refused(capsys, "chat", "-m", model, "-p", "hello", "--session", file)
    assert "sessions are folders now" in error
    assert file.read_bytes() == b"a session in one file"


def test_a_model_that_is_replaced_while_it_answers_saves_no_session(
    model: str,
    file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its pages would have the key of the model that has the name now."""
    other, load = tiny.write(tmp_path / "other.gguf", seed=4), Client._load

    def replaced(client: Client, options: Options, **wanted: bool) -> ModelLoaded:
        loaded = load(client, options, **wanted)
        other.replace(model)
        return loaded

    monkeypatch.setattr(Client, "_load", replaced)
    assert main(["chat", "-m", model, "-p", "hello", "-n", "3", "--session", str(file)]) == 1
    assert "changed since it was loaded" in capsys.readouterr().err
    assert read_all(file) == []


def test_session_folder_is_refused_and_its_files_are_kept(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / ".letter.tmp"
    inside.write_text("not ours", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("", ".", "..", tmp_path):
        error = refused(capsys, "chat", "-m", model, "-p", "hello", "-n", "1", "--session", name)
        assert "is a folder" in error
        assert "delete" not in error
    assert inside.read_text(encoding="utf-8") == "not ours"


@pytest.mark.skipif(sys.platform == "win32", reason="links need a permission there")
def test_session_link_is_followed(
    model: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    options = ("complete", "-m", model, *GREEDY, "-n", "3", "--session", link)
    run(capsys, *options, "-p", START)
    assert run(capsys, *options)["reused_tokens"]
    assert link.is_symlink()
    assert file.is_dir()


def test_unwritable_session_path_is_reported(
    model: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("in the way", encoding="utf-8")
    command = ("chat", "-m", model, "-p", "hello", "-n", "1", "--session", file / "inside")
    assert "System error" in refused(capsys, *command)


# --- adapters -----------------------------------------------------------------------------------


@pytest.fixture
def leaf(model: str, tmp_path: Path) -> Path:
    return tiny_lora.write(tmp_path / "leaf.gguf", Path(model))


@pytest.fixture
def root(model: str, tmp_path: Path) -> Path:
    return tiny_lora.write(tmp_path / "root.gguf", Path(model), seed=2)


def logits(capsys: pytest.CaptureFixture[str], model: str, *options: str | Path) -> list[float]:
    row = run(capsys, "logits", "-m", model, "-p", START, "--top", "0", *options)["positions"][0]
    return [value for _, value in sorted(zip(row["token_ids"], row["logits"], strict=True))]


def test_adapters_change_logits(
    model: str, leaf: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = logits(capsys, model)
    one = logits(capsys, model, "--lora", leaf)
    half = logits(capsys, model, "--lora", f"{leaf}:0.5")
    both = logits(capsys, model, "--lora", leaf, "--lora", f"{root}:-1")
    assert len({tuple(row) for row in (plain, one, half, both)}) == 4
    assert logits(capsys, model, "--lora", f"{leaf}:0") == plain
    assert logits(capsys, model, "--lora", f"{leaf}:1.0") == one
    assert logits(capsys, model, "--lora", f"{root}:-1", "--lora", leaf) == both


def test_every_inference_command_supports_adapters(
    model: str, leaf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (text := tmp_path / "text.txt").write_text("hello world " * 60, encoding="utf-8")
    for command in (("chat", "-p", "x"), ("complete", "-p", START)):
        options = (*command, "-m", model, *GREEDY, "-n", "20")
        plain, adapted = run(capsys, *options), run(capsys, *options, "--lora", leaf)
        assert plain["token_ids"] != adapted["token_ids"]
    options = ("perplexity", "-m", model, "-f", text, "-c", "32")
    plain, adapted = run(capsys, *options), run(capsys, *options, "--lora", leaf)
    assert plain["perplexity"] != adapted["perplexity"]
    speed = run(capsys, "bench", "-m", model, "-p", "8", "-n", "2", "-r", "1", "--lora", leaf)
    assert speed["decode_tokens_per_second"] > 0


def test_session_continues_with_its_adapters_only(
    model: str, leaf: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("complete", "-m", model, *GREEDY, "--lora", f"{leaf}:0.5")
    whole = run(capsys, *options, "-p", START, "-n", "30")["token_ids"]
    begun = run(capsys, *options, "-p", START, "-n", "11", "--session", file)["token_ids"]
    assert begun + run(capsys, *options, "-n", "19", "--session", file)["token_ids"] == whole
    assert "leaf at 0.5" in refused(
        capsys, "complete", "-m", model, "--session", file, "--lora", f"{leaf}:0.25"
    )


@pytest.mark.parametrize("scale", ["3", "-2.5", "nan", "inf"])
def test_a_scale_out_of_range_is_refused(
    scale: str, model: str, leaf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(capsys, "chat", "-m", model, "-p", "x", "--lora", f"{leaf}:{scale}")
    assert "leaf" in error
    assert "from -2 to 2" in error


@pytest.mark.skipif(sys.platform == "win32", reason="a colon names a stream of a file there")
def test_a_colon_may_be_part_of_a_name(tmp_path: Path) -> None:
    (odd := tmp_path / "a:2").write_text("", encoding="utf-8")
    runs = defaultdict(lambda: lambda _: None)

    def read(*texts: str) -> list[tuple[str, float]]:
        options = [part for text in texts for part in ("--lora", text)]
        found = parser("", runs).parse_args(["chat", "-m", "x", "-p", "x", *options])
        return [(str(use.path), use.strength) for use in adapters(found)]

    assert read("a.gguf", "b.gguf:0.5", "c:d.gguf", "c:d.gguf:-1") == [
        ("a.gguf", 1.0), ("b.gguf", 0.5), ("c:d.gguf", 1.0), ("c:d.gguf", -1.0),
    ]  # fmt: skip
    assert read(str(odd), f"{odd}:1.5") == [(str(odd), 1.0), (str(odd), 1.5)]
    assert read() == []


# --- cache types --------------------------------------------------------------------------------


def test_default_cache_type_is_f32(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    exact, half, eight = (logits(capsys, model, "--cache", kind) for kind in ("f32", "f16", "q8_0"))
    assert logits(capsys, model) == exact
    apart = [max(abs(a - b) for a, b in zip(exact, row, strict=True)) for row in (half, eight)]
    assert 0 < apart[0] < apart[1] < 0.5


def test_info_reports_the_cache_size_by_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tiny.write(tmp_path / "wide.gguf", head_dim=64))  # codes are in blocks of 32
    plans = {
        kind: run(capsys, "info", "-m", model, "--cache", kind)["memory"]
        for kind in ("f32", "f16", "q8_0")
    }
    assert all(plan["cache_type"] == kind for kind, plan in plans.items())
    assert plans["f32"]["cache_bytes"] == 2 * plans["f16"]["cache_bytes"]
    assert plans["q8_0"]["cache_bytes"] < plans["f16"]["cache_bytes"]
    assert run(capsys, "info", "-m", model)["memory"]["cache_type"] == "f32"
