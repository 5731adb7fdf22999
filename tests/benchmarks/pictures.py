"""Picture encoders of real shapes beside llama.cpp's: the same files and picture, in turn.

The weights are random, which says as much about speed. A pair is one run of ours and one of
llama-mtmd-cli, whose log tells how long its encoder took; a table shows medians, ranges, and the
median of the ratios of pairs. Then how much sooner the first token comes behind a picture that
another chat has had.
"""

from __future__ import annotations

import argparse
import os
import platform
import queue
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TypeVar

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import numpy as np
import torch
from PIL import Image

import seeing_files
import tiny
import vision_files
from engine import (
    Chat,
    Engine,
    Event,
    Failed,
    Finished,
    ImagePart,
    Load,
    ModelLoaded,
    Request,
    Role,
    TextPart,
    Turn,
)
from engine.gguf.reader import GGUFFile
from engine.loading.loader import set_threads
from engine.vision.encoders import build_encoder
from engine.vision.picture_reader import PictureReader
from kernels.backends import BACKENDS

TABLE = Path(__file__).with_suffix(".md")
ROOT = Path(__file__).parents[2]
PEER = ROOT / "build" / "peer" / "bin" / "llama-mtmd-cli"
SIDE = 896  # pixels of the picture
WANTED = 1.5
WIDTH, SEEING_WIDTH = 2_560, 256  # of the text models
E = TypeVar("E", bound=Event)
_ENCODED = re.compile(r"(?:image slice encoded|batch encoding done) in (\d+) ms")


@dataclass(frozen=True)
class Shape:
    """A real encoder: the sizes that take the place of a recorded model's."""

    words: str
    case: str
    sizes: dict[int, int]  # by the small ones
    keys: dict[str, int] = field(default_factory=dict[str, int])


SHAPES = (
    Shape(
        "Qwen3.5-4B, F16",
        "qwen3vl",
        {36: 1_024, 108: 3_072, 52: 4_096, 144: 4_096, 40: WIDTH, 25: 2_304, 7: 16},
        {"image_size": 768, "patch_size": 16, "block_count": 24, "embedding_length": 1_024}
        | {"feed_forward_length": 4_096, "attention.head_count": 16, "projection_dim": WIDTH},
    ),
    Shape(
        "Gemma 4 E4B, F16",
        "gemma4v",
        {36: 768, 12: 64, 52: 3_072, 40: WIDTH, 20: 10_240, 6: 16},
        {"image_size": 224, "patch_size": 16, "block_count": 16, "embedding_length": 768}
        | {"feed_forward_length": 3_072, "attention.head_count": 12, "projection_dim": WIDTH},
    ),
)


def write(shape: Shape, folder: Path, name: str = "") -> Path:
    """The file of an encoder, unless it is there."""
    path = folder / (name or f"mmproj-{shape.case}.gguf")
    if path.exists():
        return path
    model = vision_files.recorded()[shape.case]
    random = np.random.default_rng(7)
    layer = re.compile(r"v\.blk\.(\d+)\.")
    made = {}
    for name, value in vision_files.tensors(model.case, model.state).items():
        sizes = [shape.sizes.get(size, size) for size in value.shape]
        at = layer.match(name)
        for number in range(shape.keys["block_count"] if at and at[1] == "0" else 1):
            if at and at[1] != "0":
                break
            drawn = 0.02 * random.standard_normal(sizes, np.float32)
            made[layer.sub(f"v.blk.{number}.", name)] = drawn
    keys = vision_files.keys(model.case)
    keys |= {f"clip.vision.{key}": number for key, number in shape.keys.items()}
    if "clip.vision.is_deepstack_layers" in keys:
        keys["clip.vision.is_deepstack_layers"] = [False] * shape.keys["block_count"]
    return vision_files.write(path, keys, made, "F16")


def theirs(program: Path, text: Path, encoder: Path, picture: Path, threads: int) -> float:
    """Seconds that llama.cpp's encoder took."""
    line = [str(program), "-m", str(text), "--mmproj", str(encoder), "--image", str(picture)]
    line += ["-p", "What is it?", "-n", "1", "-t", str(threads), "-c", "4096", "-v"]
    done = subprocess.run(line, capture_output=True, text=True, errors="replace", check=False)
    found = _ENCODED.findall(done.stdout + done.stderr)
    if not found:
        sys.exit(f"{program.name} encoded nothing: {done.stderr[-500:]}")
    return sum(map(int, found)) / 1000


