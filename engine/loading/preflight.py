"""What a model file is and needs, found out before any of its tensors is read.

Loading begins with it, and the page of models and the command line show it, so that a file is
refused everywhere in the same words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping

from engine.errors import ModelFileError, RequestError
from engine.gguf.reader import GGUFFile
from engine.host.device import available_memory
from engine.inference.session import chunk_size
from engine.loading.memory import (
    MemoryPlan,
    ModelShape,
    Needs,
    plan_memory,
    refusal,
    scratch_bytes,
    vocabulary_bytes,
)
from engine.messages import CacheType, SlowPart, SlowReason
from engine.models import Build, architecture
from engine.models.config import Config, read_config
from engine.models.layers import Decoder
from engine.models.recording import obstacles
from engine.models.weights import Weights
from engine.state.kv_cache import Cache
from engine.tokenizer.vocabulary import Vocabulary
from kernels import ops
from kernels.formats import Format, by_name
from kernels.weight import Storage

_BLOCK = 256  # weights: whole blocks of every format
_TOKENS, _MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
_SENTENCEPIECE_ARCHITECTURES = ("gemma",)  # their names begin so; all others are byte-level

# What a GGUF file that is no model calls itself, and what to do with it.
_OTHER_KINDS = {
    "adapter": ("an adapter, which changes a model", "Open its model, then add it as an adapter."),
    "mmproj": (
        "the part of a model that sees pictures or hears sound, without the part that writes",
        "Choose the file of the model itself.",
    ),
    "imatrix": ("a table that was used to make smaller models", "Choose the file of a model."),
}


def identify(file: GGUFFile) -> tuple[Build, Config]:
    """What builds the model, and its sizes.

    Raises ModelFileError or UnsupportedModel for a file that is no model, or none of ours.
    """
    _refuse_other_kinds(file)
    return architecture(file), read_config(file)


def check(file: GGUFFile, config: Config, build: Build, vocabulary: Vocabulary) -> None:
    """Check everything but the values of tensors and the texts of the vocabulary.

    Raises ModelFileError or UnsupportedModel, naming the key or tensor at fault.
    """
    vocabulary.check(config)
    outline(file, config, build)


def outline(file: GGUFFile, config: Config, build: Build) -> Decoder:
    """The model without the values of its weights; raises as `check` does."""
    weights = Weights(file, read=False)
    decoder = build(file, weights, config.context)
    weights.refuse_unused_tensors()
    return decoder


def plan(
    file: GGUFFile, config: Config, context: int, cache: CacheType, reclaimable: int = 0
) -> MemoryPlan:
    """What the model will hold in memory; raises OutOfMemory when that is more than there is."""
    found = predict(file, config, context, cache, reclaimable)
    if refused := refusal(found, context):
        raise refused
    return found


def plan_without(
    file: GGUFFile,
    config: Config,
    context: int,
    cache: CacheType,
    before: MemoryPlan,
    formats: Collection[str],
) -> tuple[MemoryPlan, dict[str, Storage]]:
    """A plan for a model whose weights of `formats` are to do without their kernels.

    The memory is that of the plan `before`. Decoded weights are faster but up to 28 times as large:
    where they do not fit, the file's bytes are held. Raises OutOfMemory where these do not either.
    """
    available = before.available_bytes
    decoded = dict.fromkeys(formats, Storage.FLOAT32)
    found = predict(file, config, before.context, cache, available=available, storage=decoded)
    if found.fits:
        return found, decoded
    stored = dict.fromkeys(formats, Storage.FILE)
    found = predict(file, config, context, cache, available=available, storage=stored)
    if refused := refusal(found, context):
        raise refused
    return found, stored


def predict(
    file: GGUFFile,
    config: Config,
    context: int,
    cache: CacheType,
    reclaimable: int = 0,
    *,
    available: int | None = None,
    storage: Mapping[str, Storage] | None = None,
) -> MemoryPlan:
    """The same whether or not it fits; `context` 0 takes what does, as far as that helps.

    `reclaimable` bytes are in use now but will be free by then. `available` bytes are measured
    where they are not given; `storage` is that of formats held in another way than their kernels
    want. Raises RequestError for a context below 0.
    """
    storage = storage or {}
    if context < 0:
        raise RequestError(
            f"The context is {context} tokens.", "Give 0 for the model's own, or more."
        )
    weights = sum(
        ops.held_bytes(info.format, info.shape, storage.get(info.format.name, Storage.BACKEND))
        for info in file.tensors.values()
    )
    decoding = ops.DECODING_BYTES if Storage.FILE in storage.values() else 0
    vocabulary = vocabulary_bytes(
        file.length(_TOKENS),
        file.length(_MERGES),
        file.metadata.get("tokenizer.ggml.model") == "llama",
    )
    return plan_memory(
        _needs(shape(file, config), weights + vocabulary, cache, decoding),
        context_wanted=context,
        context_model=config.context,
        available=available_memory() + reclaimable if available is None else available,
    )


def predict_shape(
    model: ModelShape, context: int, cache: CacheType, reclaimable: int = 0
) -> MemoryPlan:
    """The same for a model that is not here: all weights count as of its one format."""
    rows = -(-model.parameters // _BLOCK)
    weights = ops.held_bytes(_format(model.format), (rows, _BLOCK))
    sentencepiece = model.architecture.startswith(_SENTENCEPIECE_ARCHITECTURES)
    vocabulary = vocabulary_bytes(model.vocabulary, model.vocabulary, sentencepiece)
    return plan_memory(
        _needs(model, weights + vocabulary, cache),
        context_wanted=context,
        context_model=model.context,
        available=available_memory() + reclaimable,
    )


def shape(file: GGUFFile, config: Config) -> ModelShape:
    """The sizes memory follows from."""
    main = main_format(file)
    return ModelShape(
        architecture=config.architecture,
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_width=config.head_width,
        feed_forward=config.feed_forward,
        vocabulary=config.vocabulary,
        context=config.context,
        format=main.name if main else "",
        parameters=parameters(file),
    )


def main_format(file: GGUFFile) -> Format | None:
    """The format that most bytes of the blocks' matrices are in; None where there are none."""
    held: Counter[str] = Counter()
    for info in file.tensors.values():
        if len(info.shape) > 1 and info.name.startswith("blk."):
            held[info.format.name] += info.size_bytes
    return by_name(held.most_common(1)[0][0]) if held else None


