"""Facts about a loaded model, as the event that says it is ready has them."""

from __future__ import annotations

from engine.frontend.infill import can_infill
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.loading.loader import LoadedModel
from engine.loading.memory import NO_OFFLOADING
from engine.machine.device import resident_memory
from engine.messages import ModelLoaded


def model_facts(
    model: LoadedModel, request: int, held_bytes: int, *, beside: bool = False
) -> ModelLoaded:
    """The event of a request that describes a model, which holds so much memory now."""
    offloading = model.plan.offloading or NO_OFFLOADING
    return ModelLoaded(
        request=request,
        path=model.path,
        name=model.name,
        architecture=model.config.architecture,
        layout=model.layout,
        parameters=model.parameters,
        context=model.plan.context,
        file_bytes=model.file_bytes,
        memory_bytes=model.plan.total_bytes,
        kernels=model.backends,
        slow=model.slow,
        template=model.template.built_in,
        template_problem=_template_problem(model),
        vocabulary=model.vocabulary,
        format=model.format,
        base=model.base,
        has_thinking_switch=model.template.has_thinking_switch,
        can_think=model.template.markers.can_think,
        can_call=model.template.tool_style.is_native,
        seconds=model.seconds,
        resident_bytes=resident_memory(),
        held_bytes=held_bytes,
        cache=model.cache,
        sampling=model.sampling,
        sampling_fields=model.recommended.fields,
        sampling_unusable=model.recommended.unusable,
        offloaded_layers=len(offloading.layers),
        offloaded_bytes=offloading.token_bytes,
        offloaded_experts=offloading.expert_slots > 0,
        offloaded_seconds=offloading.token_seconds,
        runs_on=model.runs_on,
        moved=model.moved,
        beside=beside,
        template_source=model.template.source,
        begin=_shown(model.tokenizer, model.tokenizer.bos),
        end=_shown(model.tokenizer, model.tokenizer.eos),
        parallel=model.parallel,
        can_infill=can_infill(model.tokenizer),
        encoder=None if model.encoder is None else model.encoder.path,
        blind=model.blind,
    )


def _template_problem(model: LoadedModel) -> str:
    """Why the template cannot be used for a chat; "" also for a model that does not answer."""
    found = None if model.decoder.is_encoder else model.template.problem
    return found.sentence if found else ""


def _shown(tokenizer: Tokenizer, token: int | None) -> str:
    """The text of a special token."""
    return "" if token is None else tokenizer.piece(token).decode("utf-8", "replace")
