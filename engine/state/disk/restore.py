"""Choice of what to restore: the saved sequences that share most with a prompt, or the refusal.

Pages of any conversation are usable if model, adapters and cache type match: a copied or branched
conversation restores what the original saved. This module does not import torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.errors import Fault, FaultKind, SnapshotError
from engine.state.disk.page_file import StateKey
from engine.state.disk.sequence_file import SavedSequence
from engine.state.disk.store import PageStore

# Prefilling fewer tokens is faster than restoring another conversation's pages.
MIN_GAIN = 16  # tokens
_MAX_NAMES, _MAX_CHARACTERS = 4, 64  # of text from a file in an error message


@dataclass(frozen=True, slots=True)
class Match:
    """A saved sequence that shares a prefix with a prompt."""

    saved: SavedSequence
    tokens: int  # of the sequence, that the prompt shares and whose pages are on the disk


def candidates(
    sequences: Iterable[SavedSequence],
    shared_length: Callable[[SavedSequence], int],
    cached: int,
    conversation: str,
) -> list[SavedSequence]:
    """The sequences worth a look: the conversation's own, and those that share enough.

    Enough are `MIN_GAIN` tokens more than `cached`; `shared_length` returns how many of a
    sequence's tokens are a prefix of the prompt. "" means no conversation. To compare their keys
    needs the model's hash, which may take seconds, hence this first step.
    """
    return [
        saved
        for saved in sequences
        if (conversation and saved.belongs_to(conversation))
        or (saved.fault is None and shared_length(saved) >= cached + MIN_GAIN)
    ]


def matches(
    store: PageStore,
    sequences: Iterable[SavedSequence],
    key: StateKey,
    shared_length: Callable[[SavedSequence], int],
    *,
    windows: Sequence[int],
    cached: int,
    conversation: str,
    in_memory: Callable[[SavedSequence, int], Sequence[Sequence[object]]] = lambda saved, end: (),
) -> list[Match]:
    """The sequences of this key with more of the prompt than `cached` tokens, longest first.

    Among equals the most recently used comes first. A sequence of another conversation must have
    `MIN_GAIN` tokens more. `windows` as in `store.needed_parts`; `in_memory` returns for each page
    of so many tokens of a sequence its parts in memory, which need not be on the disk.
    """
    found: list[Match] = []
    for saved in sequences:
        if saved.fault is not None or saved.key != key:
            continue
        own = bool(conversation) and saved.belongs_to(conversation)
        least = cached + (1 if own else MIN_GAIN)
        if (shared := shared_length(saved)) < least:
            continue
        tokens = store.usable_prefix(saved, windows, shared, in_memory(saved, shared))
        if tokens >= least:
            found.append(Match(saved, tokens))
    return sorted(found, key=lambda match: -match.tokens)


def refusal(
    store: PageStore,
    sequences: Iterable[SavedSequence],
    key: StateKey,
    context: int,
    conversation: str,
    encoder: str = "",
) -> SnapshotError | None:
    """Why none of the conversation's own sequences is usable, that of the last one used.

    None if one is usable or none exists. Damaged ones are deleted, so that they are refused once.
    """
    reasons: list[SnapshotError] = []
    usable = False
    for saved in sequences:
        if not conversation or not saved.belongs_to(conversation):
            continue
        try:
            check_origin(saved, key, context, encoder)
            usable = True
        except SnapshotError as error:
            reasons.append(error)
            if saved.fault is not None and saved.fault.fault.kind is FaultKind.SAVED_DAMAGED:
                store.delete(saved)
    if usable:
        return None
    return reasons[0] if reasons else store.removed.refusal(conversation)


def check_origin(saved: SavedSequence, key: StateKey, context: int, encoder: str = "") -> None:
    """Raise SnapshotError for another model, adapter stack, cache type, size or version.

    Or, if the sequence has images, for another picture `encoder`, by its key.
    """
    if saved.fault is not None:
        raise saved.fault
    if saved.key.model_sha256 != key.model_sha256:
        name = _printable(saved.metadata.get("model", ""))
        raise SnapshotError(
            f"The session was saved with another model{f', {name}' if name else ''}.",
            "Load that model, or process the conversation again.",
            Fault(FaultKind.SAVED_MODEL, name),
        )
    if saved.key.stack != key.stack:
        raise SnapshotError(
            f"The session was saved {_adapters_clause(saved)}.",
            "Set the same adapters and strengths, or process the conversation again.",
            Fault(FaultKind.SAVED_ADAPTERS),
        )
    if saved.key.cache != key.cache:
        raise SnapshotError(
            f"The session was saved with a cache of type {_printable(saved.key.cache)}, "
            f"and the model is loaded with {key.cache}.",
            "Load the model with that cache type, or process the conversation again.",
            Fault(FaultKind.SAVED_CACHE),
        )
    if replace(saved.key, computation=key.computation) != key:
        raise SnapshotError(
            "The session was saved with another layout of the cache.",
            "The conversation is processed again instead.",
            Fault(FaultKind.SAVED_VERSION),
        )
    if saved.key != key:
        raise SnapshotError(
            "When the session was saved, the model ran with another context size or on another device.",
            "Load the model as it was then, or process the conversation again.",
            Fault(FaultKind.SAVED_COMPUTATION),
        )
    if any(one.encoder != encoder for one in saved.images):
        raise SnapshotError(
            "The session has pictures that another picture encoder read.",
            "Load the model with that encoder, or process the conversation again.",
            Fault(FaultKind.SAVED_MODEL),
        )
    tokens = len(saved.tokens)
    if tokens > context:
        raise SnapshotError(
            f"The saved session holds {tokens:,} tokens, and the context only {context:,}.",
            "Load the model with a larger context, or process the conversation again.",
            Fault(FaultKind.SAVED_LENGTH),
        )


def _printable(text: str) -> str:
    """Text from a file for an error message: truncated, without unprintable characters."""
    return "".join(letter for letter in text[:_MAX_CHARACTERS] if letter.isprintable())


def _adapters_clause(saved: SavedSequence) -> str:
    names = list(_adapter_names(saved.metadata.get("adapters", "")))
    if not saved.key.stack or not names:
        return "without adapters"
    more = ", ..." if len(names) > _MAX_NAMES else ""
    return f"with other adapters or strengths ({', '.join(names[:_MAX_NAMES])}{more})"


def _adapter_names(text: str) -> Iterator[str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return
    for entry in found if isinstance(found, list) else ():
        if isinstance(entry, dict) and isinstance(name := entry.get("name"), str):
            yield _printable(f"{name} at {entry.get('strength')}")
