"""Images of prompts: what is cached of a text with images, and rows that are encoded when due."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from engine.core.request import SequenceGroup
from engine.core.sequence import RunningSequence
from engine.errors import EngineError
from engine.state.prefix_tree import Match, PrefixTree
from engine.vision.registry import Image
from engine.vision.sight import Sight

_BESIDE_SECONDS = 0.12  # between passes of the answers beside an image that is encoded


def longest_cached(
    tree: PrefixTree, stack: str, tokens: Sequence[int], sight: Sight | None
) -> Match:
    """The longest cached prefix of a text but its last token, which divides no image's span.

    The last token is always computed: its logits give the first token of the answer.
    """
    most = len(tokens) - 1
    while True:
        match = tree.match(stack, tokens, most)
        most = match.length if sight is None else sight.fits(tokens, match.length)
        if most == match.length:
            return match


def encode_missing(
    sight: Sight | None,
    rows: Sequence[tuple[RunningSequence, int]],
    running: Sequence[RunningSequence],
    checkpoint: Callable[[], None],
    decode: Callable[[], None],
    fail: Callable[[SequenceGroup, EngineError], None],
) -> bool:
    """Encode the images that a pass over so many tokens of each needs; False: none is missing.

    Between layers `checkpoint` is called, which may raise to cancel, and now and then `decode`,
    which runs a pass of the answers beside them. A request whose image cannot be encoded fails.
    Rows that a prompt of the `running` ones still reads are not freed for others.
    """
    if sight is None:
        return False
    missing = [
        (one, image)
        for one, count in rows
        if one.is_prefilling
        for image in sight.missing(one.pending[:count])
    ]
    for one, image in missing:
        if one.group.done:  # another of its images could not be encoded
            continue
        started = decoded = time.perf_counter()

        def between() -> None:
            nonlocal decoded
            checkpoint()
            if time.perf_counter() - decoded > _BESIDE_SECONDS:
                decode()
                decoded = time.perf_counter()

        try:
            sight.encode(image, between, _needed(sight, running))
        except EngineError as error:
            fail(one.group, error)
        one.prefill_seconds += time.perf_counter() - started
    return bool(missing)


def free_images(sight: Sight | None, running: Sequence[RunningSequence]) -> None:
    """Free what images take and no prompt of the running ones still reads, after memory ran out."""
    if sight is not None:
        sight.free(_needed(sight, running))


def _needed(sight: Sight, running: Sequence[RunningSequence]) -> set[Image]:
    """The images whose rows these prompts still read."""
    prompts = (one.pending for one in running if one.is_prefilling)
    return {image for tokens in prompts for _, image in sight.registry.in_text(tokens)}
