"""Placement plan: the backend of each layer, the bytes on each device, the storage of weights.

Weights without a kernel are decoded to float32, which is faster but takes up to 28 times the bytes,
only where the plan has room for that; else they stay packed and are decoded for every product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from engine.adapters.stack import EMBEDDING, HEAD
from engine.core.runner import MOST_TEXTS, chunk_size
from engine.errors import RequestError
from engine.gguf.reader import GGUFFile
from engine.loading.memory import (
    HOST,
    DeviceNeeds,
    MemoryPlan,
    ModelShape,
    Needs,
    Offloading,
    plan_memory,
    refusal,
    scratch_bytes,
    usual_context,
    vocabulary_bytes,
)
from engine.loading.offloading import (
    OFFLOADED_CONTEXT,
    device_of,
    expert_bytes,
    layer_bytes,
    timed,
    with_offloading,
)
from engine.loading.preflight import shape, states_of
from engine.machine.device import available_memory, total_memory
from engine.messages import CacheType, SlowPart, SlowReason
from engine.models.config import Config
from engine.models.weights import FILE_TABLES, Storages, backend_of
from engine.state.pages import STATE_PAGES, storage_dtype
from engine.vision.encoder_memory import EncoderSizes
from engine.vision.registry import ROWS_BYTES
from kernels import backends
from kernels.backend.backend import DECODING_BYTES, Backend
from kernels.backend.placement import Placement
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout
from kernels.states.layer_state import LayerShape, SharedState
from kernels.weights.formats import Format, by_name
from kernels.weights.weight import Storage

_BLOCK = 256  # weights: a multiple of every format's block size
_TOKENS, _MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
_SENTENCEPIECE_ARCHITECTURES = ("gemma", "gemma2", "gemma3", "gemma3n")  # all others have merges

Tensors = Sequence[tuple[Backend, Format, Sequence[int]]]  # backend, format and shape of each


def place(layers: int, backend: str = "", parts: Sequence[tuple[str, int]] = ()) -> Placement:
    """The placement of a model of so many layers: on one backend, or split in `parts`.

    Each part names a backend, see `backends.choose`, and its number of layers; 0, of the last part
    only, means the rest. Raises RequestError for an unknown backend or other numbers of layers.
    """
    try:
        if not parts:
            return Placement.on(backends.choose(backend), layers)
        chosen = [(backends.choose(name), count) for name, count in parts]
    except ValueError as error:
        raise RequestError(str(error), "Choose one of these.") from None
    counts = [count for _, count in chosen]
    if counts[-1] == 0:
        counts[-1] = layers - sum(counts)
    if min(counts) < 1 or sum(counts) != layers:
        raise RequestError(
            f"The parts {', '.join(f'{name}={count}' for name, count in parts)} do not divide the "
            f"{layers} layers of the model.",
            f"Give numbers of layers that add up to {layers}, each at least 1; the last may be "
            "left out.",
        )
    return Placement.split([(one, count) for (one, _), count in zip(chosen, counts, strict=True)])


def is_divisible(file: GGUFFile, config: Config) -> bool:
    """Whether the layers of a model can be divided between devices, where only the stream moves.

    They cannot where they also read embeddings of their own, or keys of earlier layers.
    """
    shared = file.integer(f"{config.architecture}.attention.shared_kv_layers", 0)
    return not shared and not any(name in file.tensors for name in FILE_TABLES)


def refuse_division(file: GGUFFile, config: Config, placement: Placement) -> None:
    """Raise RequestError for a placement on several backends of a model that cannot be divided."""
    if len(placement.backends) > 1 and not is_divisible(file, config):
        names = " and ".join(one.name for one in placement.backends)
        raise RequestError(
            f"The layers of a {config.architecture} model cannot be divided between {names}: they "
            "read more of the first layers than the stream between them.",
            "Give one backend all layers.",
        )


# --- memory -------------------------------------------------------------------------------------


def plan(
    file: GGUFFile,
    config: Config,
    placement: Placement,
    context: int,
    cache: CacheType,
    reclaimable: int = 0,
    limit: int = 0,
    kept: Mapping[str, int] | None = None,
    encoder: EncoderSizes | None = None,
) -> tuple[MemoryPlan, Storages]:
    """The memory plan of a model, and how its weights are stored other than `prepare` prefers.

    Raises OutOfMemory if it does not fit even with all layers offloaded.
    """
    found, storage = predict(
        file,
        config,
        placement,
        context,
        cache,
        reclaimable,
        limit=limit,
        kept=kept,
        encoder=encoder,
    )
    if refused := refusal(found, context):
        raise refused
    return found, storage


def plan_without(
    file: GGUFFile,
    config: Config,
    placement: Placement,
    context: int,
    cache: CacheType,
    before: MemoryPlan,
    weights: Collection[tuple[str, str]],
    refused: Mapping[str, Collection[str]],
    encoder: EncoderSizes | None = None,
) -> tuple[MemoryPlan, Storages]:
    """The plan and storage for a model some of whose kernels failed their check.

    `weights` are the backends and formats that cannot use their kernels, `refused` has by backend
    the ops without weights that run on the reference. The available memory is that of the plan
    `before`, and so is the context. The user was told its total: these weights are only decoded to
    float32 within it, and stay packed otherwise. Raises OutOfMemory if nothing fits.
    """
    found, storage = predict(
        file,
        config,
        placement,
        context,
        cache,
        available=_host_bytes(before),
        limit=before.limit_bytes,
        weights=weights,
        refused=refused,
        before=before,
        encoder=encoder,
    )
    if error := refusal(found, context):
        raise error
    return found, storage


def predict(
    file: GGUFFile,
    config: Config,
    placement: Placement,
    context: int,
    cache: CacheType,
    reclaimable: int = 0,
    *,
    available: int | None = None,
    limit: int = 0,
    kept: Mapping[str, int] | None = None,
    weights: Collection[tuple[str, str]] = (),
    refused: Mapping[str, Collection[str]] | None = None,
    before: MemoryPlan | None = None,
    encoder: EncoderSizes | None = None,
) -> tuple[MemoryPlan, Storages]:
    """The plan and storage of a model, whether or not it fits; see `plan` and `plan_without`.

    `context` 0 chooses one that fits if possible, after a failed check that of the plan `before`.
    `reclaimable` bytes of the host are in use now but will be freed before the load; below 0: models
    that stay may yet take as many. `kept` is what these may come to take of other devices, by torch's
    name; of what this process has there, all else is freed. `available` bytes of the host are measured
    if None; at most `limit` of them are used, if that is not 0. Of a model that does not fit, layers are
    offloaded. Raises RequestError for a context or a limit below 0.

    `encoder` is its picture encoder, for which room is kept. Of a model that fits without it only,
    the plan has none: its `encoder_bytes` are 0.
    """
    if context < 0:
        raise RequestError(
            f"The context is {context} tokens.", "Give 0 for the model's own, or more."
        )
    if limit < 0:
        raise RequestError(
            f"The memory limit is {limit} bytes.", "Give 0 for what is free, or more."
        )
    tensors = _placed_tensors(file, placement)
    vocabulary = vocabulary_bytes(
        file.length(_TOKENS),
        file.length(_MERGES),
        file.metadata.get("tokenizer.ggml.model") == "llama",
    )
    model = shape(file, config)
    free = available_memory() + reclaimable if available is None else available
    failed = {name for name, _ in weights}.union(refused or {})
    usual = 0 if model.is_encoder else usual_context(total_memory())

    def planned(
        context: int,
        storage: Storages,
        offloading: Offloading | None = None,
        encoder: EncoderSizes | None = encoder,
    ) -> MemoryPlan:
        host, others = _needs(
            model,
            placement,
            tensors,
            vocabulary,
            cache,
            storage,
            refused or {},
            failed,
            offloading,
            encoder,
        )
        if reclaimable or kept:
            others = [_freed(one, placement, (kept or {}).get(one.device, 0)) for one in others]
        found = plan_memory(
            host,
            context_wanted=context,
            context_model=config.context,
            available=free,
            others=others,
            limit=limit,
            context_usual=OFFLOADED_CONTEXT if offloading else usual,
        )
        return replace(found, offloading=offloading)

    found, storage = _choose_storage(planned, tensors, context, weights, before)
    if found.fits:
        return found, storage
    if encoder is not None:
        unseeing = partial(planned, encoder=None)
        other, kept_as = _choose_storage(unseeing, tensors, context, weights, before)
        if other.fits:
            return other, kept_as
    packed = _packed(tensors, weights)
    wanted = before.context if before else context
    experts = expert_bytes(file, placement, packed, config.experts_per_token)
    layers = layer_bytes(file, placement, packed)
    offloaded = with_offloading(
        experts, layers, lambda offloading: planned(wanted, packed, offloading)
    )
    if offloaded is None or offloaded.offloading is None:
        return found, storage
    if not offloaded.fits:
        return replace(found, least_bytes=offloaded.total_bytes), storage
    return replace(
        offloaded, offloading=timed(offloaded.offloading, file.paths[0], config.loops)
    ), packed


def _freed(needs: DeviceNeeds, placement: Placement, kept: int) -> DeviceNeeds:
    """The needs on a device, of which this process then has no more than what is `kept`."""
    own = next(one for one in placement.backends if str(one.device) == needs.device)
    free = needs.available_bytes + own.reserved_bytes() - kept
    return replace(needs, available_bytes=max(free, 0))


def predict_shape(
    model: ModelShape, context: int, cache: CacheType, reclaimable: int = 0
) -> MemoryPlan:
    """The memory plan for a model that is not downloaded, as if all weights had one format.

    A mix has some weights with more bits: as many are counted as fill its file.
    """
    placement = Placement.on(backends.choose(), model.layers)
    format = _format(model.format)
    weights = max(model.parameters, model.file_bytes // format.size * format.block)
    tensors = [(placement.head, format, (-(-weights // _BLOCK), _BLOCK))]
    if model.groups:
        model = replace(model, states=states_of(model.groups))
    sentencepiece = model.architecture in _SENTENCEPIECE_ARCHITECTURES
    vocabulary = vocabulary_bytes(model.vocabulary, model.vocabulary, sentencepiece)

    def planned(context: int, storage: Storages) -> MemoryPlan:
        host, others = _needs(model, placement, tensors, vocabulary, cache, storage)
        return plan_memory(
            replace(host, encoder_bytes=model.encoder_bytes),
            context_wanted=context,
            context_model=model.context,
            available=available_memory() + reclaimable,
            others=others,
            context_usual=usual_context(total_memory()),
        )

    return _choose_storage(planned, tensors, context)[0]


def _choose_storage(
    planned: Callable[[int, Storages], MemoryPlan],
    tensors: Tensors,
    context: int,
    failed: Collection[tuple[str, str]] = (),
    before: MemoryPlan | None = None,
) -> tuple[MemoryPlan, Storages]:
    """The plan with weights decoded to float32 where they have no kernel, else with packed ones.

    Weights whose kernels `failed` are decoded only if the total is no more than that of `before`.
    """
    storage: Storages = dict.fromkeys(failed, Storage.FLOAT32)
    found = planned(before.context if before else context, storage)
    if before and found.total_bytes > before.total_bytes:
        stored: Storages = dict.fromkeys(failed, Storage.FILE)
        smaller = planned(before.context, stored)
        if smaller.total_bytes < found.total_bytes:
            found, storage = smaller, stored
    packed = _packed(tensors, failed)
    if found.fits or not packed:
        return found, storage
    smaller = planned(context, packed)
    if smaller.fits or smaller.total_bytes < found.total_bytes:
        return smaller, packed
    return found, storage


def _packed(tensors: Tensors, failed: Collection[tuple[str, str]]) -> Storages:
    """The storage in which weights without a working kernel stay packed."""
    return {
        (backend.name, format.name): Storage.FILE
        for backend, format, _ in tensors
        if backend.decodes(format) or (backend.name, format.name) in failed
    }


def _placed_tensors(file: GGUFFile, placement: Placement) -> Tensors:
    """Backend, format and shape of every tensor in memory; of a tied head too, if it is a copy."""
    tensors = [
        (backend_of(info.name, placement), info.format, info.shape)
        for info in file.tensors.values()
        if info.name not in FILE_TABLES
    ]
    if placement.head is not placement.embedding and HEAD not in file.tensors:
        tied = file.tensors.get(EMBEDDING)
        tensors += [(placement.head, tied.format, tied.shape)] if tied else []
    return tensors


def _needs(
    model: ModelShape,
    placement: Placement,
    tensors: Tensors,
    vocabulary: int,
    cache: CacheType,
    storage: Storages,
    refused: Mapping[str, Collection[str]] | None = None,
    failed: Collection[str] = (),
    offloading: Offloading | None = None,
    encoder: EncoderSizes | None = None,
) -> tuple[Needs, list[DeviceNeeds]]:
    """Memory requirements on the host, and on devices with memory of their own.

    `failed` are the backends whose programs are interpreted, since a kernel of theirs is wrong.
    """
    sizes: defaultdict[str, int] = defaultdict(int, {HOST: vocabulary})
    for backend, format, sizes_of in tensors:
        kept = storage.get((backend.name, format.name), Storage.BACKEND)
        sizes[device_of(backend)] += backend.held_bytes(format, sizes_of, kept)
    if offloading is not None:
        sizes[HOST] += offloading.held_bytes - offloading.saved_bytes
    decoding = {name for (name, _), kept in storage.items() if kept is Storage.FILE}
    chunk = chunk_size(model.layer_weights, placement, offloaded=offloading is not None)
    tokens = model.context if model.is_encoder else chunk
    layouts = {one.name: _layout(model, placement, one, cache) for one in placement.backends}
    free: dict[str, int] = {}
    scratch: defaultdict[str, list[Callable[[int], int]]] = defaultdict(list)
    pages: defaultdict[str, int] = defaultdict(int)  # bytes of 256 positions
    states: defaultdict[str, int] = defaultdict(int)  # bytes
    for backend in placement.backends:
        device = device_of(backend)
        free[device] = backend.free_bytes() or 0
        layout = layouts[backend.name]
        pages[device] += layout.kv_bytes_per_page
        states[device] += STATE_PAGES * layout.state_bytes
        ops = (refused or {}).get(backend.name, ())
        recorded = backend.records_programs() and backend.name not in failed
        fixed = DECODING_BYTES if backend.name in decoding else 0
        page = layout.kv_bytes_per_page
        scratch[device].append(_scratch(model, backend, cache, tokens, ops, recorded, page, fixed))
    pictures: defaultdict[str, int] = defaultdict(int)
    if encoder is not None:
        first = placement.layers[0]  # which the encoder is beside; its rows are kept by the host
        pictures[device_of(first)] += encoder.device_bytes(first)
        pictures[HOST] += ROWS_BYTES
    needs = {
        device: Needs(
            sizes[device],
            -(-pages[device] // PAGE_TOKENS),
            _sum(scratch[device]),
            states[device],
            pictures[device],
        )
        for device in {HOST: 0, **free}
    }
    others = [DeviceNeeds(name, needs[name], free[name]) for name in needs if name != HOST]
    return needs[HOST], others


def _scratch(
    model: ModelShape,
    backend: Backend,
    cache: CacheType,
    tokens: int,
    excluded: Collection[str],
    recorded: bool,
    page_bytes: int,
    fixed: int,
) -> Callable[[int], int]:
    """Scratch of a backend's part of a pass by context: as much as of the whole model there.

    Only of the KV pages, of `page_bytes` each, there are no more than those of its layers.
    """
    ops = backend.ops.without(excluded)

    def scratch(context: int) -> int:
        rows, keys = min(tokens, context) or 1, context or 1
        attention = max(
            (
                ops.attention_bytes(rows, keys, *kind, storage_dtype(cache))
                for kind in model.attentions
            ),
            default=0,
        )
        longest = min(tokens, context or 1) if model.is_encoder else tokens
        if model.is_encoder:  # the keys and values of a layer, in pages while they are read
            floats = max(K * (C + -(-C // 16) * 16) for _, K, C in model.attentions)
            attention += 4 * PAGE_TOKENS * floats * (longest // PAGE_TOKENS + MOST_TEXTS)
        return fixed + scratch_bytes(model, longest, attention, page_bytes, recorded=recorded)

    return scratch


def _layout(
    model: ModelShape, placement: Placement, backend: Backend, cache: CacheType
) -> KVLayout:
    """The layout of what a backend's layers remember; windows are taken for unlimited."""
    attention = LayerShape(model.kv_heads, model.head_width)
    states = model.states or ((attention,),) * model.layers
    own = [
        state
        for some, place in zip(states, placement.layers, strict=True)
        for state in some
        if place is backend and not isinstance(state, SharedState)
    ]
    return KVLayout(own, storage_dtype(cache))


