"""Offloading plan: which weights of a model larger than the memory stay in its file.

Of a mixture these are the experts, see `ExpertStreamer`: what the others leave of the memory is a
cache of experts. Where that is not enough, and of other models, they are whole layers, which are
read for every pass, see `LayerStreamer`. As few layers as possible are, spread evenly between
those in memory, which are computed while the next one is read.

Only weights in the host's memory are: for a GPU that is too small, place fewer layers on it.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from engine.gguf.reader import GGUFFile, TensorInfo
from engine.loading.memory import HOST, DeviceMemory, MemoryPlan, Offloading, usable
from engine.machine.direct_file import read_speed
from engine.models.layer_streamer import SLOTS
from engine.models.slot_reader import PIECE_BYTES, WORKERS, slot_size
from engine.models.weights import Storages, backend_of, layer_of
from kernels.backend.backend import Backend
from kernels.backend.placement import Placement
from kernels.weights.weight import Storage

OFFLOADED_CONTEXT = 4_096  # tokens, unless asked for: the KV cache takes memory that layers need
_FUSED = 3  # matrices in one tensor at most: queries, keys and values
_EXPERTS = re.compile(r"blk\.\d{1,6}\.ffn_\w+_exps\.weight")  # matrices of all experts of a layer
_FUSED_EXPERTS = "ffn_gate_up_exps"  # two matrices of each expert
_SHARE = 0.8  # of what a model may take of the free memory: other programs need theirs for long


def device_of(backend: Backend) -> str:
    """The device whose memory a backend uses; those without memory of their own use the host's."""
    return HOST if backend.free_bytes() is None else str(backend.device)


def layer_bytes(
    file: GGUFFile, placement: Placement, storage: Storages
) -> dict[int, tuple[int, int]]:
    """The layers that can be offloaded: bytes of their matrices in memory, and in the file.

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


@dataclass(frozen=True, slots=True)
class ExpertBytes:
    """Sizes of the experts that can be offloaded: those of the host's first backend."""

    layers: tuple[int, ...]
    count: int  # experts of all layers
    slot: int  # memory of the largest one
    saved: int  # memory that all take where they are not offloaded
    stored: int  # bytes of all in the file
    chosen: int  # of a layer for each token
    token: int  # bytes in the file of those that a token uses


