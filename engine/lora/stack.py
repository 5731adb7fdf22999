"""Adapters: low-rank changes of a model's matrices, and the stack of them that is in use.

`load_adapter(path, base)` wants the `BaseModel` that every decoder carries: `decoder.base`. The
base weights are never touched. A stack adds to each product what its adapters change of it, so it
can be replaced between two tokens, at any strength, whatever format the weights are in.

The order of a stack is for people: the changes add up, and they are summed in an order of their
own, so that reordering a stack, or splitting a strength over two entries, changes no bit.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.errors import AdapterError, RequestError
from engine.lora import gguf as lora_gguf
from engine.lora import peft as lora_peft
from engine.lora.delta import EMBEDDING, HEAD, BaseModel, Pair, Part
from kernels import ops
from kernels.formats import by_name
from kernels.program import LoraDelta
from kernels.weight import Weight

__all__ = [
    "EMBEDDING",
    "HEAD",
    "NO_ADAPTERS",
    "STRONGEST",
    "Adapter",
    "BaseModel",
    "Stack",
    "load_adapter",
]

STRONGEST = 2.0  # strengths go from -2 to 2
_PIECE = 1 << 20  # bytes hashed between two looks at Cancel

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter that was read and fits the model it was read for."""

    path: Path  # as it was asked for: a file or a folder
    name: str
    sha256: str  # of the file that holds the tensors
    kind: str  # "GGUF" or "PEFT"
    pairs: Mapping[str, Pair]  # by GGUF tensor name
    notes: tuple[str, ...] = ()  # sentences on what in the file was left aside

    @property
    def rank(self) -> int:
        """The largest rank of its pairs."""
        return max(pair.rank for pair in self.pairs.values())

    @property
    def size_bytes(self) -> int:
        """Bytes held in memory."""
        return sum(pair.size_bytes for pair in self.pairs.values())

    @property
    def fingerprint(self) -> str:
        """Equal for equal effects: the tensors and, as a PEFT folder keeps them apart, the scales."""
        scales = [f"{name} {self.pairs[name].scale.hex()}" for name in sorted(self.pairs)]
        return hashlib.sha256("\n".join([self.sha256, *scales]).encode()).hexdigest()


def load_adapter(
    path: Path, base: BaseModel, checkpoint: Callable[[], None] = lambda: None
) -> Adapter:
    """Read a GGUF adapter, or a PEFT folder given as itself or as either of its two files.

    Raises AdapterError for what is no adapter, is damaged or does not fit `base`, OutOfMemory when
    it does not fit the machine, and what `checkpoint` raises, which is called every few
    milliseconds.
    """
    try:
        folder = lora_peft.find_folder(path)
        if folder is None:
            contents, tensors = lora_gguf.read(path, base, checkpoint), path
        else:
            contents = lora_peft.read(folder, base, checkpoint)
            tensors = folder / lora_peft.TENSORS
        sha256 = _hash(tensors, checkpoint)
    except OSError as error:
        raise AdapterError(
            f"{path.name!r} cannot be read: {error.strerror or error}.",
            "Check the file's permissions and the disk it lies on.",
        ) from error
    name = path.stem if folder is None else folder.name
    for note in contents.notes:
        log.info("%s: %s", name, note)
    kind = "GGUF" if folder is None else "PEFT"
    return Adapter(path, name, sha256, kind, contents.pairs, contents.notes)


