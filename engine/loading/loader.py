"""Model loader: checks a GGUF file, plans memory, loads weights and tokenizer, checks kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from engine.chat.builtin import PLAIN
from engine.chat.template import ChatTemplate
from engine.errors import RequestError
from engine.gguf.reader import GGUFFile
from engine.host.background import BackgroundTask
from engine.host.device import physical_cores
from engine.inference.session import Session
from engine.loading.format_name import format_name
from engine.loading.library import model_name
from engine.loading.memory import MemoryPlan
from engine.loading.preflight import (
    check,
    identify,
    kernels_in_use,
    layout,
    parameters,
    plan,
    plan_without,
    slow_parts,
)
from engine.loading.selfcheck import find_faults
from engine.messages import CacheType, SlowPart
from engine.models.config import Config
from engine.models.layers import Decoder
from engine.models.weights import Weights
from engine.state.kv_cache import Cache
from engine.tokenizer.tokenizer import Tokenizer
from engine.tokenizer.vocabulary import find as find_vocabulary
from kernels import backends


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A loaded model: decoder, tokenizer and chat template, and facts for display."""

    path: Path
    name: str
    config: Config
    decoder: Decoder
    tokenizer: Tokenizer
    vocabulary: str  # its source; "": the metadata of the GGUF file
    template: ChatTemplate
    plan: MemoryPlan
    cache: CacheType
    layout: str  # description of the main weight format
    format: str  # as users know it: "Q4_1", "Q4_K_M"
    parameters: int
    file_bytes: int
    kernels: dict[str, str]  # op and format to the backend that runs it
    slow: tuple[SlowPart, ...]  # parts without a fast kernel
    seconds: float

    @property
    def base(self) -> bool:
        """Whether the model only continues text: neither file nor family has a chat template."""
        return self.template.built_in == PLAIN.name

    @property
    def backends(self) -> str:
        """The backends in use, for a status line: "reference", "cpu avx512 + reference"."""
        return " + ".join(sorted(set(self.kernels.values())))

    def new_cache(self) -> Cache:
        """An empty KV cache of the planned type and context."""
        config, context = self.config, self.plan.context
        return Cache(
            config.layers,
            config.kv_heads,
            config.head_width,
            context,
            self.cache,
            self.decoder.backend.memory,
        )

    def new_session(self) -> Session:
        """An empty session over this model's weights."""
        return Session(self.decoder, self.new_cache())


def load(
    path: Path,
    *,
    backend: str = "",
    context: int = 0,
    threads: int = 0,
    cache: CacheType = CacheType.F32,
    tokenizer_file: Path | None = None,
    reclaimable: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    checkpoint: Callable[[], None] = lambda: None,
    before_weights: Callable[[], None] = lambda: None,
) -> LoadedModel:
    """Load a model on a backend, see `backends.choose`.

    Raises ModelFileError, OutOfMemory, or what `checkpoint` raises.

    `before_weights` is called after all checks, before memory is allocated: unload a model that is
    being replaced there. `reclaimable` is the number of bytes this frees. `tokenizer_file` is a
    `tokenizer.json` that replaces the vocabulary of the file, see `engine.tokenizer.vocabulary`.
    """
    started = time.perf_counter()
    chosen = backends.choose(backend)
    set_threads(threads)
    # Decoding copies the weights, so the file can be closed afterwards.
    with GGUFFile.open(path) as file:
        build, config = identify(file)
        memory = plan(file, config, chosen, context, cache, reclaimable)
        vocabulary = find_vocabulary(file, tokenizer_file)
        check(file, config, build, vocabulary)
        checkpoint()
        before_weights()
        tokenizer = BackgroundTask(vocabulary.tokenizer, "tokenizer")

        def check_both() -> None:
            checkpoint()
            if tokenizer.failed:
                raise tokenizer.failed  # stop at once on a faulty vocabulary

        weights = Weights(file, progress, check_both, backend=chosen)
        decoder = build(file, weights, memory.context)
        weights.refuse_unused_tensors()
        faults = find_faults(config, decoder, weights, checkpoint)
        if faults.errors:
            memory, storage = plan_without(
                file, config, chosen, context, cache, memory, faults.formats, faults.ops
            )
            del decoder  # free its weights before they are loaded in another storage
            decoder = build(file, weights.reread(storage), memory.context)
            decoder = replace(decoder, refused=faults.ops)
        kernels = kernels_in_use(file, chosen)
        return LoadedModel(
            path=file.path,
            name=model_name(file.path),
            config=config,
            decoder=decoder,
            tokenizer=tokenizer.result(checkpoint),
            vocabulary=vocabulary.origin,
            template=ChatTemplate.from_metadata(file.metadata, tokenizer.result(checkpoint)),
            plan=memory,
            cache=cache,
            layout=layout(file),
            format=format_name(file),
            parameters=parameters(file),
            file_bytes=file.file_bytes,
            kernels={
                op: "reference" if faults.concern(op) else name for op, name in kernels.items()
            },
            slow=(*slow_parts(kernels), *faults.slow),
            seconds=time.perf_counter() - started,
        )


def set_threads(threads: int) -> None:
    """Set the number of kernel threads; 0: one per physical core. Raises RequestError."""
    if threads < 0 or threads > 1024:
        raise RequestError(
            f"The number of threads is {threads}.", "Give 0 for automatic, or up to 1024."
        )
    wanted = threads or physical_cores()
    try:
        backends.set_threads(wanted)
    except RuntimeError as error:
        raise RequestError(
            f"The system could not start {wanted} threads.", "Use fewer, or close other programs."
        ) from error
