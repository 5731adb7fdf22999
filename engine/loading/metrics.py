"""Reading the metrics of a loaded model and of the memory it uses."""

from __future__ import annotations

from engine.core.metrics import FIRST_TOKEN_SECONDS, TOKEN_SECONDS, TOKENS_PER_SECOND
from engine.core.scheduler import Scheduler
from engine.loading.loader import LoadedModel
from engine.machine.device import resident_memory
from engine.messages import MetricsRead
from kernels.backend.torch_backend import used_bytes


def read_metrics(
    model: LoadedModel, scheduler: Scheduler, request: int, saved_page_bytes: int = 0
) -> MetricsRead:
    """The metrics since `scheduler` was made; `saved_page_bytes` are on disk."""
    found, pool, active = scheduler.metrics, scheduler.pool, _active_page_bytes(scheduler)
    return MetricsRead(
        request,
        model=model.name,
        path=model.path,
        first_token_seconds=found.first_token.read(FIRST_TOKEN_SECONDS),
        token_seconds=found.token.read(TOKEN_SECONDS),
        prefill_tokens_per_second=found.prefill.read(TOKENS_PER_SECOND),
        decode_tokens_per_second=found.decode.read(TOKENS_PER_SECOND),
        answers=tuple((reason.value, count) for reason, count in found.answers.items()),
        running=scheduler.running,
        waiting=scheduler.waiting,
        prompt_tokens=found.prompt_tokens,
        reused_tokens=found.reused_tokens,
        generated_tokens=found.generated_tokens,
        drafted_tokens=found.drafted_tokens,
        accepted_tokens=found.accepted_tokens,
        prefill_seconds=found.prefill_seconds,
        decode_seconds=found.decode_seconds,
        passes=found.passes,
        pass_rows=found.pass_rows,
        drafts=found.drafts,
        longest_context=found.longest_context,
        embedded_tokens=found.embedded_tokens,
        active_page_bytes=active,
        cached_page_bytes=max(pool.used_bytes + pool.lent_bytes - active, 0),
        saved_page_bytes=saved_page_bytes,
        resident_bytes=resident_memory(),
        offloaded_layer_bytes=streamer.read_bytes if (streamer := model.decoder.streamer) else 0,
        device_bytes=sum(map(used_bytes, {one.device for one in model.decoder.placement.backends})),
    )


def _active_page_bytes(scheduler: Scheduler) -> int:
    """Bytes of the KV pages that answers in progress use; shared pages count once."""
    sizes = scheduler.pool.layout.page_bytes
    pages = {
        id(page): sizes[page.group]
        for sequence in scheduler.sequences
        for groups in sequence.pages
        for page in groups
        if page is not None
    }
    return sum(pages.values())
