"""Reason why a device cannot run a model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Reason(Enum):
    """Kind of the reason."""

    NO_SUPPORT = "no support"  # this build of torch cannot use such devices
    NO_DEVICE = "no device"  # there is none, or no driver for it
    TOO_OLD = "too old"
    NO_TRITON = "no triton"  # the package that compiles the kernels is not installed
    NO_COMPILER = "no compiler"  # a C compiler, which that package needs
    DRIVER_FAILS = "driver fails"
    COMPUTES_WRONGLY = "computes wrongly"  # a kernel failed its check at load
    OUT_OF_MEMORY = "out of memory"
    TOO_LARGE = "too large"  # the model, for what is free of its memory


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a device cannot run a model, as a code and as one English sentence."""

    reason: Reason
    text: str
