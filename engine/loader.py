"""GGUF path to a model that can answer: checks first, memory planned, then weights and tokenizer."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.beside import Beside
from engine.cache import Cache
from engine.chat import ChatTemplate
from engine.device import MemoryPlan, available_memory, physical_cores, plan_memory
from engine.errors import ModelFileError, RequestError
from engine.gguf import GGUFFile
from engine.library import model_name
from engine.models import architecture
from engine.models.config import Config, read_config
from engine.models.layers import Decoder
from engine.session import Session
from engine.tokenizer import Tokenizer
from engine.weights import Weights
from kernels import ops


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Everything a session needs, and what a window wants to say about it."""

    path: Path
    name: str
    config: Config
    decoder: Decoder
    tokenizer: Tokenizer
    template: ChatTemplate
    plan: MemoryPlan
    layout: str  # the main weight format in words
    parameters: int
    file_bytes: int
    kernels: dict[str, str]  # op and format to the backend that runs it
    seconds: float

    @property
    def backends(self) -> str:
        """The backends in use, for a status line: "reference", "cpu + reference"."""
        return " + ".join(sorted(set(self.kernels.values())))

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Ops that run on the reference although a faster backend runs others."""
        slow = tuple(op for op, backend in self.kernels.items() if backend == "reference")
        return () if len(slow) == len(self.kernels) else slow

    def new_session(self) -> Session:
        """An empty session over this model's weights."""
        config = self.config
        cache = Cache(config.layers, config.kv_heads, config.head_width, self.plan.context)
        return Session(self.decoder, cache)


def load(
    path: Path,
    *,
    context: int = 0,
    threads: int = 0,
    reclaimable: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    checkpoint: Callable[[], None] = lambda: None,
    before_weights: Callable[[], None] = lambda: None,
) -> LoadedModel:
    """Load a model; raises ModelFileError, OutOfMemory, or what `checkpoint` raises.

    `before_weights` is called once the file is known to be sound and to fit, and before memory is
    taken: the moment to drop a model that is to be replaced. `reclaimable` counts the bytes that
    gives back.
    """
    started = time.perf_counter()
    set_threads(threads)
    # Weights are copied out while they are decoded: nothing needs the file afterwards.
    with GGUFFile.open(path) as file:
        build, config = architecture(file), read_config(file)
        memory = plan(file, config, context, reclaimable)
        checkpoint()
        before_weights()
        decoder, tokenizer = _read(file, config, build, progress, checkpoint)
        return LoadedModel(
            path=file.path,
            name=model_name(file.path),
            config=config,
            decoder=decoder,
            tokenizer=tokenizer,
            template=ChatTemplate.from_metadata(file.metadata, tokenizer),
            plan=memory,
            layout=layout(file),
            parameters=parameters(file),
            file_bytes=file.file_bytes,
            kernels=kernels_in_use(file),
            seconds=time.perf_counter() - started,
        )


def set_threads(threads: int) -> None:
    """Run products on so many threads; 0: one per physical core."""
    if threads < 0 or threads > 1024:
        raise RequestError(
            f"{threads} threads were asked for.", "Give 0 for automatic, or up to 1024."
        )
    torch.set_num_threads(threads or physical_cores())


def plan(file: GGUFFile, config: Config, context: int, reclaimable: int = 0) -> MemoryPlan:
    """What the model will hold in memory; raises OutOfMemory when that is more than there is.

    `reclaimable` bytes are in use now but will be free by then. Raises RequestError for a context
    below 0.
    """
    if context < 0:
        raise RequestError(
            f"The context is {context} tokens.", "Give 0 for the model's own, or more."
        )
    return plan_memory(
        weights_bytes=4 * parameters(file),  # the reference holds float32
        cache_bytes_per_token=Cache.bytes_per_token(
            config.layers, config.kv_heads, config.head_width
        ),
        fixed_cache_bytes=0,
        context_wanted=context,
        context_model=config.context,
        available=available_memory() + reclaimable,
        scratch_bytes=4 * config.vocabulary * 8,
    )


def layout(file: GGUFFile) -> str:
    """In words, the format that most bytes of the blocks' matrices are in."""
    held: Counter[str] = Counter()
    for info in file.tensors.values():
        if len(info.shape) > 1 and info.name.startswith("blk."):
            held[info.format.words] += info.size_bytes
    return held.most_common(1)[0][0] if held else ""


def kernels_in_use(file: GGUFFile) -> dict[str, str]:
    """Which backend runs each op on the formats of this file."""
    return ops.in_use(sorted({info.format.name for info in file.tensors.values()}))


def parameters(file: GGUFFile) -> int:
    """How many numbers the file's tensors hold."""
    return sum(math.prod(info.shape) for info in file.tensors.values())


def _read(
    file: GGUFFile,
    config: Config,
    build: Callable[[GGUFFile, Weights], Decoder],
    progress: Callable[[int, int], None],
    checkpoint: Callable[[], None],
) -> tuple[Decoder, Tokenizer]:
    """Weights, and beside them the tokenizer: half a second of work on a large vocabulary."""
    tokenizer = Beside(lambda: _tokenizer(file, config), "tokenizer")

    def look() -> None:
        checkpoint()
        if tokenizer.failed:
            raise tokenizer.failed  # a faulty vocabulary ends the load at once

    weights = Weights(file, progress, look)
    decoder = build(file, weights)
    weights.refuse_leftovers()
    return decoder, tokenizer.result(checkpoint)


def _tokenizer(file: GGUFFile, config: Config) -> Tokenizer:
    """The file's tokenizer; raises ModelFileError when it makes ids the embedding has no row for."""
    tokenizer = Tokenizer.from_metadata(file.metadata)
    if tokenizer.size > config.vocabulary:
        raise ModelFileError(
            f"The vocabulary has {tokenizer.size:,} tokens, but the tensor 'token_embd.weight' "
            f"only {config.vocabulary:,} rows.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    return tokenizer
