"""Facts of a model file and its memory plan, without loading the weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from engine.errors import ModelFileError, UnsupportedModel
from engine.frontend.template import ChatTemplate, has_template
from engine.frontend.tokenizer import vocabulary
from engine.gguf.reader import GGUFFile
from engine.loading.device_choice import PROCESSOR, Choice, placed, speedup
from engine.loading.device_choice import parts as device_parts
from engine.loading.library import model_name
from engine.loading.memory import MemoryPlan, Offloading, refusal
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
from engine.loading.sight import encoder_in_words, encoder_of
from engine.messages import CacheType, DevicePart, SlowReason

_MMPROJ = "mmproj"  # the kind of a file that only reads images or sound

_SLOW_WORDS = {
    SlowReason.NO_KERNEL: "no native kernel: uses the reference, and the model runs op by op",
    SlowReason.WRONG_KERNEL: "failed its check on this machine: uses the reference",
    SlowReason.WRONG_PROGRAM: "failed its check on this machine: the model runs op by op",
    SlowReason.NOT_LOWERED: "not lowered by this backend: the model runs op by op",
    SlowReason.DECODED: "no kernel and too large in float32: decoded for every product",
    SlowReason.OFFLOADED: "do not fit in memory: read from the disk for every pass",
}


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
        encoder = encoder_of(file, config)
        if backend or parts:
            choice = Choice(place(config.layers, backend, parts))
            refuse_division(file, config, choice.placement)
        else:
            choice = placed(file, config, device, context, cache, limit=limit, encoder=encoder)
        placement = choice.placement
        kernels = kernels_in_use(file, placement, state_ops=extra_ops(file, config, placement))
        memory, storage = predict(
            file, config, placement, context, cache, limit=limit, encoder=encoder
        )
        return {
            "name": model_name(path),
            "architecture": config.architecture,
            **_contents(file),
            "layers": config.layers,
            "context": config.context,
            "vocabulary": config.vocabulary,
            "chat_template": has_template(file.metadata),
            **_vocabulary_and_template(file, tokenizer),
            "pictures": encoder_in_words(
                encoder,
                lambda: vocabulary.find(file, tokenizer).tokenizer(),
                has_room=memory.encoder_bytes > 0,
            ),
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
                for one in slow_parts(kernels, storage, memory.offloading)
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
        **({"encoder_bytes": memory.encoder_bytes} if memory.encoder_bytes else {}),
        "total_bytes": memory.total_bytes,
        "available_bytes": memory.available_bytes,
        "context": memory.context,
        "most_context": memory.most_context,
        "cache_type": cache.value,
        **_offloading(memory.offloading),
        **{f"{one.device}_bytes": one.total_bytes for one in memory.devices},
    }
    return figures | ({"reason": refused.sentence} if refused else {})


def _offloading(offloading: Offloading | None) -> dict[str, object]:
    """What is read from the disk for each token, if anything is."""
    if offloading is None:
        return {}
    return {
        "offloaded_layers": len(offloading.layers),
        "offloaded_bytes": offloading.token_bytes,
        "offloaded_seconds": round(offloading.token_seconds, 3),
    }