def measure(shape: Shape, program: Path, folder: Path, pairs: int, threads: int) -> str:
    """A row of the table."""
    path, picture = write(shape, folder), folder / "picture.png"
    if not picture.exists():
        noise = np.random.default_rng(3).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
        Image.fromarray(noise).save(picture)
    text = folder / "text.gguf"
    if not text.exists():
        tiny.write(text, architecture="qwen3", hidden=WIDTH, layers=1, context=4_096)
    with GGUFFile.open(path) as file:
        encoder = build_encoder(file, BACKENDS["cpu"])
    reader = PictureReader(encoder.config)
    try:
        (tile,) = reader.read(ImagePart(picture)).tiles
    finally:
        reader.close()
    pixels = tile.pixels()
    encoder.encode(pixels)
    found: list[tuple[float, float]] = []
    for _ in range(pairs):
        began = time.perf_counter()
        encoder.encode(pixels)
        mine = time.perf_counter() - began
        found.append((mine, theirs(program, text, path, picture, threads)))
    ratios = [other / mine for mine, other in found]
    mine, other = (statistics.median(one) for one in zip(*found, strict=True))
    ratio = statistics.median(ratios)
    missed = "" if ratio >= WANTED else " **missed**"
    return (
        f"| {shape.words} | {tile.count} rows | {mine:.2f} s | {other:.2f} s | {ratio:.2f}"
        f" ({min(ratios):.2f}-{max(ratios):.2f}) | ≥ {WANTED}{missed} | {pairs} |"
    )


def first_tokens(folder: Path, threads: int) -> list[str]:
    """Rows of how much sooner a first token comes if another chat had the same picture.

    The text model is tiny, so nearly all of the time is the encoder's.
    """
    model, shape = folder / "seeing.gguf", SHAPES[0]
    if not model.exists():
        seeing_files.write_model(model, context=2_048)
    narrow = {**shape.sizes, 40: SEEING_WIDTH}
    own = replace(shape, sizes=narrow, keys=shape.keys | {"projection_dim": SEEING_WIDTH})
    encoder = write(own, folder, f"mmproj-{shape.case}-narrow.gguf")
    picture = ImagePart(folder / "picture.png")
    first = Turn(Role.USER, (picture, TextPart("What is it?")))
    other = Turn(Role.USER, (picture, TextPart("How large is it?")))
    before = Turn(Role.SYSTEM, (TextPart("Answer in one word."),))
    prompts = ((first,), (other,), (before, first))
    seconds: list[float] = []
    engine = Engine()
    engine.start()
    try:
        _ask(engine, Load(model, threads=threads, encoder=encoder), ModelLoaded)
        for turns in prompts:
            finished = _ask(engine, Chat(turns, max_tokens=1), Finished)
            seconds.append(finished.first_token_seconds)
    finally:
        engine.stop()
    names = ("another question behind the same picture", "other instructions before it")
    wanted = ("≥ 20", "")
    return [
        f"| {words} | {seconds[0]:.2f} s | {one:.3f} s | {seconds[0] / one:.1f} | {least} |"
        for words, one, least in zip(names, seconds[1:], wanted, strict=True)
    ]


def _ask(engine: Engine, request: Request, kind: type[E]) -> E:
    """The last event of a request."""
    arrived: queue.Queue[Event] = queue.Queue()
    engine.submit(request, arrived.put)
    while not isinstance(event := arrived.get(timeout=600), kind):
        assert not isinstance(event, Failed), event
    return event


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, default=PEER)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "pictures")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    set_threads(chosen.threads)
    lines = [
        "# Picture encoders",
        "",
        f"{platform.machine()}, {chosen.threads} threads, one picture of {SIDE} × {SIDE},"
        f" torch {torch.__version__}, {date.today()}. Made by `tests/benchmarks/pictures.py`.",
        "",
        "| Shape | Picture | Ours | llama.cpp | Ratio | Wanted | Pairs |",
        "|---|---|---:|---:|---|---|---:|",
    ]
    for shape in SHAPES:
        options = (chosen.folder, chosen.pairs, chosen.threads)
        lines.append(measure(shape, chosen.peer, *options))
        print(lines[-1], flush=True)
    lines += ["", "| A picture that another chat had | First | Then | Times as soon | Wanted |"]
    lines += ["|---|---:|---:|---:|---|", *first_tokens(chosen.folder, chosen.threads)]
    print("\n".join(lines[-2:]))
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
