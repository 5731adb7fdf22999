"""What the next prompt costs, and the ways out when it does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.domain.documents import Reads
from app.domain.model_ref import Local
from app.domain.parts import FilePart, ImagePart
from app.state.attachments import (
    Attachment,
    AttachmentPhase,
    FitEstimate,
    LongerContext,
    OtherModel,
)
from app.ui.documents.fit import FitLine
from fakes import MODEL
from sample_files import REPORT
from stage import Stage

NOTES = FilePart("notes.md", "One line", path="/n.md")
READY = AttachmentPhase.READY
LARGE = Attachment(1, "report.pdf", "/r.pdf", READY, REPORT, 120_000)
SMALL = Attachment(2, "notes.md", "/n.md", READY, NOTES, 300)
FITS = FitEstimate(5900, 8192, 1024, 5100, 4900, 4.2)
TOO_LONG = FitEstimate(121_000, 8192, 1024, 120_300)


def shown(stage: Stage, fit: FitEstimate | None, *files: Attachment) -> FitLine:
    stage.states.attachments.set(stage.state.current, files)
    stage.states.attachments.set_fit(fit)  # no event follows, at which the controller would count
    return stage.window.chat.fit_line


def test_a_quiet_line_says_what_it_costs(stage: Stage) -> None:
    stage.ready(MODEL)
    line = shown(stage, FITS, replace(LARGE, tokens=4800), SMALL)
    assert line.isVisible()
    words = "2 files, 5,100 tokens, first words in about 4 s; 4,900 already read"
    assert line.words.text() == words
    assert not any(button.isVisible() for button in line.buttons)
    assert not shown(stage, None, SMALL).isVisible()
    assert not shown(stage, FITS).isVisible()


def test_what_is_read_part_by_part_has_its_parts_and_their_time(stage: Stage) -> None:
    stage.ready(MODEL)
    part = replace(REPORT, reads=Reads.SUMMARY)
    fit = FitEstimate(43, 8192, 1024, cached_tokens=24, parts=4, part_tokens=20_026)
    line = shown(stage, fit, replace(LARGE, part=part))
    assert line.words.text() == "1 file, 20,026 tokens, read in about 4 parts"
    line = shown(stage, replace(fit, part_seconds=140), replace(LARGE, part=part))
    words = "1 file, 20,026 tokens, read in about 4 parts, done in about 2 min"
    assert line.words.text() == words
    hours = replace(fit, parts=400, part_seconds=8_100)
    assert shown(stage, hours, LARGE).words.text().endswith("done in about 2 h 15 min")


def test_a_document_that_is_too_long_is_offered_to_be_read_part_by_part(stage: Stage) -> None:
    stage.ready(MODEL)
    line = shown(stage, TOO_LONG, LARGE)
    stage.window.composer.insert("What was decided about the quay?")
    line.parts_button.click()
    [attached] = stage.states.attachments.of(stage.state.current)
    assert attached.part is not None
    assert attached.part.reads is Reads.SUMMARY
    assert stage.window.composer.editor.text() == "What was decided about the quay?"
    line = shown(stage, TOO_LONG, LARGE)
    stage.window.composer.editor.clear()
    line.parts_button.click()
    assert stage.window.prompt_list.isVisible()
    first = stage.window.prompt_list._offered[0]
    assert first.words == "Summarise a long document, part by part"


def test_a_file_that_is_too_long_is_named(stage: Stage) -> None:
    stage.ready(MODEL)
    line = shown(stage, TOO_LONG, SMALL, LARGE)
    name = stage.state.model.name
    words = f"report.pdf has 120,000 tokens; {name} reads 8,192 at once."
    assert line.words.text() == words
    visible = [button for button in line.buttons if button.isVisible()]
    assert visible == [*line.buttons[1:]]  # without that of pictures
    assert [button.isEnabled() for button in visible] == [True, True, True, False, True]


def test_files_and_chats_that_are_too_long_are_named(stage: Stage) -> None:
    stage.ready(MODEL)
    several = replace(TOO_LONG, tokens=9_000, file_tokens=8_000)
    halves = [replace(LARGE, id=n, tokens=4_000) for n in (1, 2)]
    assert shown(stage, several, *halves).words.text().startswith("The files have 8,000 tokens")
    chat = replace(TOO_LONG, tokens=8_000, file_tokens=300)
    words = shown(stage, chat, SMALL).words.text()
    assert words.startswith("All of it has 8,000 tokens, and the answer needs 1,024;")


def test_the_ways_ask_for_what_they_say(stage: Stage) -> None:
    stage.ready(MODEL)
    longer = LongerContext(131_072, 310_000_000, fits=True)
    other = OtherModel(Local(Path("/m/qwen.gguf")), "Qwen3 4B", 262_144)
    line = shown(stage, replace(TOO_LONG, longer_context=longer, models=(other,)), SMALL, LARGE)
    assert line.longer_button.text() == "A longer context: 131,072 tokens, 310 MB"
    asked: list[object] = []
    line.longer_requested.disconnect()
    line.longer_requested.connect(lambda: asked.append("longer"))
    line.model_chosen.disconnect()
    line.model_chosen.connect(asked.append)
    line.longer_button.click()
    menu = line.models_menu()
    words = [each.text() for each in menu.actions() if not each.isSeparator()]
    assert words == ["Qwen3 4B, 262,144 tokens", "All models…"]
    menu.actions()[0].trigger()
    menu.close()
    assert asked == ["longer", other.model]
    line.pages_button.click()
    viewer = stage.window.attaching.viewer
    assert viewer.card is not None
    assert viewer.card.attachment == LARGE.id
    viewer.popovers[0].close_card()
    line.passages_button.click()
    reads = [each.part and each.part.reads for each in stage.states.attachments.of(None)]
    assert reads == [Reads.PASSAGES, Reads.PASSAGES]


def test_a_way_that_is_not_there_says_why(stage: Stage) -> None:
    stage.ready(MODEL)
    short = LongerContext(131_072, 14_600_000_000, fits=False)
    line = shown(stage, replace(TOO_LONG, longer_context=short), replace(SMALL, tokens=120_000))
    reasons = line.reasons.text().splitlines()
    assert reasons == [
        "No file here has pages.",
        "A context of 131,072 tokens needs 14.6 GB, more than is free.",
        "None of your other models can read it all.",
    ]
    assert not line.pages_button.isEnabled()
    assert line.longer_button.accessibleDescription() == reasons[1]
    line.model_button.click()
    assert stage.window.picker_card.isVisible()


def test_earlier_files_that_are_not_read_are_named(stage: Stage) -> None:
    stage.ready(MODEL)
    line = shown(stage, replace(FITS, forgotten=("a.pdf", "b.pdf")), SMALL)
    assert line.reasons.text() == "Of earlier files, not read any more: a.pdf, b.pdf."


def test_pictures_that_are_too_large_can_be_seen_with_less_detail(stage: Stage) -> None:
    stage.ready(MODEL)
    pasted = Attachment(1, "", "", READY, ImagePart("0" * 64, width=9, height=9), 9_000)
    fit = FitEstimate(9_100, 8192, 1024, 9_000, less_detail=((1, 6_000),))
    line = shown(stage, fit, pasted)
    assert line.words.text().startswith("Pasted picture has 9,000 tokens;")
    assert not line.pages_button.isVisible()
    assert not line.passages_button.isVisible()
    asked: list[tuple[int, int]] = []
    line.detail_requested.disconnect()
    line.detail_requested.connect(lambda id, tokens: asked.append((id, tokens)))
    line.detail_button.click()
    assert asked == [(1, 6_000)]
    line = shown(stage, replace(fit, less_detail=()), pasted)
    assert not line.detail_button.isEnabled()
    assert line.reasons.text().startswith("The model cannot see them with less detail.")
