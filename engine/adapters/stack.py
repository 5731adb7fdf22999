"""LoRA adapters and the active stack: loading, merging by strength, applying to matrix products.

`load_adapter(path, base)` takes the `BaseModel` of a decoder, `decoder.base`. Base weights are not
modified: a stack adds its deltas to each product, so it can be replaced between two tokens, at any
strength and for any weight format.

Deltas are summed in the order of their fingerprints, not of the stack, so reordering a stack or
splitting a strength over two entries changes no bit.
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

from engine.adapters import gguf as lora_gguf
from engine.adapters import peft as lora_peft
from engine.adapters.delta import EMBEDDING, HEAD, BaseModel, Pair, Part
from engine.errors import AdapterError, Fault, FaultKind, ModelFileError, RequestError
from kernels.ops import LoraDelta
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

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

STRONGEST = 2.0  # strengths range from -2 to 2

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Adapter:
    """A loaded adapter that matches the base model."""

    path: Path  # as given: a file or a folder
    name: str
    sha256: str  # of the file that holds the tensors
    kind: str  # "GGUF" or "PEFT"
    pairs: Mapping[str, Pair]  # by GGUF tensor name
    notes: tuple[str, ...] = ()  # sentences on ignored parts of the file

    @property
    def rank(self) -> int:
        """The largest rank of its pairs."""
        return max(pair.rank for pair in self.pairs.values())

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return sum(pair.size_bytes for pair in self.pairs.values())

    @property
    def fingerprint(self) -> str:
        """Equal for adapters of equal effect: a hash of the tensors and scales."""
        scales = [f"{name} {self.pairs[name].scale.hex()}" for name in sorted(self.pairs)]
        return hashlib.sha256("\n".join([self.sha256, *scales]).encode()).hexdigest()


def load_adapter(
    path: Path, base: BaseModel, checkpoint: Callable[[], None] = lambda: None
) -> Adapter:
    """Read a GGUF adapter, or a PEFT folder given as itself or as either of its two files.

    Raises AdapterError if it is no adapter, damaged or does not match `base`, OutOfMemory if it
    does not fit in memory, and what `checkpoint` raises, which is called every few milliseconds.
    """
    try:
        folder = lora_peft.find_folder(path)
        if folder is None:
            contents = lora_gguf.read(path, base, checkpoint)
        else:
            contents = lora_peft.read(folder, base, checkpoint)
    except ModelFileError as error:  # it has changed meanwhile
        raise AdapterError(str(error), error.remedy, error.fault) from error
    except OSError as error:
        raise AdapterError(
            f"{path.name!r} cannot be read: {error.strerror or error}.",
            "Check the file's permissions and its disk.",
            Fault(FaultKind.UNREADABLE, str(error.strerror or error)),
        ) from error
    name = path.stem if folder is None else folder.name
    for note in contents.notes:
        log.info("%s: %s", name, note)
    kind = "GGUF" if folder is None else "PEFT"
    return Adapter(path, name, contents.sha256, kind, contents.pairs, contents.notes)


class Stack:
    """An immutable list of adapters with strengths, and their combined deltas.

    Raises RequestError for a strength outside -2 to 2. A stack whose strengths are all 0 gives
    the same bits as an empty one.
    """

    def __init__(self, entries: Iterable[tuple[Adapter, float]] = ()) -> None:
        self.entries = tuple(entries)
        for adapter, strength in self.entries:
            _check_strength(adapter, strength)
        effective = _summed(self.entries)
        # Equal for stacks of equal effect; "" for one without effect.
        self.key = _key(effective)
        terms = _terms(effective.values())
        # One concatenated pair per tensor: two products per token, however many adapters there are.
        self._deltas = {name: _join(name, pairs) for name, pairs in terms.items()}
        self._joined = [name for name, pairs in terms.items() if len(pairs) > 1]

    @property
    def size_bytes(self) -> int:
        """Bytes of the adapters, each counted once, and of the concatenated copies."""
        adapters = {id(adapter): adapter for adapter, _ in self.entries}
        joined = [delta for name in self._joined for delta in self._deltas[name]]
        copied = sum(delta.down.size_bytes + delta.up.size_bytes for delta in joined)
        return sum(adapter.size_bytes for adapter in adapters.values()) + copied

    def delta_for(self, name: str, part: Part | None = None) -> LoraDelta | None:
        """The combined delta of all adapters for tensor `name`; None if there is none."""
        found = self.deltas_for(name, part)
        return found[0] if found else None

    def deltas_for(self, name: str, part: Part | None = None) -> tuple[LoraDelta, ...]:
        """As `delta_for`, of each expert or head whose matrices the tensor holds; or empty."""
        deltas = self._deltas.get(name, ())
        return deltas if part is None else tuple(_part(delta, part) for delta in deltas)


def _part(delta: LoraDelta, part: Part) -> LoraDelta:
    groups = delta.up.data.unflatten(0, (part.groups, -1))  # F32 rows
    up = groups[:, part.start : part.end].flatten(0, 1)
    return LoraDelta(delta.down, _weight(up), delta.scales)


def _check_strength(adapter: Adapter, strength: float) -> None:
    # Not "> STRONGEST": a NaN must fail too.
    if not -STRONGEST <= strength <= STRONGEST:
        raise RequestError(
            f"The strength of {adapter.name!r} is {strength:g}.",
            f"Give a number from {-STRONGEST:g} to {STRONGEST:g}.",
        )


def _summed(entries: Iterable[tuple[Adapter, float]]) -> dict[str, tuple[Adapter, float]]:
    """Adapters with an effect and their summed strengths, sorted by fingerprint."""
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
    """Tensor name to its pairs, each with strength times scale."""
    terms: dict[str, list[tuple[Pair, float]]] = {}
    for adapter, strength in effective:
        for name, pair in adapter.pairs.items():
            if pair.scale:
                terms.setdefault(name, []).append((pair, strength * pair.scale))
    return terms


def _join(name: str, terms: list[tuple[Pair, float]]) -> tuple[LoraDelta, ...]:
    """The delta of all pairs of a tensor: concatenated along R; a single pair is not copied.

    Of a tensor with a matrix for each expert, one for each.
    """
    is_single = len(terms) == 1
    a = terms[0][0].a if is_single else torch.cat([pair.a for pair, _ in terms], dim=-2)
    b = terms[0][0].b if is_single else torch.cat([pair.b for pair, _ in terms], dim=-1)
    scales = torch.cat([torch.full((pair.rank,), scale) for pair, scale in terms])
    if name == EMBEDDING:  # rows of b are looked up, a projects to the model width
        a, b = b, a.T.contiguous()
    if a.dim() == 2:
        return (LoraDelta(_weight(a), _weight(b), scales),)
    return tuple(
        LoraDelta(_weight(down), _weight(up), scales) for down, up in zip(a, b, strict=True)
    )


def _weight(values: Tensor) -> Weight:
    return Weight(values, by_name("F32"), tuple(values.shape))


NO_ADAPTERS = Stack()
