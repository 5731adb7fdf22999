"""Choice of the device that a model runs on: the processor, a GPU, or its layers split over both.

By the free memory: a GPU has the whole model if that fits, else as many of its last layers as do.
What cannot be used is no error: the processor runs the model, and a refusal says why.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby

import torch

from engine.errors import RequestError
from engine.gguf.reader import GGUFFile
from engine.loading.memory import HOST, MemoryPlan
from engine.loading.placement import is_divisible, predict
from engine.messages import CacheType, DeviceFault, DeviceInfo, DevicePart, DeviceRefusal
from engine.models.config import Config
from engine.vision.encoder_memory import EncoderSizes
from kernels import backends, devices
from kernels.backend.backend import HOST as PLACE
from kernels.backend.backend import Backend
from kernels.backend.placement import Placement
from kernels.backend.refusal import Refusal
from kernels.devices import PROCESSOR

log = logging.getLogger(__name__)

# Values of `Load.device`, beside the names of devices such as "cuda:1".
AUTOMATIC, GPU, SPLIT = "", "gpu", "split"

_LEAST_CONTEXT = 8_192  # tokens; for less of them a GPU gets fewer layers
_MEASURED_BYTES = 128 << 20  # read to measure a bandwidth

_bandwidths: dict[str, float] = {}  # bytes/s, by name of the backend


class DeviceError(RequestError):
    """A device failed while a model was loaded on it, or while it ran."""

    def __init__(self, refusal: DeviceRefusal) -> None:
        super().__init__(refusal.text, "Place the model on another backend.")
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Choice:
    """A placement, and why it is not what was asked for."""

    placement: Placement
    refusal: DeviceRefusal | None = None


def placed(
    file: GGUFFile,
    config: Config,
    device: str,
    context: int,
    cache: CacheType,
    reclaimable: int = 0,
    limit: int = 0,
    kept: Mapping[str, int] | None = None,
    encoder: EncoderSizes | None = None,
) -> Choice:
    """The placement of a model of a file on a device, see `choose`, by its memory plan."""

    def fits(placement: Placement) -> bool:
        plan, _ = predict(
            file,
            config,
            placement,
            context,
            cache,
            reclaimable,
            limit=limit,
            kept=kept,
            encoder=encoder,
        )
        return _is_whole(plan, context, config.context)

    return choose(device, config.layers, fits, divisible=is_divisible(file, config))


def choose(
    wanted: str, layers: int, fits: Callable[[Placement], bool], *, divisible: bool = True
) -> Choice:
    """The placement of a model of so many layers on the device `wanted`, see `Load`.

    `fits` is whether a model with this placement fits in the memory of its devices. One that is not
    `divisible` is on one device, see `placement.is_divisible`.
    """
    processor = Placement.on(backends.choose(), layers)
    if wanted == PROCESSOR:
        return Choice(processor)
    found = devices.found()
    if wanted not in (AUTOMATIC, GPU, SPLIT):
        found = [one for one in found if one.name == wanted]
    usable = [one for one in found if one.refusal is None]
    if not usable:
        if wanted == AUTOMATIC and not found:
            return Choice(processor)
        refused = found[0].refusal if found else None
        return Choice(processor, _refusal(refused) or _no_device(wanted))
    device = max(usable, key=lambda one: one.free_bytes)
    gpu: Backend | None = None
    try:
        gpu = device.backend()
        if wanted == AUTOMATIC and bandwidth(gpu) < bandwidth(processor.head):
            return Choice(processor)
        return _placed(processor, gpu, layers, fits, divisible)
    except Exception as error:
        if gpu is None and isinstance(error, ValueError):  # the backend refuses the device
            return Choice(processor, DeviceRefusal(DeviceFault.DRIVER_FAILS, str(error)))
        if not devices.is_device_error(error):
            raise
        log.warning("the device %s failed before the load: %s", device.name, error)
        return Choice(processor, failure(error))


def _placed(
    processor: Placement,
    gpu: Backend,
    layers: int,
    fits: Callable[[Placement], bool],
    divisible: bool,
) -> Choice:
    whole = Placement.on(gpu, layers)
    if fits(whole):
        return Choice(whole)
    if not divisible:
        text = (
            "The model is too large for the free memory of the GPU, and its layers cannot be "
            "divided between the GPU and the processor."
        )
        return Choice(processor, DeviceRefusal(DeviceFault.TOO_LARGE, text))
    placed, too_many = 0, layers  # of layers on the GPU
    while too_many - placed > 1:
        middle = (placed + too_many) // 2
        if fits(_split(processor, gpu, layers, middle)):
            placed = middle
        else:
            too_many = middle
    refusal = DeviceRefusal(
        DeviceFault.TOO_LARGE,
        f"The model is too large for the free memory of the GPU: {placed} of {layers} layers fit.",
    )
    return Choice(_split(processor, gpu, layers, placed) if placed else processor, refusal)


def _split(processor: Placement, gpu: Backend, layers: int, count: int) -> Placement:
    """The last `count` layers and the head on the GPU."""
    return Placement.split([(processor.head, layers - count), (gpu, count)])


def found() -> tuple[DeviceInfo, ...]:
    """The devices of this computer beside the processor."""
    return tuple(
        DeviceInfo(one.name, one.label, one.total_bytes, one.free_bytes, _refusal(one.refusal))
        for one in devices.found()
    )


def labels() -> dict[str, str]:
    """The names of the hardware of devices, by their own."""
    return {one.name: one.label for one in devices.found()}


def parts(placement: Placement, plan: MemoryPlan) -> tuple[DevicePart, ...]:
    """What runs where: consecutive layers of a device, and the bytes that the model takes there."""
    sizes = {one.device: one.total_bytes for one in plan.devices} or {HOST: plan.total_bytes}
    known = labels() if is_elsewhere(placement) else {}
    found: list[DevicePart] = []
    for backend, group in groupby(placement.layers):
        name = PROCESSOR if backend.device == PLACE else backend.name
        size = sizes.get(HOST if backend.free_bytes() is None else str(backend.device), 0)
        found.append(DevicePart(name, known.get(name, ""), len(list(group)), size))
    return tuple(found)


def speedup(placement: Placement, plan: MemoryPlan) -> float:
    """Predicted speed of a token relative to the processor alone, by bytes and bandwidths; 0: it is
    the processor.
    """
    if not is_elsewhere(placement):
        return 0.0
    size, layers = plan.weights_bytes + plan.cache_bytes, placement.layers
    seconds = sum(size / len(layers) / bandwidth(one) for one in layers)
    return size / bandwidth(backends.choose()) / seconds


def bandwidth(backend: Backend) -> float:
    """Bandwidth of a backend's memory in bytes/s, measured once."""
    if backend.name not in _bandwidths:
        _bandwidths[backend.name] = backend.read_bandwidth(_MEASURED_BYTES)
    return _bandwidths[backend.name]


