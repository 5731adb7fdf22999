"""Faults of documents as sentences."""

from __future__ import annotations

from app.documents.source import ExtractionFault, Look
from app.state.document_faults import fault_sentence


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
