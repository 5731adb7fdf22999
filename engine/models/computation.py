"""What a model computes with beside the values in its file, as one hash, for the key of its pages.

Some of it depends on how the model was loaded: the frequencies and the scale of RoPE on the context,
the rounding of products on the backend and on how it stores the weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, cast

from torch import Tensor

from engine.models.layers import Decoder
from engine.models.parts import Rope
from kernels.backend.placement import Placement
from kernels.weights.weight import Weight

# Of a decoder: what adapters must match, and which weights are read again for every pass.
_WITHOUT_EFFECT = ("base", "streamer", "offloaded")


def computation(decoder: Decoder) -> str:
    """SHA-256, in hexadecimal, of all that a decoder computes with beside the values in its file.

    Equal decoders of one file compute the same bits: RoPE as used, every number and option of every
    layer, where and in which layout each weight is, and the ops that run on the reference.
    """
    digest = hashlib.sha256()
    for piece in _pieces(decoder):
        digest.update(piece + b"\0")
    return digest.hexdigest()


def _pieces(value: object) -> Iterator[bytes]:
    """The parts of a value as bytes, in an order that depends on nothing else."""
    match value:
        case None | bool() | int() | float() | str() | Enum():
            yield repr(value).encode()
        case Placement():
            places = (value.embedding, *value.layers)  # pages do not depend on the head's
            yield " ".join(one.rounding for one in places).encode()
        case Rope():
            yield value.frequencies.detach().cpu().numpy().tobytes()
            yield repr((value.interleaved, value.scale)).encode()
        case Weight():
            yield repr((value.format.name, value.shape, value.layout)).encode()
        case Tensor():  # of the file
            yield repr((value.dtype, tuple(value.shape))).encode()
        case Mapping():
            for key, one in sorted(cast("Mapping[str, object]", value).items()):
                yield key.encode()
                yield from _pieces(one)
        case set() | frozenset():
            yield from _pieces(tuple(sorted(cast("Collection[str]", value))))
        case list() | tuple():
            found = cast("Collection[object]", value)
            yield str(len(found)).encode()
            for one in found:
                yield from _pieces(one)
        case _ if is_dataclass(value):
            yield type(value).__name__.encode()
            for field in fields(cast("Any", value)):
                if not (isinstance(value, Decoder) and field.name in _WITHOUT_EFFECT):
                    yield field.name.encode()
                    yield from _pieces(getattr(value, field.name))
        case _:
            yield type(value).__name__.encode()
