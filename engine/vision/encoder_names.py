"""Names of picture encoders (`mmproj`): which model one is named for, and names beside a model."""

from __future__ import annotations

import re

_LAYOUT = re.compile(  # "-Q4_K_M", "_q4_0", ".F16", "-UD-Q4_K_XL", "-bf16"
    r"(?:[-_.](?:UD|i1))?[-_.]"
    r"(I?Q\d(?:_[A-Z0-9]+)*|[PT]+Q\d(?:_[A-Z0-9]+)*|B?F(?:16|32)|FP(?:16|32)|(?:MX|NV)FP4)"
    r"(?=[-_.]|$)",
    re.IGNORECASE,
)
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_ENDING = ".gguf"
_USUAL_NAME = "mmproj"
_NO_NAMES = frozenset(("mmproj", "model", ""))  # words that name no model
NAMED_EXACTLY = 1_000  # more than the words of a name


def is_usual(name: str) -> bool:
    """Whether a file is named as picture encoders are; only its content is proof."""
    return _USUAL_NAME in name.rpartition("/")[2].lower()


def belonging(encoder: str, model: str) -> int:
    """How exactly an encoder's file name names a model's: 0 if it names none, -1 if another.

    `Qwen3.5-4B.mmproj-F16.gguf` and `mmproj-Qwen3.5-4B-BF16.gguf` name `Qwen3.5-4B-Q4_K_M.gguf`.
    """
    named, stem = _stem(encoder), _stem(model)
    if named.lower().startswith(f"{stem.lower()}.{_USUAL_NAME}"):
        return NAMED_EXACTLY
    words = _named(named)
    if not words:
        return 0
    return len(words) if _words(stem)[: len(words)] == words else -1


def names_beside(model: str, encoder: str) -> tuple[str, str]:
    """File names for an encoder beside a model: one for all formats of the model, one for it alone.

    Repositories call theirs `mmproj-F16.gguf`, whatever the model.
    """
    found = _LAYOUT.search(_stem(encoder))
    tag = f"{_USUAL_NAME}-{found[1].upper()}" if found else _USUAL_NAME
    stem = _stem(model)
    return f"{_LAYOUT.sub('', stem)}.{tag}{_ENDING}", f"{stem}.{tag}{_ENDING}"


def _stem(file: str) -> str:
    """A file name without folders, ending and the number of a part."""
    name = re.split(r"[/\\]", file)[-1]
    return _PART.sub("", name[: -len(_ENDING)] if name.lower().endswith(_ENDING) else name)


def _words(stem: str) -> tuple[str, ...]:
    """The words of a name, without the layout of its weights."""
    return tuple(re.split(r"[^a-z0-9]+", _LAYOUT.sub("", stem).lower()))


def _named(stem: str) -> tuple[str, ...]:
    """The words of an encoder's name that name a model."""
    return tuple(word for word in _words(f"-{stem}") if word not in _NO_NAMES)
