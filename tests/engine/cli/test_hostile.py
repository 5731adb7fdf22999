"""Command line with unusual streams, signals, locales, files and huge models."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import tiny
from engine.cli.commands import main
from gguf_bytes import F32, STRING, U32, entry, tensor, text
from gguf_bytes import model as model_bytes

ROOT = Path(__file__).parents[3]


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(tiny.write(tmp_path / "tiny.gguf"))


class Interrupting(io.StringIO):
    """Standard output that raises SIGINT at the third piece of an answer."""

    pieces = 0

    def write(self, text: str, /) -> int:
        self.pieces += 1
        if self.pieces == 3:
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


def test_ctrl_c_keeps_the_answer_so_far(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(sys, "stdout", out := Interrupting())
    assert main(["complete", "-m", model, "-p", "hello", "--temp", "0"]) == 130
    assert out.pieces >= 3
    assert out.getvalue().endswith("\n")
    assert "cancelled" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_any_text_is_printed_as_utf_8_in_any_locale(model: str) -> None:
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-m", "engine", "tokenize", "--json", "-m", model, "-p", "猫\udcff"]
    run = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.decode("utf-8"))["token_ids"]


def test_closed_output_is_refused(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["info", "-m", model]) == 1
    assert "standard output" in capsys.readouterr().err


def test_without_stderr_errors_are_not_printed_to_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["info", "-m", "nowhere.gguf"]) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
def test_full_disk_is_reported(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["info", "--json", "-m", model]) == 1
        monkeypatch.undo()
        error = capsys.readouterr().err
        assert error.startswith("tokonoma: System error: No space left on device.")
        with pytest.raises(OSError, match="space"):
            full.close()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("info", "-c", "-5"), "-5 tokens"),
        (("tokenize", "-f", ""), "cannot be read"),
        (("tokenize", "--batch", ""), "cannot be read"),
        (("tokenize", "--batch", "DEEP"), "JSON array"),
        (("tokenize", "-f", "BINARY"), "UTF-8"),
        (("logits", "--tokens", ""), "--tokens"),
        (("logits", "--tokens", "1", "--top", "-5"), "--top"),
        (("complete", "-p", "x", "--temp", "nan"), "temperature"),
        (("complete", "-p", "x", "--temp", "inf"), "temperature"),
        (("complete", "-p", "x", "--top-k", "-2"), "2,147,483,648"),
        (("complete", "-p", "x", "-n", "-1"), "tokens to generate"),
        (("complete", "-p", "x", "-t", "100000"), "threads"),
        (("chat", "-p", "x", "-c", "1"), "can take in 1"),
    ],
)
def test_invalid_options_are_refused_on_one_line(
    arguments: tuple[str, ...],
    named: str,
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "DEEP").write_text("[" * 100_000, encoding="utf-8")
    (tmp_path / "BINARY").write_bytes(bytes(range(256)))
    places = {name: str(tmp_path / name) for name in ("DEEP", "BINARY")}
    assert main([*(places.get(part, part) for part in arguments), "-m", model]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert named in error


@pytest.mark.parametrize("place", ["", ".", "/dev/null", "FIFO", "FOLDER"])
def test_model_path_that_is_not_a_regular_file_is_refused(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if place == "FIFO" and not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    if place == "FIFO":
        os.mkfifo(tmp_path / place)
    elif place == "FOLDER":
        (tmp_path / place).mkdir()
    path = str(tmp_path / place) if place.isalpha() else place
    assert main(["info", "-m", path]) == 1
    assert "''" not in capsys.readouterr().err


def test_line_ends_are_kept_and_a_batch_may_have_a_byte_order_mark(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "text.txt").write_bytes(b"a\r\nb")
    (batch := tmp_path / "batch.json").write_bytes(b'\xef\xbb\xbf["a\\r\\nb", "\\ud800"]')
    assert main(["tokenize", "-m", model, "-f", str(file), "--json"]) == 0
    assert main(["tokenize", "-m", model, "--batch", str(batch), "--json"]) == 0
    one, same, other = map(json.loads, capsys.readouterr().out.splitlines())
    assert one == same
    assert "".join(one["pieces"]) == "a\r\nb"
    assert other["token_ids"]


@pytest.mark.skipif(sys.platform == "win32", reason="truncate does not make files sparse there")
def test_model_larger_than_memory_is_refused_with_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {
        "block_count": 1, "context_length": 256, "embedding_length": 64, "feed_forward_length": 64,
        "attention.head_count": 1,
    }  # fmt: skip
    keys = [entry(f"llama.{key}", U32, struct.pack("<I", size)) for key, size in sizes.items()]
    keys.append(entry("general.architecture", STRING, text("llama")))
    keys.append(entry("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)))
    table = tensor("token_embd.weight", 64, 1 << 32)
    path = tmp_path / "huge.gguf"
    path.write_bytes(model_bytes(*keys, tensors=(table,), data=b"\0"))
    os.truncate(path, path.stat().st_size + (1 << 40))  # a sparse file of 1 TiB
    assert main(["chat", "-m", str(path), "-p", "hello"]) == 1
    assert "needs 1237.0 GB" in capsys.readouterr().err
    assert main(["info", "--json", "-m", str(path)]) == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert memory["fits"] is False
    assert "1237.0 GB" in memory["reason"]