def _sum(functions: Sequence[Callable[[int], int]]) -> Callable[[int], int]:
    return lambda context: sum(one(context) for one in functions)


def _host_bytes(found: MemoryPlan) -> int:
    return found.devices[0].available_bytes if found.devices else found.available_bytes


def _format(name: str) -> Format:
    """The format in the name of a quantization mix such as Q4_K_M; F32 if unknown."""
    for known in (name, name.rpartition("_")[0]):
        try:
            return by_name(known)
        except KeyError:
            continue
    return by_name("F32")


# --- kernels in use -----------------------------------------------------------------------------


def kernels_in_use(
    file: GGUFFile,
    placement: Placement,
    fails: Callable[[str, str], bool] = lambda backend, kernel: False,
    state_ops: Mapping[str, Collection[str]] | None = None,
) -> dict[str, dict[str, str]]:
    """By backend of a placement, its kernels: op and format to the display name of what runs it.

    `fails(backend, kernel)` is whether a kernel failed its check, so that the reference runs.
    `state_ops` are those that only some models have, by backend.
    """
    formats: dict[str, set[str]] = {one.name: set() for one in placement.backends}
    for backend, format, _ in _placed_tensors(file, placement):
        if backend.name in formats:  # not the divisors of RoPE frequencies
            formats[backend.name].add(format.name)
    return {
        one.name: {
            kernel: "reference" if fails(one.name, kernel) else words
            for kernel, words in one.in_use(
                sorted(formats[one.name]), (state_ops or {}).get(one.name, ())
            ).items()
        }
        for one in placement.backends
    }


