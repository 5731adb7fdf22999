"""A tiny model that sees: a hybrid text model with marks of pictures, its encoder, and a reader."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import architecture_files
import tiny
import vision_files
from engine import ImagePart
from engine.errors import Cancelled, RequestError
from engine.vision.picture import Picture, Tile
from engine.vision.projector_file import VisionConfig
from engine_bench import with_printable_output

QWEN = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for item in message.content %}"
    "{% if 'image' in item or item.type == 'image' %}"
    "{% if add_vision_id %}{{ 'Picture 1: ' }}{% endif %}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% elif 'text' in item %}{{ item.text }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
QWEN_MARKS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>")


def words(marks: tuple[str, ...] = QWEN_MARKS, template: str = QWEN) -> dict[str, Any]:
    """The keys of a byte-level vocabulary that has marks of pictures, and of a chat template."""
    made = tiny.bpe("qwen3")
    made["tokenizer.ggml.merges"].append("\u010a \u010a")  # an empty line is one token
    made["tokenizer.ggml.tokens"] += ["\u010a\u010a", *marks]
    made["tokenizer.ggml.token_type"] += [tiny.NORMAL] + [tiny.CONTROL] * len(marks)
    return made | {"tokenizer.chat_template": template}


def write_model(path: Path, vocabulary: dict[str, Any] | None = None, context: int = 600) -> Path:
    """A text model that `qwen3vl_merger` is for; it answers in printable characters."""
    vocabulary = vocabulary or words()
    skeleton = architecture_files.recorded()["qwen35-dense"].without_scales().without_ranking()
    count = len(vocabulary["tokenizer.ggml.tokens"])
    skeleton = skeleton.changed(count, {"context_length": context})
    return with_printable_output(architecture_files.write(skeleton, path, vocabulary))


def write_encoder(path: Path, width: int, seed: int = 3) -> Path:
    """An encoder whose rows have this width, and tell pictures well apart."""
    recorded = vision_files.recorded()["qwen3vl"]
    case = replace(recorded.case, output=width)
    weights = vision_files.tensors(case, recorded.state)
    random = np.random.default_rng(seed)
    for part, columns in (("weight", weights["mm.2.weight"].shape[1:]), ("bias", ())):
        weights[f"mm.2.{part}"] = random.standard_normal((width, *columns)).astype(np.float32)
    for name in ("v.patch_embd.weight", "v.patch_embd.weight.1"):
        weights[name] *= 30
    return vision_files.write(path, vision_files.keys(case), weights)


def write_pair(folder: Path, width: int = 256) -> Path:
    """A text model with its encoder beside it."""
    write_encoder(folder / "mmproj-tiny.gguf", width)
    return write_model(folder / "tiny.gguf")


class Reader:
    """Pictures without files: each `source` gives pixels of its own."""

    def __init__(self, config: VisionConfig, grid: tuple[int, int] = (3, 4)) -> None:
        """Every picture has so many lines and columns of rows."""
        self.config, self.grid = config, grid
        self.reads: list[ImagePart] = []
        self.is_closed = False

    def read(self, part: ImagePart, cancelled: Callable[[], bool] = lambda: False) -> Picture:
        """A picture of random pixels."""
        if cancelled():
            raise Cancelled
        if part.source == b"broken":
            raise RequestError("The picture cannot be read.", "Choose another one.")
        self.reads.append(part)
        lines, columns = self.grid
        side = self.config.patch * self.config.merge
        name = repr((part.source, part.detail, self.grid)).encode()
        size = lines * side, columns * side
        key = hashlib.sha256(name).hexdigest()
        count = lines * columns
        tile = Tile(key, lines, columns, count, partial(_pixels, int(key[:8], 16), size))
        return Picture(size[1], size[0], (tile,))

    def close(self) -> None:
        """It is not used again."""
        self.is_closed = True


def _pixels(seed: int, size: tuple[int, int]) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.rand(*size, 3, generator=random) * 2 - 1
