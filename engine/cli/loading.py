"""What the options of the command line name: the model, its adapters and its draft model."""

from __future__ import annotations

import sys

from engine.adapters.stack import Stack, load_adapter
from engine.cli import options as options_of
from engine.cli.options import Options
from engine.loading.device_choice import PROCESSOR
from engine.loading.library import find_model
from engine.loading.loader import LoadedModel, load
from engine.loading.memory import MemoryPlan, Paging


def load_model(
    options: Options, *, embeddings: bool = False, ids_only: bool = False
) -> LoadedModel:
    """The model of --model; with `embeddings`, also one that only makes these or scores documents.

    With `ids_only` the model reads no text, so also one without a vocabulary.
    """
    model = load(
        find_model(options.model),
        device=options_of.device(options),
        backend=options.backend,
        parts=options_of.placement(options),
        context=options.context,
        threads=options.threads,
        cache=options_of.cache_type(options),
        embeddings=embeddings,
        tokenizer_file=options_of.tokenizer(options),
        ids_only=ids_only,
        memory_bytes=options_of.memory(options),
        planned=_say_if_paged,
    )
    if model.moved is not None:
        print(f"{model.moved.text} {_where(model)}", file=sys.stderr, flush=True)
    return model


def _where(model: LoadedModel) -> str:
    """A sentence on what runs the model instead."""
    on_gpu = sum(one.layers for one in model.runs_on if one.name != PROCESSOR)
    others = "The other layers run on the processor." if on_gpu else ""
    return others or "The model runs on the processor."


def _say_if_paged(plan: MemoryPlan) -> None:
    """Say before a load that the model will be slow, and how slow."""
    if plan.paging is not None:
        print(paging_words(plan.paging), file=sys.stderr, flush=True)


def paging_words(paging: Paging) -> str:
    """A sentence on what is read from the disk for each token, and how long that takes."""
    read = f"{len(paging.layers)} of its layers ({paging.token_bytes / 1e9:.1f} GB) are read"
    if paging.expert_slots:
        read = (
            f"of {len(paging.layers)} layers the experts that are used, about "
            f"{paging.token_bytes / 1e9:.1f} GB, are read"
        )
    time = f", which takes about {paging.token_seconds:.2g} s" if paging.token_seconds else ""
    return f"The model does not fit in memory: {read} from the disk for each token{time}."


def adapter_stack(options: Options, model: LoadedModel) -> Stack:
    """The adapters of every --lora."""
    base = model.decoder.base
    return Stack(
        [(load_adapter(use.path, base), use.strength) for use in options_of.adapters(options)]
    )