def _is_whole(plan: MemoryPlan, context: int, context_model: int) -> bool:
    """Whether a model fits in the memory of its devices, with no layers read from the disk.

    Without a wanted `context` in tokens it must have room for an ordinary one.
    """
    least = context or min(_LEAST_CONTEXT, context_model)
    return plan.fits and plan.offloading is None and plan.context >= least


def is_elsewhere(placement: Placement) -> bool:
    """Whether any part of a model is on a device beside the processor."""
    return any(one.device != PLACE for one in placement.backends)


# --- failures -----------------------------------------------------------------------------------


@contextmanager
def device_errors(placement: Placement) -> Iterator[None]:
    """Raise DeviceError for what a device raises; all other errors pass."""
    if not is_elsewhere(placement):
        yield
        return
    refusal: DeviceRefusal | None = None
    try:
        yield
    except Exception as error:
        if not devices.is_device_error(error):
            raise
        log.warning("a device failed", exc_info=error)
        refusal = failure(error)
        error.__context__ = error.__cause__ = error.__traceback__ = None  # frames hold tensors
    if refusal is not None:  # outside, where the fault and the tensors of its frames are free
        raise DeviceError(refusal)


def failure(error: BaseException) -> DeviceRefusal:
    """The refusal of a device that raised an error."""
    reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
    if isinstance(error, torch.OutOfMemoryError):
        return DeviceRefusal(DeviceFault.OUT_OF_MEMORY, "The memory of the GPU ran out.")
    return DeviceRefusal(DeviceFault.DRIVER_FAILS, f"The GPU failed: {reason}.")


def free_memory() -> None:
    """Return to the driver what no tensor uses any more; a driver that fails is left alone."""
    gc.collect()
    with suppress(Exception):
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        if torch.backends.mps.is_available():
            torch.mps.empty_cache()


def _refusal(refused: Refusal | None) -> DeviceRefusal | None:
    return (
        None if refused is None else DeviceRefusal(DeviceFault(refused.reason.value), refused.text)
    )


def _no_device(wanted: str) -> DeviceRefusal:
    name = "GPU that can be used" if wanted in (GPU, SPLIT) else f"device '{wanted}'"
    return DeviceRefusal(DeviceFault.NO_DEVICE, f"This computer has no {name}.")
