"""Prompts that fill a gap in a text: fill-in-the-middle, with other files of a project before it.

The form with files is the one of repositories in the training data of Qwen 2.5 Coder; models without
tokens for it get the files as plain text. Source: https://arxiv.org/abs/2409.12186
"""

from __future__ import annotations

from engine.errors import RequestError
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import Infill

_MARKS = ("fim_pre", "fim_suf", "fim_mid")
_PROJECT, _FILE = "project\n", "file\n"  # names of what has none
_SNIPPET = "\n\n--- snippet ---\n\n"
_SUFFIX_SHARE = 4  # of the room, what the text behind the gap takes at least: a fourth


def can_infill(tokenizer: Tokenizer) -> bool:
    """Whether a vocabulary has the tokens that mark a gap."""
    return all(name in tokenizer.infill for name in _MARKS)


def infill_ids(asked: Infill, tokenizer: Tokenizer, room: int) -> list[int]:
    """The prompt of a gap in at most `room` tokens, unless the answer has begun with more.

    Raises RequestError for a model without the tokens.
    """
    marks = tokenizer.infill
    if not can_infill(tokenizer):
        missing = ", ".join(name for name in _MARKS if name not in marks)
        raise RequestError(
            f"The model's vocabulary has no tokens that fill a gap ({missing}).",
            "Choose a model of code that was made for it.",
        )
    # The space that some vocabularies put before a text belongs to its first part alone.
    prefix = tokenizer.encode(asked.prefix, add_special=False, parse_special=False)
    suffix, begun = tokenizer.encode_within(asked.suffix), tokenizer.encode_within(asked.begun)
    first = [tokenizer.bos] if tokenizer.add_bos and tokenizer.bos is not None else []
    left = max(room - len(first) - len(_MARKS) - len(begun), 0)
    behind = min(len(suffix), max(left // _SUFFIX_SHARE, left - len(prefix)))
    before = min(len(prefix), left - behind)
    gap = [marks["fim_pre"], *prefix[len(prefix) - before :], *begun]
    gap += [marks["fim_suf"], *suffix[:behind], marks["fim_mid"]]
    return [*first, *_files(asked, tokenizer, left - before - behind), *gap]


def _files(asked: Infill, tokenizer: Tokenizer, room: int) -> list[int]:
    """The last files of a project that fit in the room, and the name of the one with the gap."""
    encode = tokenizer.encode_within
    marks, separator = tokenizer.infill, tokenizer.infill.get("fim_sep")
    head = [marks["fim_rep"], *encode(_PROJECT)] if "fim_rep" in marks else []
    own = [] if separator is None else [separator, *encode(_FILE)]
    room -= len(head) + len(own)
    kept: list[list[int]] = []
    for name, text in reversed(asked.files):
        title = encode(_SNIPPET) if separator is None else [separator, *encode(f"{name}\n")]
        file = [*title, *encode(text)]
        room -= len(file)
        if room < 0:
            break
        kept.insert(0, file)
    return [*head, *(token for file in kept for token in file), *own] if kept else []