def layout(file: GGUFFile) -> str:
    """The main format in words."""
    main = main_format(file)
    return main.words if main else ""


def kernels_in_use(file: GGUFFile) -> dict[str, str]:
    """Which backend runs each op on the formats of this file."""
    return ops.in_use(sorted({info.format.name for info in file.tensors.values()}))


def slow_parts(decoder: Decoder, kernels: Mapping[str, str]) -> tuple[SlowPart, ...]:
    """What of a model is slower than `kernels`, as found by `kernels_in_use`, could run it.

    Nothing where all of it runs on the reference: that is a choice, or there is nothing faster.
    """
    missing = [op for op, backend in kernels.items() if backend == "reference"]
    if len(missing) == len(kernels):
        return ()
    return (*obstacles(decoder), *(SlowPart(SlowReason.NO_KERNEL, op) for op in missing))


def parameters(file: GGUFFile) -> int:
    """How many numbers the file's tensors hold."""
    return sum(math.prod(info.shape) for info in file.tensors.values())


def _needs(model: ModelShape, held: int, cache: CacheType, decoding: int = 0) -> Needs:
    """What a model takes whose weights and vocabulary take `held` bytes, and products `decoding`."""
    tokens = chunk_size(model.layer_weights)
    per_token = Cache.bytes_per_token(model.layers, model.kv_heads, model.head_width, cache)

    def scratch(context: int) -> int:
        attention = ops.attention_bytes(
            min(tokens, context) or 1,
            context or 1,
            model.heads,
            model.kv_heads,
            model.head_width,
            Cache.storage_dtype(cache),
        )
        layer = per_token * context // model.layers
        return scratch_bytes(model, tokens, attention, layer) + decoding

    return Needs(weights_bytes=held, cache_bytes_per_token=per_token, scratch_bytes=scratch)


def _format(name: str) -> Format:
    """The format a recipe such as Q4_K_M is named for; one this version lacks counts as float32."""
    for known in (name, name.rpartition("_")[0]):
        try:
            return by_name(known)
        except KeyError:
            continue
    return by_name("F32")


def _refuse_other_kinds(file: GGUFFile) -> None:
    """Raise ModelFileError for a file that says of itself that it is no model."""
    kind = file.string("general.type", "model")
    if kind == "model" and file.string("general.architecture", "") == "clip":
        kind = "mmproj"  # as they were written before files named their type
    if kind in _OTHER_KINDS:
        what, remedy = _OTHER_KINDS[kind]
        raise ModelFileError(f"The file is {what}.", remedy)
    if not file.tensors:
        raise ModelFileError(
            "The file holds a vocabulary and no model: it can cut text into tokens, but not answer.",
            "Choose the file of a complete model.",
        )
