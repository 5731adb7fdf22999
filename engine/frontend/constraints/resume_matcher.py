"""The state of a constraint where an answer goes on: rebuilt from the text that the prompt has of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.matcher import Matcher
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import Constraint
from engine.messages.reasoning_markers import ThoughtMarkers


def matcher_at_end(
    grammars: Grammars,
    tokenizer: Tokenizer,
    constraint: Constraint,
    prompt: Sequence[int],
    begin: int | None,
    begun: str,
) -> Matcher:
    """The state after the answer that a prompt ends with.

    The answer begins at token `begin` of the prompt; None: its text is `begun`, usually empty.
    Raises RequestError for a grammar that is refused, or that the answer does not match.
    """
    matcher = Matcher(grammars.compile(constraint))
    if begin is None:
        begin = token_at(tokenizer, prompt, begun.encode("utf-8", "replace"))
    matcher.begin = begin
    # A text that begins inside a token is read as if it were tokenized alone.
    matcher.read(tokenizer.encode_within(begun) if begin is None else prompt[begin:])
    return matcher


def after_thoughts(
    constraint: Constraint | None, begun: str, markers: ThoughtMarkers
) -> tuple[Constraint | None, str]:
    """The constraint of an answer whose text so far may be thoughts, and what it has read of it.

    Thoughts stay free, but the answer does not end with them. `begun` is as the model writes it.
    """
    text = begun.lstrip()
    if constraint is None or constraint.trigger:
        return constraint, begun
    if text.startswith(markers.opens):
        free = replace(constraint, trigger=(markers.ends,), required=True)
        return free, text.removeprefix(markers.opens)
    if markers.header and not text:  # it begins with a header: of thoughts, or of the answer
        return replace(constraint, trigger=(markers.ends, markers.header), required=True), ""
    return constraint, begun.removeprefix(markers.header)


def token_at(tokenizer: Tokenizer, prompt: Sequence[int], text: bytes) -> int | None:
    """The token of a prompt where the text that it ends with begins; None: inside a token."""
    begin = len(prompt)
    while text and begin:
        begin -= 1
        piece = tokenizer.piece(prompt[begin])
        if not text.endswith(piece):
            return None
        text = text[: len(text) - len(piece)]
    return None if text else begin