def _hash(path: Path, checkpoint: Callable[[], None]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            checkpoint()
            digest.update(piece)
    return digest.hexdigest()


class Stack:
    """Adapters in use, each with a strength; never changed once built.

    Raises RequestError for a strength outside -2 to 2. A stack whose strengths are all 0 is the
    same as an empty one, down to the bits of every answer.
    """

    def __init__(self, entries: Iterable[tuple[Adapter, float]] = ()) -> None:
        self.entries = tuple(entries)
        for adapter, strength in self.entries:
            _check_strength(adapter, strength)
        effective = _summed(self.entries)
        # Equal for stacks of equal effect; "" where the stack changes nothing.
        self.key = _key(effective)
        terms = _terms(effective.values())
        # One joined pair per tensor, so that the cost of a token does not grow with the stack.
        self._changes = {name: _join(name, pairs) for name, pairs in terms.items()}
        self._joined = [name for name, pairs in terms.items() if len(pairs) > 1]

    @property
    def size_bytes(self) -> int:
        """Bytes held by the adapters, each counted once, and by what the stack joined of them."""
        adapters = {id(adapter): adapter for adapter, _ in self.entries}
        joined = [self._changes[name] for name in self._joined]
        copied = sum(change.down.size_bytes + change.up.size_bytes for change in joined)
        return sum(adapter.size_bytes for adapter in adapters.values()) + copied

    def delta_for(self, name: str, part: Part | None = None) -> LoraDelta | None:
        """All that the adapters add to the product with tensor `name`; None where they do not."""
        change = self._changes.get(name)
        if change is None or part is None:
            return change
        up = change.up.data[part.start : part.end]  # of dense rows
        return LoraDelta(change.down, _weight(up), change.scales)

    def apply(self, name: str, x: Tensor, y: Tensor, part: Part | None = None) -> Tensor:
        """The product y [T, out] f32 of x [T, in] f32 with tensor `name`, as the adapters change it."""
        change = self.delta_for(name, part)
        if change is None:
            return y
        return y + ops.linear(ops.linear(x, change.down) * change.scales, change.up)

    def embed(self, tokens: Tensor, y: Tensor) -> Tensor:
        """The embeddings y [T, D] f32 of tokens [T] i64, as the adapters change them."""
        change = self._changes.get(EMBEDDING)
        if change is None:
            return y
        return y + ops.linear(ops.embed(tokens, change.down) * change.scales, change.up)


def _check_strength(adapter: Adapter, strength: float) -> None:
    # Not "> STRONGEST": a NaN must fail too.
    if not -STRONGEST <= strength <= STRONGEST:
        raise RequestError(
            f"The strength of {adapter.name!r} is {strength:g}.",
            f"Give a number from {-STRONGEST:g} to {STRONGEST:g}.",
        )


def _summed(entries: Iterable[tuple[Adapter, float]]) -> dict[str, tuple[Adapter, float]]:
    """By fingerprint in its order, each adapter that has an effect and its strengths' sum."""
    found: dict[str, tuple[Adapter, list[float]]] = {}
    for adapter, strength in entries:
        found.setdefault(adapter.fingerprint, (adapter, []))[1].append(strength)
    summed = {key: (adapter, math.fsum(all_)) for key, (adapter, all_) in sorted(found.items())}
    return {
        key: (adapter, strength)
        for key, (adapter, strength) in summed.items()
        if strength and any(pair.scale for pair in adapter.pairs.values())
    }


def _key(effective: Mapping[str, tuple[Adapter, float]]) -> str:
    lines = [f"{key} {strength.hex()}" for key, (_, strength) in effective.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else ""


def _terms(effective: Iterable[tuple[Adapter, float]]) -> dict[str, list[tuple[Pair, float]]]:
    """By tensor, the pairs that change it, each with all it is to be multiplied by."""
    terms: dict[str, list[tuple[Pair, float]]] = {}
    for adapter, strength in effective:
        for name, pair in adapter.pairs.items():
            if pair.scale:
                terms.setdefault(name, []).append((pair, strength * pair.scale))
    return terms


def _join(name: str, terms: list[tuple[Pair, float]]) -> LoraDelta:
    """A lone pair is used where it lies; several are laid side by side, R their ranks' sum."""
    alone = len(terms) == 1
    a = terms[0][0].a if alone else torch.cat([pair.a for pair, _ in terms])  # [R, in]
    b = terms[0][0].b if alone else torch.cat([pair.b for pair, _ in terms], dim=1)  # [out, R]
    scales = torch.cat([torch.full((pair.rank,), scale) for pair, scale in terms])
    if name == EMBEDDING:  # a row of b is looked up, and a leads back to the model's width
        a, b = b, a.T.contiguous()
    return LoraDelta(_weight(a), _weight(b), scales)


def _weight(values: Tensor) -> Weight:
    return Weight(values, by_name("F32"), tuple(values.shape))


NO_ADAPTERS = Stack()
