"""What the command line measures: logits, perplexity, speed, and what a file holds."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from engine.chat.template import ChatTemplate, has_template
from engine.errors import ModelFileError, RequestError
from engine.gguf.reader import GGUFFile
from engine.inference.session import Session
from engine.loading.library import model_name
from engine.loading.loader import LoadedModel
from engine.loading.memory import refusal
from engine.loading.preflight import (
    identify,
    kernels_in_use,
    layout,
    outline,
    parameters,
    predict,
    slow_parts,
)
from engine.lora.stack import NO_ADAPTERS, Stack
from engine.messages import CacheType, SlowReason
from engine.models import Build
from engine.models.config import Config
from engine.state.kv_cache import Cache
from engine.tokenizer import vocabulary
from kernels import ops

# Parts of it must not lie powers of two apart: such places share a bank of memory, and reading them
# in turn is a third slower.
_BANDWIDTH_BYTES = 518 << 20

_SLOW_WORDS = {
    SlowReason.EXPERTS: "chosen for each token, so that operations run one by one",
    SlowReason.HEAD_NORMS: "a norm of each head, so that operations run one by one",
    SlowReason.ADAPTED_EMBEDDING: "changed by an adapter, so that operations run one by one",
    SlowReason.NO_KERNEL: "no native kernel; the reference runs, and operations run one by one",
    SlowReason.WRONG_KERNEL: "wrong on this machine; the reference runs",
    SlowReason.WRONG_PROGRAM: "wrong on this machine; operations run one by one",
}


def logits_at(session: Session, tokens: Sequence[int], positions: Sequence[int]) -> Tensor:
    """Logits [N, V] f32 after each of the N `positions` of `tokens`, read into an empty session."""
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
    """Perplexity of `text` and the number of tokens scored, counted as llama.cpp's tool counts.

    The text is cut into windows of `context` tokens; each begins with BOS where the model wants
    one, and only the second half of a window is scored. Raises RequestError when the text is
    shorter than two windows.

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
    """Prefill and decode speed, medians over `repetitions`, and the bandwidth that decode reaches.

    Both begin at position `depth`. What the machine's memory gives is read right before and right
    after each decode. Raises RequestError for numbers that do not fit.
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
    session = _session(model, stack)
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocabulary, (needed,), generator=random).tolist()
    # All that is timed is done once before: memory is taken, threads stand, the cache has grown.
    _prefill_seconds(session, ids, 0)
    _decode_seconds(session, ids[-1:], needed - 1)
    prefill, decode, bandwidths = [], [], []
    for _ in range(repetitions):
        prefill.append(prompt / _prefill_seconds(session, ids[: depth + prompt], depth))
        # Under a hypervisor it rises and falls by half within seconds, as cores are moved.
        before = ops.read_bandwidth(_BANDWIDTH_BYTES)
        decode.append(generated / _decode_seconds(session, ids[depth : depth + generated], depth))
        bandwidths.append((before + ops.read_bandwidth(_BANDWIDTH_BYTES)) / 2)
    speed = statistics.median(decode)
    read = speed * bytes_per_token(model, depth + generated // 2) / 1e9
    bandwidth = statistics.median(bandwidths) / 1e9
    return {
        "prefill_tokens_per_second": statistics.median(prefill),
        "decode_tokens_per_second": speed,
        "gigabytes_per_second": read,
        "bandwidth_share": read / bandwidth,
        "read_bandwidth_gigabytes_per_second": bandwidth,
        "kernels": model.backends,
        "threads": torch.get_num_threads(),
        "cache": model.cache.value,
        "prompt_tokens": prompt,
        "generated_tokens": generated,
        "depth": depth,
    }


def bytes_per_token(model: LoadedModel, length: int) -> int:
    """Bytes one decoded token reads at position `length`: weights as they are held, and cache.

    The weights are those of every block and the head. A layer reads the keys and values its window
    shows it.
    """
    config, blocks = model.config, model.decoder.blocks
    row = Cache.bytes_per_token(1, config.kv_heads, config.head_width, model.cache)
    seen = (min(length, block.attention.window or length) for block in blocks)
    weights = sum(block.size_bytes for block in blocks) + model.decoder.head.weight.size_bytes
    return weights + row * sum(seen)


def describe(
    path: Path,
    context: int,
    cache: CacheType = CacheType.F32,
    tokenizer: Path | None = None,
) -> dict[str, object]:
    """What a file holds and what it would cost, without loading its weights."""
    with GGUFFile.open(path) as file:
        build, config = identify(file)
        kernels = kernels_in_use(file)
        formats: dict[str, Counter[str]] = {}
        for info in file.tensors.values():
            row = formats.setdefault(info.format.name, Counter())
            row.update(tensors=1, bytes=info.size_bytes)
        return {
            "name": model_name(path),
            "architecture": config.architecture,
            "layout": layout(file),
            **_two_bit(file),
            "formats": [
                {"format": info.name, "words": info.words, **formats[info.name]}
                for info in {
                    info.format.name: info.format for info in file.tensors.values()
                }.values()
            ],
            "parameters": parameters(file),
            "file_bytes": file.file_bytes,
            "layers": config.layers,
            "context": config.context,
            "vocabulary": config.vocabulary,
            "chat_template": has_template(file.metadata),
            **_spoken(file, tokenizer),
            "memory": _memory(file, config, context, cache),
            "kernels": kernels,
            **_slow(file, config, build, kernels),
        }


def _spoken(file: GGUFFile, tokenizer: Path | None) -> dict[str, object]:
    """Where words come from and how the model is spoken to, or why it cannot be."""
    try:
        words = vocabulary.find(file, tokenizer)
        template = ChatTemplate.from_metadata(file.metadata, words.tokenizer())
    except ModelFileError as error:
        return {"vocabulary_from": f"nowhere: {error.sentence}"}
    return {
        "vocabulary_from": words.origin or "the file's own keys",
        "template": f"built in, {template.built_in}" if template.built_in else "the file's own",
    }


def _slow(
    file: GGUFFile, config: Config, build: Build, kernels: Mapping[str, str]
) -> dict[str, object]:
    """What would run slower than these kernels could run it, as far as it shows before a load."""
    try:
        decoder = outline(file, config, build)
    except ModelFileError:
        return {}  # it would not be loaded at all
    return {
        "slow": [
            {"part": one.part, "reason": one.reason.value, "words": _SLOW_WORDS[one.reason]}
            for one in slow_parts(decoder, kernels)
        ]
    }


def _two_bit(file: GGUFFile) -> dict[str, object]:
    """Which layout the 2-bit tensors have, and how that was told, where there are any."""
    told = file.two_bit
    return {"two_bit_layout": f"{told.layout.words}, told by {told.by}"} if told else {}


def _memory(file: GGUFFile, config: Config, context: int, cache: CacheType) -> dict[str, object]:
    """The memory plan, and why it cannot be carried out where it cannot."""
    memory = predict(file, config, context, cache)
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
    }
    return figures | ({"reason": refused.sentence} if refused else {})


def _session(model: LoadedModel, stack: Stack) -> Session:
    session = model.new_session()
    session.set_stack(stack)
    return session


def _prefill_seconds(session: Session, ids: list[int], held: int) -> float:
    """Of reading all but the first `held` of `ids`, which the session begins with, to logits."""
    session.trim(held)
    started = time.perf_counter()
    (*_, hidden) = session.prefill(ids[held:])
    session.logits_after(hidden)
    return time.perf_counter() - started


def _decode_seconds(session: Session, ids: list[int], held: int) -> float:
    """Of appending `ids` one by one after the first `held` tokens of the session."""
    session.trim(held)
    started = time.perf_counter()
    for token in ids:
        session.step(token)
    return time.perf_counter() - started
