"""Token texts that stand outside ordinary text: where they are cut out, and which of them end a reply.

A file marks tokens as control or user-defined, and sometimes forgets to: the well-known texts below
are control tokens whatever it says, as in ggml. The one exception is `</s>`, which some vocabularies
hold as an HTML tag: it is shown and ends nothing unless the file calls it a control token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

STRIKE_OR_STOP = "</s>"
END_TEXTS = (
    "<|im_end|>", "<|eot_id|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]",
    "[EOS]", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~[",
)  # fmt: skip
# Fill-in-the-middle texts by the key that may name them instead; the last three end a reply.
FILL_TEXTS: dict[str, tuple[str, ...]] = {
    "fim_pre": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "<PRE>", "\u2581<PRE>",
        "<|code_prefix|>", "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "<SUF>", "\u2581<SUF>",
        "<|code_suffix|>", "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>", "\u2581<MID>",
        "<|code_middle|>", "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip
FILL_ENDS = ("fim_pad", "fim_rep", "fim_sep")
SHOWN_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
_SPACE = " \t\n\v\f\r"
_PREFIX = 4  # characters; texts that begin alike are looked for together


class TokenKind(IntEnum):
    """What the file says a token is (`tokenizer.ggml.token_type`)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def end_ids(ids: Mapping[str, int]) -> set[int]:
    """Tokens that end a reply by their text, `</s>` left to the caller.

    Vocabularies with channels close a message with `<|end|>` and go on; there it ends nothing.
    """
    found = {text: ids[text] for text in END_TEXTS if text in ids}
    calls = "<|call|>" in found or "<|calls|>" in found
    if calls and ("<|return|>" in found or "<|flush|>" in found):
        found.pop("<|end|>", None)
    return set(found.values())


class SpecialTokens:
    """Cuts special texts out of a prompt as ggml does: the longest first, each from the left."""

    def __init__(
        self,
        user_defined: Iterable[tuple[str, int]],
        control: Iterable[tuple[str, int]],
        swallow: frozenset[int] = frozenset(),
    ) -> None:
        """`control` texts are cut only on request; `swallow` tokens take the space after them."""
        plain = list(user_defined)
        self._swallow = swallow
        self._plain = by_prefix(plain)
        self._all = by_prefix(plain + list(control))

    def split(self, text: str, *, parse_control: bool) -> list[str | int]:
        """Text and token ids in order; no piece of text is empty."""
        found = [
            (-len(special.encode("utf-8")), token, special)
            for special, token in present(text, self._all if parse_control else self._plain)
        ]
        if not found:
            return [text] if text else []
        taken = bytearray(len(text))
        spans: list[tuple[int, int, int]] = []  # start, stop, token
        for _, token, special in sorted(found):
            for start in _free_places(text, special, taken):
                stop = start + len(special)
                if token in self._swallow:
                    while stop < len(text) and text[stop] in _SPACE and not taken[stop]:
                        stop += 1
                taken[start:stop] = b"\1" * (stop - start)
                spans.append((start, stop, token))
        return pieces(text, sorted(spans))


def by_prefix(specials: Sequence[tuple[str, int]]) -> dict[str, list[tuple[str, int]]]:
    """Texts and their tokens by the text's first characters, for `present`; "" is in no text."""
    groups: dict[str, list[tuple[str, int]]] = {}
    for special, token in specials:
        if special:
            groups.setdefault(special[:_PREFIX], []).append((special, token))
    return groups


def present(text: str, groups: Mapping[str, list[tuple[str, int]]]) -> Iterator[tuple[str, int]]:
    """Those special texts, with their tokens, that occur in `text` at all."""
    for prefix, members in groups.items():
        if prefix in text:
            yield from (member for member in members if member[0] in text)


def _free_places(text: str, special: str, taken: bytearray) -> Iterable[int]:
    """Places of `special` in what is free; the caller marks each before asking for the next."""
    at = text.find(special)
    while at >= 0:
        blocked = taken.find(1, at, at + len(special))
        if blocked < 0:
            yield at
            blocked = at
        free = taken.find(0, blocked)
        at = text.find(special, free) if free >= 0 else -1


def pieces(text: str, spans: Sequence[tuple[int, int, int]]) -> list[str | int]:
    """What `spans` (start, stop, token), from the left, make of `text`: what lies between stays."""
    parts: list[str | int] = []
    end = 0
    for start, stop, token in spans:
        if start > end:
            parts.append(text[end:start])
        parts.append(token)
        end = stop
    if end < len(text):
        parts.append(text[end:])
    return parts
