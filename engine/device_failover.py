"""Moves of a loaded model to the processor when its device fails in the middle of answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.errors import ModelFileError, OutOfMemory
from engine.loading.device_choice import PROCESSOR, failure, free_memory
from engine.loading.identity import stamps
from engine.loading.library import model_parts
from engine.loading.loader import LoadedModel, load
from engine.machine.device import memory_error
from engine.messages import Load
from engine.model_session import ModelSession


def move_to_processor(
    host: ModelSession,
    request: Load,
    fault: BaseException,
    checkpoint: Callable[[], None],
    unexpected: Callable[[BaseException], BaseException],
) -> bool:
    """Free the model that `request` loaded, load it on the processor, and continue its answers.

    `fault` is what the device raised. If the processor has no memory for the model, and for any
    other reason for which it cannot be loaded, the answers end with that error (`unexpected` makes
    one of what is no EngineError), the host is of no more use, and False is returned.
    """
    context, refusal = host.model.plan.context, failure(fault)
    files = host.files
    suspended = host.leave_device()
    free_memory()  # before the processor has the model: they may share their memory
    try:
        if files != stamps(model_parts(request.path)):
            raise ModelFileError(
                "The model's file has changed since it was loaded.", "Load the model again."
            )
        try:
            model = _loaded(request, context, checkpoint)
        except OutOfMemory:  # with as much context as the device had
            model = _loaded(request, request.context, checkpoint)
        host.go_on(replace(model, moved=refusal), suspended)
    except BaseException as error:  # noqa: BLE001  every answer must get its final event
        suspended.fail(memory_error(error) or unexpected(error))
        return False
    return True


def _loaded(request: Load, context: int, checkpoint: Callable[[], None]) -> LoadedModel:
    return load(
        request.path,
        device=PROCESSOR,
        context=context,
        threads=request.threads,
        cache=request.cache,
        embeddings=request.embeddings,
        ids_only=request.ids_only,
        sees=True,
        encoder=request.encoder,
        tokenizer_file=request.tokenizer,
        template=request.template,
        parallel=request.parallel,
        memory_bytes=request.memory_bytes,
        checkpoint=checkpoint,
    )
