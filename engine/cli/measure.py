"""Measurements of the command line: logits, perplexity, benchmark, model file facts."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.core.session import Session
from engine.errors import ModelFileError, RequestError, UnsupportedModel
from engine.frontend.template import ChatTemplate, has_template
from engine.frontend.tokenizer import vocabulary
from engine.gguf.reader import GGUFFile
from engine.loading.device_choice import PROCESSOR, Choice, placed, speedup
from engine.loading.device_choice import parts as device_parts
from engine.loading.library import model_name
from engine.loading.loader import LoadedModel
from engine.loading.memory import MemoryPlan, Paging, refusal
from engine.loading.placement import (
    kernels_in_use,
    merged,
    place,
    predict,
    refuse_division,
    slow_parts,
    words,
)
from engine.loading.pooling import named_pooling
from engine.loading.preflight import extra_ops, identify, layout, parameters
from engine.loading.recommended_sampling import recommendation
from engine.messages import CacheType, DevicePart, SlowReason
from engine.state.pages import storage_dtype
from kernels.kv_pages import PAGE_TOKENS, KVLayout, PageLayer, StateLayer

# Not a power of two: the threads' parts would then start at power-of-two strides, share DRAM banks,
# and read a third slower.
_BANDWIDTH_BYTES = 518 << 20

_LEAST_BANDWIDTH_BYTES = 65 << 20

_MMPROJ = "mmproj"  # the kind of a file that only reads images or sound

_SLOW_WORDS = {
    SlowReason.NO_KERNEL: "no native kernel: uses the reference, and the model runs op by op",
    SlowReason.WRONG_KERNEL: "failed its check on this machine: uses the reference",
    SlowReason.WRONG_PROGRAM: "failed its check on this machine: the model runs op by op",
    SlowReason.DECODED: "no kernel and too large in float32: decoded for every product",
    SlowReason.PAGED: "do not fit in memory: read from the disk for every pass",
}


def logits_at(session: Session, tokens: Sequence[int], positions: Sequence[int]) -> Tensor:
    """Prefill an empty session; returns logits [N, V] f32 after the N `positions` of `tokens`."""
    wanted = torch.tensor(sorted(set(positions)))
    rows: list[Tensor] = []
    start = 0
    for hidden in session.prefill(tokens):
        inside = wanted[(wanted >= start) & (wanted < start + len(hidden))] - start
        if len(inside):
            rows.append(session.logits(hidden[inside]))
        start += len(hidden)
    order = torch.searchsorted(wanted, torch.tensor(list(positions)))
    return torch.cat(rows)[order]


def perplexity(
    model: LoadedModel, text: str, context: int, stack: Stack = NO_ADAPTERS
) -> tuple[float, int]:
    """Perplexity of `text` and the number of tokens scored, as llama.cpp's tool computes it.

    The text is split into windows of `context` tokens; each begins with BOS if the model uses one,
    and only the second half of a window is scored. Raises RequestError when the text is shorter
    than two windows.

    Source: https://github.com/ggml-org/llama.cpp/blob/b6000/tools/perplexity/perplexity.cpp
    """
    tokenizer = model.tokenizer
    tokens = tokenizer.encode(text)
    if context < 4:
        raise RequestError(f"A context of {context} is too short.", "Give -c 512 or so.")
    if len(tokens) < 2 * context:
        raise RequestError(
            f"The text has {len(tokens)} tokens; at context {context} it must have {2 * context}.",
            "Give a longer text or a shorter context.",
        )
    first, loss, scored = context // 2, 0.0, 0
    for start in range(0, len(tokens) - context + 1, context):
        window = tokens[start : start + context]
        if tokenizer.add_bos and tokenizer.bos is not None:
            window[0] = tokenizer.bos
        rows = logits_at(_session(model, stack), window, range(first, context - 1))
        targets = torch.tensor(window[first + 1 :])
        loss += float(torch.nn.functional.cross_entropy(rows, targets, reduction="sum"))
        scored += len(targets)
    return math.exp(loss / scored), scored


def bench(
    model: LoadedModel,
    *,
    prompt: int,
    generated: int,
    depth: int,
    repetitions: int,
    stack: Stack = NO_ADAPTERS,
) -> dict[str, object]:
    """Prefill and decode speed, medians over `repetitions`, and the bandwidth decode achieves.

    Both begin at position `depth`. The machine's memory bandwidth is measured right before and
    right after each decode. Raises RequestError for options out of range.
    """
    if min(prompt, generated, repetitions) < 1 or depth < 0:
        raise RequestError(
            "A benchmark needs at least one prompt token, one generated token and one repetition.",
            "Give -p, -n and -r of 1 or more, and -d of 0 or more.",
        )
    needed = depth + max(prompt, generated)
    if needed > model.plan.context:
        raise RequestError(
            f"The benchmark needs a context of {needed:,} tokens; this model was loaded with "
            f"{model.plan.context:,}.",
            "Give smaller -p, -n and -d, or a larger -c.",
        )
    session, backend = _session(model, stack), model.decoder.placement.layers[0]
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocabulary, (needed,), generator=random).tolist()
    # Warm-up: allocates memory, starts threads and grows the cache before the timed runs.
    _prefill_seconds(session, ids, 0)
    _decode_seconds(session, ids[-1:], needed - 1)
    prefill, decode, bandwidths = [], [], []
    probe = min(_BANDWIDTH_BYTES, max(model.plan.left_bytes // 2, _LEAST_BANDWIDTH_BYTES))
    pager = model.decoder.pager
    paged = 0  # bytes read from the disk while decoding
    for _ in range(repetitions):
        prefill.append(prompt / _prefill_seconds(session, ids[: depth + prompt], depth))
        # In a virtual machine the bandwidth varies by half within seconds, as cores are migrated.
        before = backend.read_bandwidth(probe)
        paged -= pager.read_bytes if pager else 0
        decode.append(generated / _decode_seconds(session, ids[depth : depth + generated], depth))
        paged += pager.read_bytes if pager else 0
        bandwidths.append((before + backend.read_bandwidth(probe)) / 2)
    speed = statistics.median(decode)
    read = speed * bytes_per_token(model, depth + generated // 2) / 1e9
    bandwidth = statistics.median(bandwidths) / 1e9
    return {
        "prefill_tokens_per_second": statistics.median(prefill),
        "decode_tokens_per_second": speed,
        "gigabytes_per_second": read,
        "bandwidth_share": read / bandwidth,
        "read_bandwidth_gigabytes_per_second": bandwidth,
        **({"paged_bytes_per_token": paged // (generated * repetitions)} if pager else {}),
        "kernels": model.backends,
        "threads": torch.get_num_threads(),
        "cache": model.cache.value,
        "prompt_tokens": prompt,
        "generated_tokens": generated,
        "depth": depth,
    }


def bytes_per_token(model: LoadedModel, length: int) -> int:
    """Memory traffic of one decode step at position `length`: weights as stored, and KV cache.

    The weights are those of every block and the head. A layer reads the keys and values inside its
    attention window, or its state of fixed size.
    """
    decoder, dtype = model.decoder, storage_dtype(model.cache)
    layers = KVLayout(decoder.layer_states, dtype).layers

    def read(layer: PageLayer | StateLayer) -> float:
        size = KVLayout([layer.shape], dtype).bytes_per_page
        if isinstance(layer, StateLayer):
            return size
        return size / PAGE_TOKENS * min(length, layer.shape.window or length)

    weights = sum(block.size_bytes for block in decoder.blocks) + decoder.head.weight.size_bytes
    return weights + int(sum(map(read, layers)))


def describe(
    path: Path,
    context: int,
    cache: CacheType = CacheType.F32,
    tokenizer: Path | None = None,
    backend: str = "",
    parts: Sequence[tuple[str, int]] = (),
    limit: int = 0,
    device: str = "",
) -> dict[str, object]:
    """Facts of a model file and its memory plan, without loading the weights.

    `device` is that of `Load`, where neither `backend` nor `parts` are given. Of a model that
    is not supported there are the facts that need no configuration, and the reason as "problem".
    """
    with GGUFFile.open(path) as file:
        try:
            _, config = identify(file, answers=False)
        except ModelFileError as error:
            if not isinstance(error, UnsupportedModel) and error.fault.about != _MMPROJ:
                raise
            return _describe_unsupported(file, error, tokenizer)
        if backend or parts:
            choice = Choice(place(config.layers, backend, parts))
            refuse_division(file, config, choice.placement)
        else:
            choice = placed(file, config, device, context, cache, limit=limit)
        placement = choice.placement
        kernels = kernels_in_use(file, placement, state_ops=extra_ops(file, config, placement))
        memory, storage = predict(file, config, placement, context, cache, limit=limit)
        return {
            "name": model_name(path),
            "architecture": config.architecture,
            **_contents(file),
            "layers": config.layers,
            "context": config.context,
            "vocabulary": config.vocabulary,
            "chat_template": has_template(file.metadata),
            **_vocabulary_and_template(file, tokenizer),
            **_sampling(file),
            **_embeddings(file),
            "memory": _memory(memory, context, cache),
            "placement": words(placement, kernels),
            "runs_on": [_part(one) for one in device_parts(placement, memory)],
            **({"not_as_asked": choice.refusal.text} if choice.refusal else {}),
            **({"speedup": round(gain, 2)} if (gain := speedup(placement, memory)) else {}),
            "kernels": merged(kernels),
            "slow": [
                {"part": one.part, "reason": one.reason.value, "words": _SLOW_WORDS[one.reason]}
                for one in slow_parts(kernels, storage, memory.paging)
            ],
        }


def _describe_unsupported(
    file: GGUFFile, error: ModelFileError, tokenizer: Path | None
) -> dict[str, object]:
    """The facts of a file that no configuration is read of; sizes it does not state are left out."""
    name = file.string("general.architecture")
    stated = {
        "layers": f"{name}.block_count",
        "context": f"{name}.context_length",
        "width": f"{name}.embedding_length",
    }
    sizes = {fact: file.metadata[key] for fact, key in stated.items() if key in file.metadata}
    embedding = file.tensors.get("token_embd.weight")
    return {
        "name": model_name(file.path),
        "architecture": name,
        "problem": error.sentence,
        **_contents(file),
        **{fact: value for fact, value in sizes.items() if isinstance(value, int)},
        **({"vocabulary": embedding.shape[0]} if embedding else {}),
        "chat_template": has_template(file.metadata),
        **_vocabulary_and_template(file, tokenizer),
        **_sampling(file),
    }


def _contents(file: GGUFFile) -> dict[str, object]:
    """The formats and sizes of the tensors."""
    formats: dict[str, Counter[str]] = {}
    for info in file.tensors.values():
        row = formats.setdefault(info.format.name, Counter())
        row.update(tensors=1, bytes=info.size_bytes)
    known = {info.format.name: info.format for info in file.tensors.values()}
    return {
        "layout": layout(file),
        **_two_bit(file),
        "formats": [
            {"format": one.name, "words": one.words, **formats[one.name]} for one in known.values()
        ],
        "parameters": parameters(file),
        "file_bytes": file.file_bytes,
    }


def _part(one: DevicePart) -> dict[str, object]:
    """Layers on a device, as data and as words: "12 layers on the processor"."""
    words = "the processor" if one.name == PROCESSOR else one.label or one.name
    size = f"{one.memory_bytes / 1e9:.1f} GB"
    return {
        "part": f"{one.layers} layers",
        "words": f"{words}, {size}",
        "device": one.name,
        "label": one.label,
        "layers": one.layers,
        "bytes": one.memory_bytes,
    }


def _vocabulary_and_template(file: GGUFFile, tokenizer: Path | None) -> dict[str, object]:
    """Origin of vocabulary and chat template, or why the vocabulary cannot be read."""
    try:
        words = vocabulary.find(file, tokenizer)
        template = ChatTemplate.from_metadata(file.metadata, words.tokenizer())
    except ModelFileError as error:
        return {"vocabulary_from": f"nowhere: {error.sentence}"}
    return {
        "vocabulary_from": words.origin or "the file's own keys",
        "template": f"built in, {template.built_in}" if template.built_in else "the file's own",
        **({"template_problem": problem.sentence} if (problem := template.problem) else {}),
    }


def _sampling(file: GGUFFile) -> dict[str, object]:
    """The sampling that the file recommends, and what of it means nothing."""
    found = recommendation(file.metadata)
    said = {name: value for name, value in asdict(found.sampling).items() if name in found.fields}
    facts: dict[str, object] = {"recommended_sampling": said} if said else {}
    return facts | ({"unusable_sampling": list(found.unusable)} if found.unusable else {})


def _embeddings(file: GGUFFile) -> dict[str, object]:
    """What a file says about embeddings, if it does."""
    return {"pooling": found} if (found := named_pooling(file)) else {}


def _two_bit(file: GGUFFile) -> dict[str, object]:
    """The layout of 2-bit tensors and how it was detected, if there are any."""
    found = file.two_bit
    return {"two_bit_layout": f"{found.layout.words}, detected by {found.by}"} if found else {}


def _memory(memory: MemoryPlan, context: int, cache: CacheType) -> dict[str, object]:
    """The figures of a memory plan, and the reason if it does not fit."""
    refused = refusal(memory, context)
    figures: dict[str, object] = {
        "fits": memory.fits,
        "weights_bytes": memory.weights_bytes,
        "cache_bytes": memory.cache_bytes,
        "scratch_bytes": memory.scratch_bytes,
        "total_bytes": memory.total_bytes,
        "available_bytes": memory.available_bytes,
        "context": memory.context,
        "most_context": memory.most_context,
        "cache_type": cache.value,
        **_paging(memory.paging),
        **{f"{one.device}_bytes": one.total_bytes for one in memory.devices},
    }
    return figures | ({"reason": refused.sentence} if refused else {})


def _paging(paging: Paging | None) -> dict[str, object]:
    """What is read from the disk for each token, if anything is."""
    if paging is None:
        return {}
    return {
        "paged_layers": len(paging.layers),
        "paged_bytes": paging.token_bytes,
        "paged_seconds": round(paging.token_seconds, 3),
    }


def _session(model: LoadedModel, stack: Stack) -> Session:
    session = model.new_session()
    session.set_stack(stack)
    return session


def _prefill_seconds(session: Session, ids: list[int], cached: int) -> float:
    """Time to prefill `ids` after the first `cached`, which are in the session, and get logits."""
    reached = session.rewind(cached)
    started = time.perf_counter()
    session.read(ids[reached:])
    return time.perf_counter() - started


def _decode_seconds(session: Session, ids: list[int], cached: int) -> float:
    """Time of one decode step for each of `ids` after the first `cached` tokens of the session."""
    before = session.tokens[:cached]
    if again := before[session.rewind(cached) :]:
        session.read(again)
    started = time.perf_counter()
    for token in ids:
        session.step(token)
    return time.perf_counter() - started
