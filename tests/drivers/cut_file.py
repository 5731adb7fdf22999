"""A child process that works with files which are truncated meanwhile; see `test_cut_files.py`.

It prints one line for each action: its name, and the sentence of its error. Arguments: the model,
a GGUF adapter and a PEFT folder for it; all of them are cut.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from engine.adapters.stack import load_adapter
from engine.cli.quantize import quantize
from engine.core.request import AnswerRequest
from engine.errors import EngineError
from engine.gguf.reader import GGUFFile
from engine.loading.loader import load
from engine.messages import Sampling
from engine.state.disk.page_file import StateKey, pages_of, read, write


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def _load(path: Path, model: Path) -> None:
    """Cut after the first tensor."""
    del model
    done: list[int] = []

    def progress(now: int, total: int) -> None:
        if not done:
            done.append(now)
            _cut(path)

    load(path, progress=progress, context=64)


def _vocabulary(path: Path, model: Path) -> None:
    """Cut after the file was opened: the vocabulary is read late."""
    del model
    with GGUFFile.open(path) as file:
        os.truncate(path, 4096)
        file.metadata.get("tokenizer.ggml.tokens")
        file.check()


def _stream(path: Path, model: Path) -> None:
    """Cut while weights are read for every pass."""
    del model
    whole = load(path, context=64).plan.total_bytes
    loaded = load(path, context=64, memory_bytes=whole - path.stat().st_size // 3)
    assert loaded.plan.offloading is not None
    scheduler = loaded.new_scheduler()
    scheduler.run(AnswerRequest([1, 2, 3], Sampling(temperature=0), max_tokens=2))
    _cut(path)
    scheduler.run(AnswerRequest([4, 5, 6], Sampling(temperature=0), max_tokens=2))


def _adapter(path: Path, model: Path) -> None:
    """Cut after the first pair."""
    base = load(model, context=64).decoder.base
    file = path / "adapter_model.safetensors" if path.is_dir() else path
    calls: list[int] = []

    def checkpoint() -> None:
        calls.append(1)
        if len(calls) == 2:
            _cut(file)

    load_adapter(path, base, checkpoint)


def _quantize(path: Path, model: Path) -> None:
    del model
    cut: list[int] = []

    def progress(done: int, total: int) -> None:
        if not cut:
            cut.append(done)
            _cut(path)

    quantize(path, path.with_name("out.gguf"), "Q8_0", progress)


def _page(path: Path, model: Path) -> None:
    """Cut a saved page after its first megabyte was read."""
    del model
    key = StateKey("a" * 64, "", "f16", (3 << 20,))
    (page,) = pages_of(key, bytes(400))
    folder = path.with_name("pages")
    folder.mkdir()
    write(folder, page, 0, memoryview(bytes(3 << 20)))
    (file,) = folder.iterdir()
    read(folder, page, 0, memoryview(bytearray(3 << 20)), lambda: _cut(file))


def main() -> None:
    """Run every action on copies of its file."""
    model, gguf, peft = map(Path, sys.argv[1:])
    actions = [
        *[(action, model) for action in (_load, _vocabulary, _quantize, _page)],
        *[(_adapter, gguf), (_adapter, peft), (_stream, model)],
    ]
    for number, (action, path) in enumerate(actions):
        copy = path.with_name(f"{number}{path.suffix}")
        (shutil.copytree if path.is_dir() else shutil.copy)(path, copy)
        try:
            action(copy, model)
        except EngineError as error:
            print(f"{action.__name__[1:]}: {error}", flush=True)


if __name__ == "__main__":
    main()
