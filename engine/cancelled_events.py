"""Final events of commands that were cancelled before they had an effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.machine.device import resident_memory
from engine.messages import (
    AdaptersSet,
    CheckConstraint,
    Command,
    ConstraintChecked,
    CountTokens,
    DevicesFound,
    DraftSet,
    Embed,
    Embedded,
    Event,
    FindDevices,
    Finished,
    FinishReason,
    Generate,
    LoadSnapshot,
    MetricsRead,
    ModelUnloaded,
    ReadMetrics,
    Rerank,
    Reranked,
    SaveSnapshot,
    SetAdapters,
    SetDraft,
    SnapshotLoaded,
    SnapshotSaved,
    TokensCounted,
)

if TYPE_CHECKING:
    from engine.model_session import ModelSession


def cancelled(command: Command, host: ModelSession | None) -> Event:
    """The final event of a cancelled command; `host` has the model that is loaded."""
    request = command.request
    match command:
        case Generate():  # cancelled before it started
            return _not_started(request)
        case SetAdapters():
            unchanged = AdaptersSet(request, (), changed=False)
            return unchanged if host is None else host.adapters(request)
        case SetDraft():
            return DraftSet(request, None) if host is None else host.draft(request)
        case LoadSnapshot():
            return SnapshotLoaded(request, 0, 0, 0, 0.0, 0.0, "")
        case SaveSnapshot():
            return SnapshotSaved(request, 0, 0, 0.0, 0)
        case CountTokens():
            return TokensCounted(request, 0)
        case Embed():
            return Embedded(request, (), 0)
        case Rerank():
            return Reranked(request, (), 0)
        case CheckConstraint():
            return ConstraintChecked(request)
        case ReadMetrics():
            return MetricsRead(request)
        case FindDevices():
            return DevicesFound(request, ())
        case _ if host is None:
            return ModelUnloaded(request, 0, resident_memory())
        case _:  # a load was cancelled before the previous model was unloaded
            return host.loaded(request)


def _not_started(request: int) -> Finished:
    return Finished(
        request,
        FinishReason.CANCELLED,
        prompt_tokens=0,
        reused_tokens=0,
        generated_tokens=0,
        prefill_seconds=0.0,
        decode_seconds=0.0,
        context_used=0,
    )
