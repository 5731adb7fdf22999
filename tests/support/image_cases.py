"""Conversations with pictures for each kind of projector: vocabulary, template, and sizes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import seeing_files
from engine import ImagePart, Role, TextPart, Turn

RECORDED = Path(__file__).parents[1] / "golden" / "image_prompts.json"


@dataclass(frozen=True)
class Size:
    """A picture: lines and columns of rows of each tile, and of tiles."""

    lines: int
    columns: int
    grid: tuple[int, int] = (1, 1)
    has_overview: bool = (
        False  # of a line more than a tile, but of as many where it has a tile's size
    )


@dataclass(frozen=True)
class Case:
    """What a prompt depends on beside its texts."""

    projector: str
    marks: tuple[str, ...]  # control tokens
    template: str
    rows: tuple[str, ...]  # tokens that stand for rows in transformers' prompts
    sizes: tuple[Size, Size, Size]  # of the pictures of the conversation

    @property
    def vocabulary(self) -> dict[str, Any]:
        """The keys of its vocabulary and template."""
        return seeing_files.words(self.marks, self.template)


def conversation(sizes: Sequence[Size]) -> list[dict[str, Any]]:
    """The messages, with a size in each picture."""
    first, second, third = ({"type": "image", "size": one} for one in sizes)
    parts = (
        ("user", "look at ", first, " well\n"),
        ("assistant", "the quick brown fox"),
        ("user", second, third, "\njumps"),
    )
    return [
        {
            "role": role,
            "content": [
                one if isinstance(one, dict) else {"type": "text", "text": one} for one in content
            ],
        }
        for role, *content in parts
    ]


def turns(sizes: Sequence[Size]) -> tuple[Turn, ...]:
    """The same as turns."""
    numbers = itertools.count()
    return tuple(
        Turn(
            Role(message["role"]),
            tuple(
                TextPart(one["text"]) if "text" in one else picture(one["size"], next(numbers))
                for one in message["content"]
            ),
        )
        for message in conversation(sizes)
    )


def picture(size: Size, number: int = 0) -> ImagePart:
    """A picture that only says its size."""
    return ImagePart(json.dumps([number, *vars(size).values()]).encode())


def size_of(part: ImagePart) -> Size:
    """What `picture` was given."""
    assert isinstance(part.source, bytes)
    _, lines, columns, grid, has_overview = json.loads(part.source)
    return Size(lines, columns, (grid[0], grid[1]), has_overview)


def collapsed(ids: Sequence[int], rows: set[int] | range) -> list[int]:
    """Token ids in which each run of rows is one negative number: how many."""
    made: list[int] = []
    for one in ids:
        if one not in rows:
            made.append(one)
        elif made and made[-1] < 0:
            made[-1] -= 1
        else:
            made.append(-1)
    return made


def recorded() -> dict[str, dict[str, Any]]:
    """Text and ids of each case, by transformers."""
    return json.loads(RECORDED.read_text("utf-8"))["cases"]


def _template(before: str, image: str, after: str, opening: str, start: str = "") -> str:
    """A template that reads strings and lists of parts; `before` and `after` surround a message."""
    return (
        f"{start}{{% for message in messages %}}{before}"
        "{% if message.content is string %}{{ message.content }}{% else %}"
        "{% for item in message.content %}"
        f"{{% if item.type == 'image' %}}{{{{ '{image}' }}}}"
        "{% elif item.type == 'text' %}{{ item.text }}{% endif %}{% endfor %}{% endif %}"
        f"{after}{{% endfor %}}{{% if add_generation_prompt %}}{opening}{{% endif %}}"
    )


_CHATML = (
    "{{ '<|im_start|>' + message.role + '\\n' }}",
    "{{ '<|im_end|>\\n' }}",
    "{{ '<|im_start|>assistant\\n' }}",
)
_SMOLVLM = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
_PLACES = [f"row_{line}_col_{column}" for line in (1, 2, 3) for column in (1, 2, 3)]
_GEMMA4 = Case(
    "gemma4v",
    ("<|image>", "<image|>", "<|image|>", "<|turn>", "<turn|>"),
    _template(
        "{{ '<|turn>' + message.role + '\\n' }}",
        "<|image|>",
        "{{ '<turn|>\\n' }}",
        "{{ '<|turn>model\\n' }}",
    ),
    ("<|image|>",),
    (Size(2, 3), Size(5, 1), Size(1, 7)),
)
CASES = {
    "qwen3vl": Case(
        "qwen3vl_merger",
        seeing_files.QWEN_MARKS,
        seeing_files.QWEN,
        ("<|image_pad|>",),
        (Size(2, 3), Size(5, 1), Size(1, 7)),
    ),
    "gemma4": _GEMMA4,
    "gemma4 12b": replace(_GEMMA4, projector="gemma4uv"),
    "gemma3": Case(
        "gemma3",
        ("<start_of_image>", "<end_of_image>", "<image_soft_token>", "<start_of_turn>"),
        _template(
            "{{ '<start_of_turn>' + message.role + '\\n' }}",
            "<start_of_image>",
            "{{ '<|im_end|>\\n' }}",
            "{{ '<start_of_turn>model\\n' }}",
        ),
        ("<image_soft_token>",),
        (Size(4, 4), Size(4, 4), Size(4, 4)),
    ),
    "pixtral": Case(
        "pixtral",
        ("[IMG]", "[IMG_BREAK]", "[IMG_END]", "[INST]", "[/INST]"),
        _template("[INST]", "[IMG]", "[/INST]", "", "{{ bos_token }}"),
        ("[IMG]", "[IMG_BREAK]"),
        (Size(2, 3), Size(5, 1), Size(1, 7)),
    ),
    "lfm2": Case(
        "lfm2",
        (
            *("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"),
            *(f"<|img_{place}|>" for place in _PLACES),
        ),
        _template(_CHATML[0], "<image>", *_CHATML[1:]),
        ("<image>",),
        (Size(2, 3), Size(4, 4, (2, 3), has_overview=True), Size(4, 4, (1, 2))),
    ),
    "idefics3": Case(
        "idefics3",
        (
            *("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"),
            *(f"<{place}>" for place in _PLACES),
        ),
        _SMOLVLM,
        ("<image>",),
        (Size(4, 4), Size(4, 4, (2, 3), has_overview=True), Size(4, 4, (1, 2), has_overview=True)),
    ),
    "glm4v": Case(
        "glm4v",
        ("<|begin_of_image|>", "<|image|>", "<|end_of_image|>"),
        _template(
            "{{ '<|im_start|>' + message.role + '\\n' }}",
            "<|begin_of_image|><|image|><|end_of_image|>",
            "",
            "{{ '<|im_start|>assistant\\n' }}",
        ),
        ("<|image|>",),
        (Size(2, 3), Size(5, 1), Size(1, 7)),
    ),
    "llama4": Case(
        "llama4",
        (
            *("<|image|>", "<|image_start|>", "<|image_end|>", "<|patch|>"),
            *("<|tile_x_separator|>", "<|tile_y_separator|>"),
        ),
        _template(_CHATML[0], "<|image|>", *_CHATML[1:]),
        ("<|patch|>",),
        (Size(4, 4), Size(4, 4, (2, 3), has_overview=True), Size(4, 4, (1, 2), has_overview=True)),
    ),
    "resampler": Case(
        "resampler",
        (
            *("<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>"),
            "<unk>",
        ),
        _template(_CHATML[0], "(<image>./</image>)\\n", *_CHATML[1:]),
        ("<unk>",),
        (
            Size(1, 64),
            Size(1, 64, (2, 3), has_overview=True),
            Size(1, 64, (1, 2), has_overview=True),
        ),
    ),
    "minicpmv4_6": Case(
        "minicpmv4_6",
        (
            *("<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>"),
            "<|image_pad|>",
        ),
        _template(_CHATML[0], "<|image_pad|>", *_CHATML[1:]),
        ("<|image_pad|>",),
        (Size(4, 4), Size(4, 4, (2, 3), has_overview=True), Size(5, 3, (1, 2), has_overview=True)),
    ),
    "internvl": Case(
        "internvl",
        ("<IMG_CONTEXT>", "<img>", "</img>"),
        _template(_CHATML[0], "<IMG_CONTEXT>\\n", *_CHATML[1:]),
        ("<IMG_CONTEXT>",),
        (Size(4, 4), Size(4, 4, (2, 3), has_overview=True), Size(4, 4, (1, 2), has_overview=True)),
    ),
}
