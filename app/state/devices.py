"""Devices in words: what runs where, how fast that is, and why a GPU is not used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from app.system.byte_size import size
from app.system.translation import listed, number, sentences, tr, trn
from engine import DeviceFault, DeviceInfo, DevicePart, DeviceRefusal

PROCESSOR = "cpu"  # name of its part
# Values of the setting "Runs on", and what the engine is asked for.
CHOICES = {"auto": "", "cpu": "cpu", "gpu": "gpu", "split": "split"}
_CHANGES_LITTLE = 1.05  # a predicted speed that nobody would notice
_MOST_SHOWN = 20.0  # a prediction beyond it is not that exact


def device_name(part: DevicePart | DeviceInfo) -> str:
    """The name of a device: "processor", "NVIDIA H100"."""
    if part.name == PROCESSOR:
        return tr("processor")
    return part.label or tr("GPU")


def place_words(parts: Sequence[DevicePart]) -> str:
    """What runs where: "processor", or "20 layers: NVIDIA H100, 12: processor"."""
    layers: dict[str, int] = {}
    for part in parts:
        layers[device_name(part)] = layers.get(device_name(part), 0) + part.layers
    if len(layers) < 2:
        return next(iter(layers), "")
    return listed(
        trn("{count} layer: {device}", "{count} layers: {device}", count, device=device)
        for device, count in layers.items()
    )


def speed_words(speedup: float) -> str:
    """The predicted speed relative to the processor alone; "" if it is not known or the same."""
    if speedup < _CHANGES_LITTLE:
        return ""
    if speedup >= _MOST_SHOWN:
        return tr("many times as fast as on the processor")
    return tr("about {factor} times as fast as on the processor", factor=number(speedup, 1))


def prediction_words(
    parts: Sequence[DevicePart], speedup: float, moved: DeviceRefusal | None
) -> str:
    """Where a model would run, with its memory there and its speed, in a few lines."""
    if moved is not None and len(parts) < 2:
        return moved_words(moved, parts)
    lines = [
        tr("{place} ({size})", place=place_words([part]), size=size(part.memory_bytes))
        if len(parts) < 2
        else trn(
            "{count} layer: {device} ({size})",
            "{count} layers: {device} ({size})",
            part.layers,
            device=device_name(part),
            size=size(part.memory_bytes),
        )
        for part in parts
    ]
    if speed := speed_words(speedup):
        lines.append(speed)
    return "\n".join(line[:1].upper() + line[1:] for line in lines)


def refusal_words(refusal: DeviceRefusal) -> str:
    """Why a GPU does not run a model, in one sentence."""
    match refusal.fault:
        case DeviceFault.NO_SUPPORT:
            return tr("This version of Tokonoma cannot use the GPU of this computer.")
        case DeviceFault.NO_DEVICE:
            return tr("No GPU was found, or its driver is not installed.")
        case DeviceFault.TOO_OLD:
            return tr("The GPU of this computer is too old.")
        case DeviceFault.NO_TRITON:
            return tr("The GPU cannot be used: a part of Tokonoma is not installed.")
        case DeviceFault.NO_COMPILER:
            return tr("The GPU cannot be used: this computer has no C compiler.")
        case DeviceFault.DRIVER_FAILS:
            return tr("The GPU or its driver failed.")
        case DeviceFault.COMPUTES_WRONGLY:
            return tr("The GPU gave wrong results.")
        case DeviceFault.OUT_OF_MEMORY:
            return tr("The memory of the GPU ran out.")
        case DeviceFault.TOO_LARGE:
            return tr("The model is too large for the free memory of the GPU.")
        case _:
            assert_never(refusal.fault)


def moved_words(refusal: DeviceRefusal, parts: Sequence[DevicePart]) -> str:
    """Why a model does not run where it was asked to, and where it runs, in one line."""
    on_gpu = sum(part.layers for part in parts if part.name != PROCESSOR)
    total = sum(part.layers for part in parts)
    if on_gpu:
        where = tr("{count} of its {total} layers run there.", count=on_gpu, total=total)
    else:
        where = tr("The processor runs the model.")
    return sentences(refusal_words(refusal), where)