def expert_bytes(
    file: GGUFFile, placement: Placement, storage: Storages, chosen: int
) -> ExpertBytes | None:
    """The sizes of a mixture's experts, of which each token has so many in a layer; None: no mixture."""
    hosts = [one for one in placement.layers if device_of(one) == HOST]
    slots: defaultdict[int, list[int]] = defaultdict(list)  # by layer, of an expert's matrices
    counts: dict[int, int] = {}
    saved = stored = token = 0
    for info in file.tensors.values():
        layer = layer_of(info.name)
        if len(info.shape) != 3 or not _EXPERTS.fullmatch(info.name):
            continue
        backend = backend_of(info.name, placement)
        if layer < len(placement.layers) and hosts and backend is hosts[0]:
            kept = storage.get((backend.name, info.format.name), Storage.BACKEND)
            count, rows, columns = info.shape
            matrices = 1 + (_FUSED_EXPERTS in info.name)
            shape = (rows // matrices, columns)
            slots[layer] += [backend.held_bytes(info.format, shape, kept)] * matrices
            counts[layer] = count
            saved += backend.held_bytes(info.format, info.shape, kept)
            stored += info.size_bytes
            token += info.size_bytes // count * min(chosen, count)
    if not counts:
        return None
    slot = max(map(slot_size, slots.values()))
    layers = tuple(sorted(counts))
    return ExpertBytes(layers, sum(counts.values()), slot, saved, stored, chosen, token)


def with_offloading(
    experts: ExpertBytes | None,
    layers: Mapping[int, tuple[int, int]],
    planned: Callable[[Offloading], MemoryPlan],
) -> MemoryPlan | None:
    """The plan with offloaded experts or, if too large, layers; None: neither saves memory.

    If nothing fits it is the one that takes least. `experts` and `layers` are the results of
    `expert_bytes` and `layer_bytes`; `planned` makes the plan with some offloading.
    """
    by_expert = None if experts is None else _with_offloaded_experts(experts, planned)
    if by_expert is not None and by_expert.fits:
        return by_expert
    found = [one for one in (_with_offloaded_layers(layers, planned), by_expert) if one is not None]
    return min(found, key=lambda one: (not one.fits, one.total_bytes), default=None)


def _with_offloaded_layers(
    layers: Mapping[int, tuple[int, int]], planned: Callable[[Offloading], MemoryPlan]
) -> MemoryPlan | None:
    """The plan with as few offloaded layers as fit, or with all; None: that saves no memory."""
    if len(layers) <= SLOTS:
        return None
    least = planned(_offloading(layers, list(layers)))
    if not least.fits:
        return least
    host = least.devices[0] if least.devices else least
    most = _most(host)
    for count in range(SLOTS + 1, len(layers)):
        numbers = list(layers)
        offloaded = [numbers[at * len(layers) // count] for at in range(count)]
        kept = sum(layers[layer][0] for layer in layers if layer not in offloaded)
        if host.total_bytes + kept <= most:
            found = planned(_offloading(layers, offloaded))
            if found.fits and found.context >= least.context:
                return found
    return least


def _with_offloaded_experts(
    experts: ExpertBytes, planned: Callable[[Offloading], MemoryPlan]
) -> MemoryPlan | None:
    """The plan with as many experts in memory as fit, at least those of a token in one layer.

    None: offloading saves no memory.
    """
    if experts.chosen >= experts.count:
        return None
    least = planned(_offloaded_experts(experts, experts.chosen))
    if not least.fits:
        return least
    host = least.devices[0] if least.devices else least
    more = max(_most(host) - host.total_bytes, 0) // experts.slot
    return planned(_offloaded_experts(experts, min(experts.chosen + more, experts.count)))


def _offloaded_experts(experts: ExpertBytes, slots: int) -> Offloading:
    return Offloading(
        layers=experts.layers,
        slot_bytes=experts.slot,
        held_bytes=slots * experts.slot + _buffer_bytes(experts.slot),
        saved_bytes=experts.saved,
        token_bytes=experts.token * (experts.count - slots) // experts.count,
        chunk_bytes=experts.stored,
        expert_slots=slots,
    )


def _buffer_bytes(slot: int) -> int:
    """Memory of the threads that read pieces of what fits in a slot."""
    return WORKERS * min(slot, PIECE_BYTES)


def _most(host: MemoryPlan | DeviceMemory) -> int:
    """The most that a plan with offloading may take of the host; `host` takes the least."""
    most = usable(host.available_bytes, host.limit_bytes)
    return most if host.limit_bytes else max(int(most * _SHARE), host.total_bytes)


def timed(offloading: Offloading, file: Path, loops: int) -> Offloading:
    """With the disk's speed, which the first call for a disk measures, and what all loops read."""
    return replace(
        offloading,
        token_bytes=offloading.token_bytes * loops,
        chunk_bytes=offloading.chunk_bytes * loops,
        disk_speed=read_speed(file),
    )


def _offloading(layers: Mapping[int, tuple[int, int]], offloaded: list[int]) -> Offloading:
    slot = max(layers[layer][0] for layer in offloaded)
    return Offloading(
        layers=tuple(offloaded),
        slot_bytes=slot,
        held_bytes=SLOTS * slot + _buffer_bytes(slot),
        saved_bytes=sum(layers[layer][0] for layer in offloaded),
        token_bytes=sum(layers[layer][1] for layer in offloaded),
        chunk_bytes=sum(layers[layer][1] for layer in offloaded),
    )
