"""Paging plan: which layers of a model larger than the memory stay in its file.

The matrices of these layers are read from the disk for every pass, see `LayerPager`. As few layers
as possible are paged, spread evenly between those in memory, which are computed while the next one
is read. Only layers in the host's memory are paged: for a GPU that is too small, place fewer layers
on it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from engine.gguf.reader import GGUFFile, TensorInfo
from engine.host.direct_file import read_speed
from engine.loading.memory import HOST, MemoryPlan, Paging, usable
from engine.models.layer_pager import PIECE_BYTES, SLOTS, WORKERS, slot_size
from engine.models.weights import Storages, backend_of, layer_of
from kernels.backend import Backend
from kernels.placement import Placement
from kernels.weight import Storage

PAGED_CONTEXT = 4_096  # tokens, unless asked for: the KV cache takes memory that layers need
_FUSED = 3  # matrices in one tensor at most: queries, keys and values
_SHARE = 0.8  # of what a model may take of the free memory: other programs need theirs for long


def device_of(backend: Backend) -> str:
    """The device whose memory a backend uses; those without memory of their own use the host's."""
    return HOST if backend.free_bytes() is None else str(backend.device)


def layer_bytes(
    file: GGUFFile, placement: Placement, storage: Storages
) -> dict[int, tuple[int, int]]:
    """The layers that can be paged: bytes of their matrices in memory, and in the file.

    They are those of one backend, the first that uses the host's memory.
    """
    hosts = [one for one in placement.layers if device_of(one) == HOST]
    held: defaultdict[int, list[int]] = defaultdict(list)
    stored: defaultdict[int, int] = defaultdict(int)
    for info in file.tensors.values():
        layer = layer_of(info.name)
        if len(info.shape) < 2 or not 0 <= layer < len(placement.layers):
            continue
        backend = backend_of(info.name, placement)
        if hosts and backend is hosts[0]:
            kept = storage.get((backend.name, info.format.name), Storage.BACKEND)
            held[layer] += _pieces(backend, info, kept)
            stored[layer] += info.size_bytes
    return {layer: (slot_size(held[layer]), stored[layer]) for layer in sorted(held)}


def _pieces(backend: Backend, info: TensorInfo, kept: Storage) -> list[int]:
    """The most bytes of the matrices that a tensor is split into: experts, or a few fused ones."""
    *counts, rows, columns = info.shape
    whole = backend.held_bytes(info.format, (rows, columns), kept)
    if counts:
        return [whole] * math.prod(counts)
    group = 1 if kept is Storage.FILE else backend.group_rows(info.format)
    padding = backend.held_bytes(info.format, (group, columns), kept)
    return [whole, *[padding] * _FUSED]


def with_paging(
    layers: Mapping[int, tuple[int, int]], planned: Callable[[Paging], MemoryPlan]
) -> MemoryPlan | None:
    """The plan with as few paged layers as fit, or with all; None: paging saves no memory.

    `layers` is the result of `layer_bytes`; `planned` makes the plan with some paging.
    """
    if len(layers) <= SLOTS:
        return None
    least = planned(_paging(layers, list(layers)))
    if not least.fits:
        return least
    host = least.devices[0] if least.devices else least
    most = usable(host.available_bytes, host.limit_bytes)
    if not host.limit_bytes:
        most = max(int(most * _SHARE), host.total_bytes)
    for count in range(SLOTS + 1, len(layers)):
        numbers = list(layers)
        paged = [numbers[at * len(layers) // count] for at in range(count)]
        kept = sum(layers[layer][0] for layer in layers if layer not in paged)
        if host.total_bytes + kept <= most:
            found = planned(_paging(layers, paged))
            if found.fits and found.context >= least.context:
                return found
    return least


def timed(paging: Paging, file: Path) -> Paging:
    """With the time of a pass; the first call for a disk measures its speed."""
    speed = read_speed(file)
    return replace(paging, pass_seconds=paging.pass_bytes / speed) if speed else paging


def _paging(layers: Mapping[int, tuple[int, int]], paged: list[int]) -> Paging:
    slot = max(layers[layer][0] for layer in paged)
    return Paging(
        layers=tuple(paged),
        slot_bytes=slot,
        held_bytes=SLOTS * slot + WORKERS * min(slot, PIECE_BYTES),
        saved_bytes=sum(layers[layer][0] for layer in paged),
        pass_bytes=sum(layers[layer][1] for layer in paged),
    )
