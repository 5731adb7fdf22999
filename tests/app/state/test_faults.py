"""Faults of models and documents: sentences, technical details, and the text in the store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.documents.source import ExtractionFault, Look
from app.state.document_faults import fault_sentence
from app.state.faults import explain
from engine import BlindReason, Fault, FaultKind, FileLook

EXACT, ADVICE = "The file ends at byte 49.", "It is cut short."
GB = 1_000_000_000
FIT = Fault(FaultKind.MEMORY, "", 9 * GB, 6 * GB, 8192, 2048)


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        (Fault(FaultKind.INCOMPLETE), "m.gguf is incomplete. Download it again."),
        (
            Fault(FaultKind.NOT_A_MODEL, FileLook.JPEG),
            "m.gguf is not a model file (it looks like a JPEG image). Choose a GGUF file.",
        ),
        (Fault(FaultKind.NOT_A_MODEL, FileLook.EMPTY), "m.gguf is empty. Download it again."),
        (
            Fault(FaultKind.NOT_A_MODEL, "of a later version"),
            "m.gguf is not a model file. Choose a GGUF file.",
        ),
        (
            Fault(FaultKind.ARCHITECTURE, "mamba"),
            "m.gguf is a mamba model, which is not supported yet. Choose a model of another "
            "family, such as Llama, Qwen or Gemma.",
        ),
        (
            Fault(FaultKind.OTHER_TYPE, "embeddings"),
            "m.gguf compares or rates texts (embeddings); it cannot chat. Choose a model that was made "
            "to chat.",
        ),
        (
            Fault(FaultKind.ARCHITECTURE, "qwen4exp", nearest="Qwen3 models (qwen3)"),
            "m.gguf is a qwen4exp model, which is not supported yet. Nearest are Qwen3 models "
            "(qwen3); choose one of these.",
        ),
        (
            Fault(FaultKind.OTHER_TYPE, "no vocabulary"),
            "m.gguf has no vocabulary that can be read; it cannot chat. Choose a model that was "
            "made to chat.",
        ),
        (
            Fault(FaultKind.FORMAT, "Q4_0_4_4"),
            "m.gguf uses the format Q4_0_4_4, which is not supported. Choose another version of "
            "this model, such as Q4_K_M or Q8_0.",
        ),
        (
            FIT,
            "m.gguf needs 9.0 GB of memory; 6.0 GB is free. Close other programs, or choose a "
            "smaller model.",
        ),
        (
            replace(FIT, kind=FaultKind.CONTEXT),
            "A context of 8,192 tokens needs 9.0 GB of memory; 6.0 GB is free. Choose 2,048 tokens "
            "or fewer, or close other programs.",
        ),
        (
            Fault(FaultKind.PICTURE, "missing"),
            "A picture of this chat was not found. Add it again, or remove it from its message.",
        ),
        (
            Fault(FaultKind.NO_SIGHT, BlindReason.MEMORY.value),
            "There is not enough memory for m.gguf to read images. Close other programs and load it "
            "again, or choose a smaller model.",
        ),
        (
            Fault(FaultKind.MEMORY),
            "This computer ran out of memory. Close other programs, or choose a smaller model.",
        ),
    ],
)
def test_a_code_becomes_a_short_sentence_with_the_exact_text_as_detail(
    fault: Fault, wanted: str
) -> None:
    shown = explain(fault, "m.gguf", EXACT, ADVICE)
    assert shown.text == wanted
    assert shown.detail == f"{EXACT} {ADVICE}"


@pytest.mark.parametrize("kind", [kind for kind in FaultKind if kind is not FaultKind.OTHER])
def test_every_code_has_a_sentence(kind: FaultKind) -> None:
    shown = explain(replace(FIT, kind=kind, about="x"), "m.gguf", EXACT, ADVICE)
    assert EXACT not in shown.text
    assert shown.sentence.endswith(".")
    assert shown.remedy.endswith(".")


def test_each_reason_not_to_see_and_each_fault_of_a_picture_has_words_of_its_own() -> None:
    found = [Fault(FaultKind.NO_SIGHT, one.value) for one in BlindReason]
    found += [Fault(FaultKind.PICTURE, one) for one in ("missing", "damaged", "large")]
    assert (
        len({explain(one, "m.gguf", EXACT, ADVICE).sentence for one in found})
        == len(BlindReason) + 3
    )


@pytest.mark.parametrize("look", [look for look in FileLook if look is not FileLook.UNKNOWN])
def test_every_look_of_a_file_has_words(look: FileLook) -> None:
    unknown = explain(Fault(FaultKind.NOT_A_MODEL, FileLook.UNKNOWN), "m.gguf", EXACT)
    shown = explain(Fault(FaultKind.NOT_A_MODEL, look), "m.gguf", EXACT)
    assert shown.sentence != unknown.sentence


@pytest.mark.parametrize("fault", [None, Fault()])
def test_without_a_code_the_text_of_the_engine_is_shown(fault: Fault | None) -> None:
    shown = explain(fault, "m.gguf", EXACT, ADVICE)
    assert (shown.text, shown.detail) == (f"{EXACT} {ADVICE}", "")


# --- faults of documents as sentences -------------------------------------------------------------


def test_every_fault_and_every_look_has_a_sentence_with_the_name() -> None:
    sentences: set[str] = set()
    for fault in ExtractionFault:
        sentence, _ = fault_sentence("my.file", fault, "some reason")
        assert "my.file" in sentence
        sentences.add(sentence)
    for look in Look:
        sentence, _ = fault_sentence("my.file", ExtractionFault.UNKNOWN, look)
        assert "my.file" in sentence
        sentences.add(sentence)
    assert len(sentences) >= len(ExtractionFault) + len(Look) - 3  # of old formats: one for three