def merged(kernels: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Op and format to all that run it, from the result of `kernels_in_use`."""
    ran: dict[str, dict[str, None]] = {}
    for used in kernels.values():
        for kernel, words in used.items():
            ran.setdefault(kernel, {})[words] = None
    return {kernel: " + ".join(words) for kernel, words in ran.items()}


def words(placement: Placement, kernels: Mapping[str, Mapping[str, str]]) -> str:
    """The placement and its fallbacks for a status line: "cpu avx512 + reference"."""
    shown = {name: " + ".join(sorted(set(used.values()))) for name, used in kernels.items()}
    return placement.words(shown)


def slow_parts(
    kernels: Mapping[str, Mapping[str, str]],
    storage: Storages,
    offloading: Offloading | None = None,
) -> tuple[SlowPart, ...]:
    """Parts that run on the reference although their backend is faster, packed weights there, and
    offloaded layers or experts.

    `kernels` is the result of `kernels_in_use` with what failed its check left out. A backend all
    of whose kernels are the reference's was selected, or there is no other.
    """
    parts: dict[SlowPart, None] = {}
    for used in kernels.values():
        missing = [kernel for kernel, ran in used.items() if ran == "reference"]
        if len(missing) < len(used):
            parts |= {SlowPart(SlowReason.NO_KERNEL, kernel): None for kernel in missing}
    for (_, format), kept in storage.items():
        if kept is Storage.FILE:
            parts[SlowPart(SlowReason.DECODED, f"linear {format}")] = None
    if offloading is not None:
        experts = "experts of " if offloading.expert_slots else ""
        parts[SlowPart(SlowReason.OFFLOADED, f"{experts}{len(offloading.layers)} layers")] = None
    return tuple(parts)
