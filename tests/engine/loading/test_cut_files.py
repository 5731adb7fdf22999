"""Files that are truncated while they are read: one sentence each, and no dead process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tiny
import tiny_lora
from engine.adapters.stack import load_adapter
from engine.errors import AdapterError, ModelFileError
from engine.gguf.reader import GGUFFile
from engine.loading import loader
from engine.loading.loader import load
from kernels.backends import BACKENDS

DRIVER = Path(__file__).resolve().parents[2] / "drivers" / "cut_file.py"
ROOT = DRIVER.parents[2]
CHANGED = "has changed while it was read."
REPLACED = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows refuses to replace a file that is open"
)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows refuses to cut a mapped file")
@pytest.mark.skipif("cpu" not in BACKENDS, reason="the native library has the guard")
def test_a_process_survives_files_that_are_cut(tmp_path: Path) -> None:
    model = tiny.write(
        tmp_path / "m.gguf", layers=8, format="Q8_0", hidden=512, head_dim=128, ffn=1024
    )
    gguf = tiny_lora.write(tmp_path / "a.gguf", model, rank=16)
    pairs = tiny_lora.pairs_for(model, rank=16)
    peft = tiny_lora.write_peft(tmp_path / "peft", pairs, rank=16, heads=(4, 2))
    child = subprocess.run(
        [sys.executable, DRIVER, model, gguf, peft],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.splitlines() == [
        f"load: The file 0.gguf {CHANGED}",
        f"vocabulary: The file 1.gguf {CHANGED}",
        f"quantize: The file 2.gguf {CHANGED}",
        "page: The saved session is damaged.",
        f"adapter: The file 4.gguf {CHANGED}",
        f"adapter: The file adapter_model.safetensors {CHANGED}",
        "stream: The file 6.gguf has changed since the model was loaded.",
    ]


def test_a_model_that_is_written_to_is_not_loaded(tmp_path: Path) -> None:
    """Of the same size afterwards: part of its weights would be of another version."""
    path, begun = tiny.write(tmp_path / "m.gguf"), list[int]()

    def write(done: int, total: int) -> None:
        if not begun:
            begun.append(done)
            with path.open("r+b") as file:
                file.seek(-8, os.SEEK_END)
                file.write(bytes(8))
            os.utime(path, ns=(1, 1))  # the time of the system is coarser than this test

    with pytest.raises(ModelFileError, match=CHANGED):
        load(path, progress=write)


@REPLACED
def test_a_model_that_is_replaced_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that stay in the file are read from one that was opened later, by its name."""
    path = tiny.write(tmp_path / "m.gguf")
    other = tiny.write(tmp_path / "n.gguf", seed=1)
    streamer = loader._streamer

    def replaced(*operands: object) -> object:
        other.replace(path)
        return streamer(*operands)  # type: ignore[arg-type]

    monkeypatch.setattr(loader, "_streamer", replaced)
    with pytest.raises(ModelFileError, match=CHANGED):
        load(path)


@REPLACED
@pytest.mark.parametrize("kind", ["gguf", "peft"])
def test_the_hash_of_an_adapter_is_that_of_what_was_read(kind: str, tmp_path: Path) -> None:
    """Another file takes its name after the pairs were read, and it is written to before."""
    model = tiny.write(tmp_path / "m.gguf")
    base = load(model).decoder.base

    def write(name: str, seed: int) -> tuple[Path, Path]:
        if kind == "gguf":
            path = tiny_lora.write(tmp_path / f"{name}.gguf", model, seed=seed)
            return path, path
        pairs = tiny_lora.pairs_for(model, rank=4, seed=seed)
        folder = tiny_lora.write_peft(tmp_path / name, pairs, heads=(4, 2))
        return folder, folder / "adapter_model.safetensors"

    (path, file), (_, other) = write("one", 1), write("two", 2)
    wanted, calls = load_adapter(path, base), list[int]()

    def swap() -> None:
        calls.append(1)
        if len(calls) == 1:  # the file is open, and nothing of it was hashed
            other.replace(file)

    found = load_adapter(path, base, swap)
    assert (found.sha256, found.fingerprint) == (wanted.sha256, wanted.fingerprint)
    assert load_adapter(path, base).sha256 != found.sha256

    def touch() -> None:
        os.utime(file, ns=(1, 1))

    with pytest.raises(AdapterError, match=CHANGED):
        load_adapter(path, base, touch)


@REPLACED
def test_metadata_of_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf")
    with GGUFFile.open(path) as file:
        file.check(names=True)
        path.rename(tmp_path / "n.gguf")
        file.check()
        with pytest.raises(ModelFileError, match=CHANGED):
            file.check(names=True)
