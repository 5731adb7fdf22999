"""Preflight: checks of architecture, tensor shapes and memory before any tensor data is read.

Used by the loader, the library page and the command line, so that all of them report the same
error for the same file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial

from engine.errors import Fault, FaultKind, ModelFileError, RequestError
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
from engine.models.weights import Weights
from engine.state.kv_cache import Cache
from engine.tokenizer.vocabulary import Vocabulary
from kernels import backends
from kernels.backend import DECODING_BYTES, Backend
from kernels.formats import Format, by_name
from kernels.weight import Storage

_BLOCK = 256  # weights: a multiple of every format's block size
_TOKENS, _MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
_SENTENCEPIECE_ARCHITECTURES = ("gemma",)  # name prefixes; all others are byte-level

# `general.type` of GGUF files that are not models: description and remedy.
_OTHER_KINDS = {
    "adapter": ("an adapter, which changes a model", "Open its model, then add it as an adapter."),
    "mmproj": (
        "the image or audio encoder of a model (mmproj), without its language model",
        "Choose the file of the model itself.",
    ),
    "imatrix": ("an importance matrix, used to quantize models", "Choose the file of a model."),
}


def identify(file: GGUFFile) -> tuple[Build, Config]:
    """The builder and the configuration of the model.

    Raises ModelFileError for a file that is not a model, UnsupportedModel for an unknown one.
    """
    _refuse_other_kinds(file)
    return architecture(file), read_config(file)


def check(file: GGUFFile, config: Config, build: Build, vocabulary: Vocabulary) -> None:
    """Check everything except tensor values and token texts.

    Raises ModelFileError or UnsupportedModel naming the faulty key or tensor.
    """
    vocabulary.check(config)
    outline(file, config, build)


def outline(file: GGUFFile, config: Config, build: Build) -> Decoder:
    """Build the model with placeholder weights to check all shapes; raises as `check` does."""
    weights = Weights(file, read=False)
    decoder = build(file, weights, config.context)
    weights.refuse_unused_tensors()
    return decoder


def plan(
    file: GGUFFile,
    config: Config,
    backend: Backend,
    context: int,
    cache: CacheType,
    reclaimable: int = 0,
) -> MemoryPlan:
    """The memory plan of the model; raises OutOfMemory if it does not fit."""
    found = predict(file, config, backend, context, cache, reclaimable)
    if refused := refusal(found, context):
        raise refused
    return found


def plan_without(
    file: GGUFFile,
    config: Config,
    backend: Backend,
    context: int,
    cache: CacheType,
    before: MemoryPlan,
    formats: Collection[str],
    excluded: Collection[str],
) -> tuple[MemoryPlan, dict[str, Storage]]:
    """The plan and storage for a model whose weights of `formats` cannot use their kernels.

    The ops in `excluded`, which read no weights, run on the reference. The available memory is
    that of the plan `before`. Weights decoded to float32 are faster but up to 28 times as large: if
    they do not fit, they are kept in the file format. Raises OutOfMemory if that does not fit
    either.
    """
    available = before.available_bytes
    decoded = dict.fromkeys(formats, Storage.FLOAT32)
    predicted = partial(
        predict, file, config, backend, cache=cache, available=available, excluded=excluded
    )
    found = predicted(context=before.context, storage=decoded)
    if found.fits:
        return found, decoded
    stored = dict.fromkeys(formats, Storage.FILE)
    found = predicted(context=context, storage=stored)
    if refused := refusal(found, context):
        raise refused
    return found, stored


def predict(
    file: GGUFFile,
    config: Config,
    backend: Backend,
    context: int,
    cache: CacheType,
    reclaimable: int = 0,
    *,
    available: int | None = None,
    storage: Mapping[str, Storage] | None = None,
    excluded: Collection[str] = (),
) -> MemoryPlan:
    """The memory plan, whether or not it fits; `context` 0 chooses one that fits if possible.

    `reclaimable` bytes are in use now but will be freed before the load. `available` is measured
    if None; `storage` overrides how weights are stored, by format; ops in `excluded` run on the
    reference. Raises RequestError for a context below 0.
    """
    storage = storage or {}
    if context < 0:
        raise RequestError(
            f"The context is {context} tokens.", "Give 0 for the model's own, or more."
        )
    weights = sum(
        backend.held_bytes(info.format, info.shape, storage.get(info.format.name, Storage.BACKEND))
        for info in file.tensors.values()
    )
    decoding = DECODING_BYTES if Storage.FILE in storage.values() else 0
    vocabulary = vocabulary_bytes(
        file.length(_TOKENS),
        file.length(_MERGES),
        file.metadata.get("tokenizer.ggml.model") == "llama",
    )
    return plan_memory(
        _needs(shape(file, config), backend, weights + vocabulary, cache, decoding, excluded),
        context_wanted=context,
        context_model=config.context,
        available=available_memory() + reclaimable if available is None else available,
    )


def predict_shape(
    model: ModelShape, context: int, cache: CacheType, reclaimable: int = 0
) -> MemoryPlan:
    """The memory plan for a model that is not downloaded, as if all weights had one format."""
    backend = backends.choose()
    rows = -(-model.parameters // _BLOCK)
    weights = backend.held_bytes(_format(model.format), (rows, _BLOCK))
    sentencepiece = model.architecture.startswith(_SENTENCEPIECE_ARCHITECTURES)
    vocabulary = vocabulary_bytes(model.vocabulary, model.vocabulary, sentencepiece)
    return plan_memory(
        _needs(model, backend, weights + vocabulary, cache),
        context_wanted=context,
        context_model=model.context,
        available=available_memory() + reclaimable,
    )


def shape(file: GGUFFile, config: Config) -> ModelShape:
    """The sizes that determine memory use."""
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
        experts=config.experts,
        experts_per_token=config.experts_per_token,
    )


def main_format(file: GGUFFile) -> Format | None:
    """The format of most bytes in the matrices of the blocks; None if there are none."""
    sizes: Counter[str] = Counter()
    for info in file.tensors.values():
        if len(info.shape) > 1 and info.name.startswith("blk."):
            sizes[info.format.name] += info.size_bytes
    return by_name(sizes.most_common(1)[0][0]) if sizes else None


def layout(file: GGUFFile) -> str:
    """Description of the main format."""
    main = main_format(file)
    return main.words if main else ""


def kernels_in_use(file: GGUFFile, backend: Backend) -> dict[str, str]:
    """The kernels that a model on a backend uses: op and format to the backend that runs it."""
    return backend.in_use(sorted({info.format.name for info in file.tensors.values()}))


def slow_parts(kernels: Mapping[str, str]) -> tuple[SlowPart, ...]:
    """Parts of a model that run on the reference although `kernels` has faster backends.

    `kernels` is the result of `kernels_in_use`. Empty if everything runs on the reference: then it
    was selected, or there is no other backend.
    """
    missing = [op for op, backend in kernels.items() if backend == "reference"]
    if len(missing) == len(kernels):
        return ()
    return tuple(SlowPart(SlowReason.NO_KERNEL, op) for op in missing)


def parameters(file: GGUFFile) -> int:
    """The parameter count: elements of all tensors."""
    return sum(math.prod(info.shape) for info in file.tensors.values())


def _needs(
    model: ModelShape,
    backend: Backend,
    weights_bytes: int,
    cache: CacheType,
    decoding_bytes: int = 0,
    excluded: Collection[str] = (),
) -> Needs:
    """Memory requirements of a model; `decoding_bytes` is scratch to decode weights on the fly."""
    tokens = chunk_size(model.layer_weights, backend)
    per_token = Cache.bytes_per_token(model.layers, model.kv_heads, model.head_width, cache)
    recorded = backend.records_programs()
    ops = backend.ops.without(excluded)

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
        return scratch_bytes(model, tokens, attention, layer, recorded=recorded) + decoding_bytes

    return Needs(
        weights_bytes=weights_bytes, cache_bytes_per_token=per_token, scratch_bytes=scratch
    )


def _format(name: str) -> Format:
    """The format in the name of a quantization mix such as Q4_K_M; F32 if unknown."""
    for known in (name, name.rpartition("_")[0]):
        try:
            return by_name(known)
        except KeyError:
            continue
    return by_name("F32")


def _refuse_other_kinds(file: GGUFFile) -> None:
    """Raise ModelFileError for a GGUF file whose `general.type` is not a model."""
    kind = file.string("general.type", "model")
    if kind == "model" and file.string("general.architecture", "") == "clip":
        kind = "mmproj"  # in files older than the key general.type
    if kind in _OTHER_KINDS:
        what, remedy = _OTHER_KINDS[kind]
        raise ModelFileError(f"The file is {what}.", remedy, Fault(FaultKind.OTHER_TYPE, kind))
    if not file.tensors:
        raise ModelFileError(
            "The file holds a vocabulary and no model: it has no tensors.",
            "Choose the file of a complete model.",
            Fault(FaultKind.OTHER_TYPE, "vocabulary"),
        )
