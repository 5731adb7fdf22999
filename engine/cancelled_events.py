"""Final events of requests that were cancelled before they had an effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.machine.device import resident_memory
from engine.messages import (
    AdaptersSet,
    ApplyTemplate,
    Chat,
    CheckConstraint,
    Complete,
    ComputeLogits,
    ConstraintChecked,
    CountTokens,
    Detokenize,
    Detokenized,
    DevicesFound,
    DraftSet,
    Embed,
    Embedded,
    Event,
    FindDevices,
    Finished,
    FinishReason,
    Forget,
    Load,
    LogitsComputed,
    MeasureSpeed,
    Metrics,
    MetricsRead,
    ModelUnloaded,
    Request,
    Rerank,
    Reranked,
    Restore,
    Save,
    Score,
    Scored,
    SetAdapters,
    SetDraft,
    SnapshotLoaded,
    SnapshotSaved,
    SpeedMeasured,
    TemplateApplied,
    TextForgotten,
    Tokenize,
    Tokenized,
    TokensCounted,
)

if TYPE_CHECKING:
    from engine.model_session import ModelSession


def cancelled(request: int, cancelled: Request, host: ModelSession | None) -> Event:
    """The final event of a cancelled request; `host` has the model that is loaded."""
    match cancelled:
        case Chat() | Complete():  # cancelled before it started
            return _not_started(request)
        case SetAdapters():
            unchanged = AdaptersSet(request, (), changed=False)
            return unchanged if host is None else host.adapters(request)
        case SetDraft():
            return DraftSet(request, None) if host is None else host.draft(request)
        case Restore():
            return SnapshotLoaded(request, 0, 0, 0, 0.0, 0.0, "")
        case Save():
            return SnapshotSaved(request, 0, 0, 0.0, 0)
        case Forget():
            return TextForgotten(request, 0)
        case CountTokens():
            return TokensCounted(request, 0)
        case Tokenize():
            return Tokenized(request, ())
        case Detokenize():
            return Detokenized(request, "")
        case ApplyTemplate():
            return TemplateApplied(request, "", 0)
        case Load(beside=True, path=path):
            return ModelUnloaded(request, 0, resident_memory(), path)
        case Embed():
            return Embedded(request, (), 0)
        case Rerank():
            return Reranked(request, (), 0)
        case Score():
            return Scored(request, ())
        case ComputeLogits():
            return LogitsComputed(request, ())
        case MeasureSpeed():
            return SpeedMeasured(request)
        case CheckConstraint():
            return ConstraintChecked(request)
        case Metrics():
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
