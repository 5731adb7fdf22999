"""Devices in words: what runs where, how fast, and why not on the GPU."""

from __future__ import annotations

import pytest

from app.state.devices import moved_words, place_words, prediction_words, refusal_words, speed_words
from engine import DeviceFault, DevicePart, DeviceRefusal

CPU = DevicePart("cpu", "", 12, 1_900_000_000)
GPU = DevicePart("cuda", "NVIDIA H100", 24, 3_700_000_000)
LARGE = DeviceRefusal(DeviceFault.TOO_LARGE, "24 of 36 layers fit.")


def test_places() -> None:
    assert place_words([CPU]) == "processor"
    assert place_words([GPU]) == "NVIDIA H100"
    assert place_words([DevicePart("cuda", "", 3, 1)]) == "GPU"
    assert place_words([CPU, GPU]) == "12 layers: processor, 24 layers: NVIDIA H100"
    assert place_words([GPU, DevicePart("cpu", "", 1, 1), GPU]) == (
        "48 layers: NVIDIA H100, 1 layer: processor"
    )
    assert place_words([]) == ""


@pytest.mark.parametrize(
    ("speedup", "words"),
    [
        (0.0, ""),
        (1.04, ""),
        (2.44, "about 2.4 times as fast as on the processor"),
        (300.0, "many times as fast as on the processor"),
    ],
)
def test_speeds(speedup: float, words: str) -> None:
    assert speed_words(speedup) == words


def test_predictions() -> None:
    assert prediction_words([CPU], 0.0, None) == "Processor (1.9 GB)"
    assert prediction_words([CPU, GPU], 2.4, LARGE).splitlines() == [
        "12 layers: processor (1.9 GB)",
        "24 layers: NVIDIA H100 (3.7 GB)",
        "About 2.4 times as fast as on the processor",
    ]
    old = DeviceRefusal(DeviceFault.TOO_OLD, "The NVIDIA GeForce GTX 1060 is too old.")
    assert prediction_words([CPU], 0.0, old) == (
        "The GPU of this computer is too old. The processor runs the model."
    )


@pytest.mark.parametrize("fault", DeviceFault)
def test_each_refusal_is_a_sentence_of_its_own(fault: DeviceFault) -> None:
    words = refusal_words(DeviceRefusal(fault, "Exactly."))
    assert words.endswith(".")
    assert words.count(".") == 1
    others = [refusal_words(DeviceRefusal(one, "")) for one in DeviceFault if one is not fault]
    assert words not in others


def test_where_a_model_runs_instead() -> None:
    assert moved_words(LARGE, [CPU, GPU]).endswith("24 of its 36 layers run there.")
    assert moved_words(LARGE, [CPU]).endswith("The processor runs the model.")
