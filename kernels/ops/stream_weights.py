"""The weights of an offloaded layer, read from the disk."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.ops.running import Pass
from kernels.ops.weight_streamers import WeightStreamer


@dataclass(frozen=True, slots=True, eq=False)
class StreamWeights:
    """The weights of an offloaded layer are in memory for the instructions up to the next one."""

    streamer: WeightStreamer
    layer: int  # number of the layer in the streamer; -1: none, at the end of a body
    upcoming: tuple[
        int, ...
    ]  # the offloaded layers after it; after the last one, those of the next pass

    def run(self, on: Pass) -> None:
        self.streamer.fetch(self.layer, self.upcoming, on.checkpoint)
