"""Special tokens: splitting them out of a prompt as ggml does, and which of them end a reply.

Files mark tokens as control or user-defined, but not reliably: as in ggml, the well-known texts
below are control tokens regardless of their type. The exception is `</s>`, which some vocabularies
contain as an HTML tag: it is shown and ends nothing unless its type is control.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

EOS_OR_HTML_TAG = "</s>"
END_TEXTS = (
    "<|im_end|>", "<|eot_id|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]",
    "[EOS]", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~[",
)  # fmt: skip
# Fill-in-the-middle tokens by the metadata key that may name them; the last three end a reply.
FIM_TEXTS: dict[str, tuple[str, ...]] = {
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
FIM_END_KEYS = ("fim_pad", "fim_rep", "fim_sep")
SHOWN_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
_SPACE = " \t\n\v\f\r"
_PREFIX = 4  # characters: texts with the same prefix are searched together


class TokenKind(IntEnum):
    """Token type (`tokenizer.ggml.token_type`)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def end_ids(ids: Mapping[str, int]) -> set[int]:
    """Tokens that end a reply by their text, except `</s>`.

    In vocabularies with channels, `<|end|>` only closes a message and does not end the reply.
    """
    found = {text: ids[text] for text in END_TEXTS if text in ids}
    calls = "<|call|>" in found or "<|calls|>" in found
    if calls and ("<|return|>" in found or "<|flush|>" in found):
        found.pop("<|end|>", None)
    return set(found.values())


class SpecialTokens:
    """Splits a prompt at special tokens as ggml does: longest first, each from the left."""

    def __init__(
        self,
        user_defined: Iterable[tuple[str, int]],
        control: Iterable[tuple[str, int]],
        rstrip: frozenset[int] = frozenset(),
    ) -> None:
        """`control` texts are split on request; `rstrip` tokens include whitespace after them."""
        plain = list(user_defined)
        self._rstrip = rstrip
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
            for start in _free_matches(text, special, taken):
                stop = start + len(special)
                if token in self._rstrip:
                    while stop < len(text) and text[stop] in _SPACE and not taken[stop]:
                        stop += 1
                taken[start:stop] = b"\1" * (stop - start)
                spans.append((start, stop, token))
        return pieces(text, sorted(spans))


def by_prefix(specials: Sequence[tuple[str, int]]) -> dict[str, list[tuple[str, int]]]:
    """Group special texts by prefix, for `present`; empty texts are left out."""
    groups: dict[str, list[tuple[str, int]]] = {}
    for special, token in specials:
        if special:
            groups.setdefault(special[:_PREFIX], []).append((special, token))
    return groups


def present(text: str, groups: Mapping[str, list[tuple[str, int]]]) -> Iterator[tuple[str, int]]:
    """Yield the special texts that occur in `text`, with their tokens."""
    for prefix, members in groups.items():
        if prefix in text:
            yield from (member for member in members if member[0] in text)


def _free_matches(text: str, special: str, taken: bytearray) -> Iterable[int]:
    """Positions of `special` that do not overlap `taken`; the caller marks each as taken."""
    at = text.find(special)
    while at >= 0:
        blocked = taken.find(1, at, at + len(special))
        if blocked < 0:
            yield at
            blocked = at
        free = taken.find(0, blocked)
        at = text.find(special, free) if free >= 0 else -1


def pieces(text: str, spans: Sequence[tuple[int, int, int]]) -> list[str | int]:
    """Replace sorted `spans` (start, stop, token) of `text` by tokens, keeping the text between."""
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
