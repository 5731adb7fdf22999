"""A model that was just loaded tries its kernels: a few tokens through the first layers, twice.

What the kernels in use compute is compared op by op with the definitions, on the weights as the
file stores them. A kernel that disagrees is refused for the rest of the program's life, the log
and `info` say so, and the model is read again for the reference.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from engine.cache import Cache
from engine.gguf import GGUFFile
from engine.lora import EMBEDDING, NO_ADAPTERS
from engine.models.config import Config
from engine.models.layers import Decoder, Projection
from kernels import ops
from kernels.selfcheck import Witness
from kernels.weight import Weight

_TOKENS, _LAYERS = 5, 2

log = logging.getLogger(__name__)


def refuse_faulty_kernels(file: GGUFFile, config: Config, decoder: Decoder) -> bool:
    """Whether any kernel was refused: the weights must then be read again."""
    witness = Witness(_Stored(file, decoder))
    with torch.inference_mode(), ops.watched(witness):
        _run(config, decoder)
    for (op, format), error in witness.faults.items():
        log.warning(
            "The kernel of %s on %s is wrong by %.2g on this machine; the reference runs it.",
            op,
            format,
            error,
        )
        ops.refuse(op, format)
    return bool(witness.faults)


def _run(config: Config, decoder: Decoder) -> None:
    """Some tokens through the first layers and the head, and one more alone."""
    tokens = torch.arange(_TOKENS + 1) * 37 % config.vocabulary
    cache = Cache(config.layers, config.kv_heads, config.head_width, _TOKENS + 1)
    for some in (tokens[:_TOKENS], tokens[_TOKENS:]):
        positions = torch.arange(cache.length, cache.length + len(some))
        x = ops.embed(some, decoder.embedding) * decoder.embedding_scale
        for layer, block in enumerate(decoder.blocks[:_LAYERS]):
            x = block(x, positions, cache, layer, NO_ADAPTERS)
        decoder.logits(x[-1:])
        cache.advance(len(some))


class _Stored:
    """Rows of weights as the file has them, decoded by the definition."""

    def __init__(self, file: GGUFFile, decoder: Decoder) -> None:
        self._file = file
        products = [each for block in decoder.blocks[:_LAYERS] for each in block.projections]
        self._held = {id(each.weight): each for each in (decoder.head, *products) if each.name}
        self._tables = {id(decoder.embedding): EMBEDDING}
        if decoder.positions is not None:
            self._tables[id(decoder.positions)] = "position_embd.weight"

    def __call__(self, weight: Weight, rows: Tensor) -> Tensor | None:
        """Rows f32 [n, columns] of a prepared weight; None for an expert's, which has no tensor."""
        product = self._held.get(id(weight))
        name = self._tables.get(id(weight)) or self._name_of(product)
        if not name:
            return None
        info = self._file.tensors[name]
        stored = Weight.from_bytes(self._file.data(name), info.format, info.shape)
        start = product.part.start if product is not None and product.part else 0
        found = stored.rows(rows + start)
        self._file.let_go(name)  # a row brings many of its neighbours into memory
        return found

    def _name_of(self, product: Projection | None) -> str:
        if product is None:
            return ""
        return product.name if product.name in self._file.tensors else EMBEDDING
