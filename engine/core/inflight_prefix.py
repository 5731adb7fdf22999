"""Sharing of prompts that are being processed: what begins alike is processed once."""

from __future__ import annotations

from collections.abc import Sequence

from engine.core.request import SequenceGroup
from engine.core.sequence import RunningSequence
from engine.state.prefix_tree import PrefixTree, common_length

_WORTH_SHARING = 16  # tokens of a prompt; sharing them costs a copy of a page


def is_in_progress(
    item: SequenceGroup | RunningSequence, running: Sequence[RunningSequence], tree: PrefixTree
) -> bool:
    """Whether a prompt is being processed that begins as this one: it is not done twice."""
    request = item.request
    if not isinstance(item, SequenceGroup):
        return False
    for one in running:
        yields = one.request.priority > request.priority
        if not one.is_prefilling or yields or one.request.stack.key != request.stack.key:
            continue
        common = common_length([*one.sequence.tokens, *one.pending], request.prompt)
        if len(one.sequence) >= common or common < _WORTH_SHARING:
            continue
        known = tree.match(request.stack.key, request.prompt).length
        if common - known >= _WORTH_SHARING:
            return True
    return False


def share(
    stack: str, tokens: Sequence[int], running: Sequence[RunningSequence], tree: PrefixTree
) -> None:
    """Add to the tree what an answer in progress has processed of these tokens."""
    known = tree.match(stack, tokens).length
    for one in running:
        if one.request.stack.key != stack:
            continue
        if common_length(one.sequence.tokens, tokens) - known >= _WORTH_SHARING:
            tree.insert(stack, one.sequence, checkpoint=False)
            known = tree.match(stack, tokens).length
