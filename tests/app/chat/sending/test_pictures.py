"""Attached pictures: looked at in a child process, part of the draft, the message and the prompt."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from pytestqt.qtbot import QtBot

from app.chat.sending.sight import NOTICE
from app.documents.extract import Extractor
from app.documents.pictures import THUMBNAIL
from app.domain.parts import ImagePart, TextPart
from app.state.attachments import Attachment, AttachmentPhase, DetailTokens, Editing
from app.state.chat import ModelFile
from app.state.pictures import PictureCopy
from app.store.blobs import Blobs
from engine import Blindness, BlindReason, Detail, ModelFacts, Role
from engine import ImagePart as GivenImage
from engine import TextPart as GivenText
from fakes import MODEL
from stage import Stage, until

READING, READY, FAILED = AttachmentPhase
ENCODER = Path("/models/mmproj.gguf")


@pytest.fixture
def make(qtbot: QtBot, tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """Makes stages over one store, one after the other: each is a start of the app."""
    made: list[Stage] = []

    def start(encoder: Path | None = ENCODER) -> Stage:
        if made:
            made[-1].close()
        made.append(Stage(tmp_path / "data", extractor=Extractor()))
        made[-1].start(MODEL)
        made[-1].engine.finish_load("Small Model", encoder=encoder)
        made[-1].wait_until_idle()
        return made[-1]

    (tmp_path / "data").mkdir()
    yield start
    made[-1].close()


@pytest.fixture
def stage(make: Callable[..., Stage]) -> Stage:
    return make()


def _content(width: int = 300, height: int = 120, format: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((width, height)).convert("RGB").save(file, format)
    return file.getvalue()


def _file(tmp_path: Path, name: str = "garden.png", content: bytes = b"") -> Path:
    path = tmp_path / name
    path.write_bytes(content or _content())
    return path


def _attached(stage: Stage, place: int | Editing | None = None) -> tuple[Attachment, ...]:
    until(lambda: all(each.phase is not READING for each in stage.states.attachments.of(place)))
    stage.wait_until_idle()
    return stage.states.attachments.of(place)


def _attach(stage: Stage, path: Path) -> Attachment:
    stage.controller.attachments.attach([path])
    stage.wait_until_idle()
    return _attached(stage, stage.state.current)[0]


def test_a_picture_is_attached_with_its_size_and_sent_before_the_text(
    stage: Stage, tmp_path: Path
) -> None:
    path = _file(tmp_path)
    attached = _attach(stage, path)
    part = attached.part
    assert isinstance(part, ImagePart)
    assert (part.name, part.width, part.height) == ("garden.png", 300, 120)
    assert Image.open(io.BytesIO(attached.thumbnail)).size == (THUMBNAIL, round(THUMBNAIL * 0.4))
    path.unlink()  # it is kept
    assert stage.controller.send("What is it?")
    assert [type(each) for each in stage.state.messages[0].parts] == [ImagePart, TextPart]
    given, asked = stage.engine.last_generate.turns[-1].content
    assert isinstance(given, GivenImage)
    assert isinstance(given.source, Path)
    assert given.source.read_bytes() == _content()
    assert asked == GivenText("What is it?")


def test_a_pasted_picture_is_kept_over_a_start(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.controller.attachments.attach_image(_content(format="JPEG"))
    before = _attached(stage)[0]
    assert isinstance(before.part, ImagePart)
    assert (before.name, before.part.width) == ("", 300)
    again = make()
    after = _attached(again)[0]
    assert (after.part, after.thumbnail) == (before.part, before.thumbnail)
    assert again.window.composer.chips.chips[0].name.text() == "Pasted picture"


def test_a_model_that_does_not_see_is_sent_no_picture(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = make()
    _attach(stage, _file(tmp_path))
    assert stage.controller.send("What is it?")
    stage.engine.write("A garden.")
    stage.engine.finish()
    stage.wait_until_idle()
    chat = stage.state.current
    stage = make(encoder=None)
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()
    _attach(stage, _file(tmp_path, "lake.png"))
    assert not stage.controller.send("And this?")
    assert stage.state.notices[NOTICE].sentence == "Small Model cannot read images."
    kept = stage.states.attachments.of(stage.state.current)
    assert [each.name for each in kept] == ["lake.png"]
    stage.controller.attachments.remove(kept[0].id)
    assert stage.controller.send("Then in words: how large is it?")
    turns = stage.engine.last_generate.turns
    assert turns[0].text == '\n[picture "garden.png", which you cannot see]\nWhat is it?'
    assert not any(turn.images for turn in turns)


def test_the_notice_says_why_a_model_with_an_encoder_cannot_see(
    make: Callable[..., Stage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = ModelFacts(Path("/models/seeing.gguf"), "", memory_bytes=1, available_bytes=2)
    monkeypatch.setattr(
        "app.chat.sending.sight.inspect_model", lambda *_, **__: replace(facts, encoder=ENCODER)
    )
    stage = make(encoder=None)
    loaded = stage.state.model.loaded
    assert loaded is not None
    _attach(stage, _file(tmp_path))
    said: dict[BlindReason, tuple[str, str]] = {}
    for reason in BlindReason:
        blind = replace(loaded, blind=Blindness(reason, "the device is another one."))
        stage.state.set_model(replace(stage.state.model, loaded=blind))
        assert not stage.controller.send("What is it?")
        said[reason] = (stage.state.notices[NOTICE].sentence, stage.state.notices[NOTICE].remedy)
    assert len(set(said.values())) == len(BlindReason)
    assert said[BlindReason.DAMAGED] == (
        "The picture file (mmproj) beside Small Model is damaged.",
        "Download it again, and load the model again.",
    )
    stage.state.set_installed([ModelFile(facts.path, "Seeing", 9)])
    assert not stage.controller.send("What is it?")
    stage.wait_until_idle()
    notice = stage.state.notices[NOTICE]
    assert notice.remedy == f"{said[list(BlindReason)[-1]][1]} Seeing on this computer can."
    assert notice.action == "Use Seeing"


def test_a_message_that_waits_for_an_answer_is_refused_too(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = make(encoder=None)
    assert stage.controller.send("Hello")
    stage.engine.write("Hel")
    _attach(stage, _file(tmp_path))
    assert not stage.controller.send("What is it?")
    assert stage.state.notices[NOTICE].sentence == "Small Model cannot read images."
    assert stage.state.outbox.get(stage.state.current or 0, ()) == ()


def test_pictures_of_a_message_are_removed_and_added_in_its_editor(
    stage: Stage, tmp_path: Path
) -> None:
    _attach(stage, _file(tmp_path))
    assert stage.controller.send("What is it?")
    stage.engine.write("A garden.")
    stage.engine.finish()
    stage.wait_until_idle()
    sent = stage.state.messages[0]
    files, place = stage.controller.attachments, Editing(sent.id)
    files.begin_edit(sent.id)
    files.remove(stage.states.attachments.of(place)[0].id)
    files.attach_image(_content(40, 60), sent.id)
    assert [each.part.width for each in _attached(stage, place) if each.part] == [40]  # type: ignore[union-attr]
    assert stage.controller.edit(sent.id, (TextPart("And now?"),))
    shown = stage.state.messages[0]
    assert shown.role is Role.USER
    assert [getattr(each, "width", 0) for each in shown.parts] == [40, 0]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (_content()[:200], "photo is damaged or incomplete."),
        (
            b"\0\0\0\x18ftypheic" + bytes(40),
            "photo is a picture in a format that cannot be read.",
        ),
    ],
)
def test_a_picture_that_cannot_be_read_says_why(
    stage: Stage, tmp_path: Path, content: bytes, sentence: str
) -> None:
    attached = _attach(stage, _file(tmp_path, "photo", content))
    assert (attached.phase, attached.fault) == (FAILED, sentence)
    assert attached.remedy
    assert not stage.controller.send("What is it?")


@pytest.mark.parametrize("format", ["JPEG", "GIF", "WEBP", "BMP", "TIFF", "ICO", "AVIF", "QOI"])
def test_a_picture_is_known_by_its_content(stage: Stage, tmp_path: Path, format: str) -> None:
    attached = _attach(stage, _file(tmp_path, "notes.txt", _content(32, 32, format)))
    assert isinstance(attached.part, ImagePart), attached.fault


def test_a_text_is_one_whatever_its_name(stage: Stage, tmp_path: Path) -> None:
    attached = _attach(stage, _file(tmp_path, "picture.bmp", b"BM is a company."))
    assert attached.file is not None
    assert attached.file.text == "BM is a company."


def test_a_picture_whose_question_is_answered_by_a_model_that_turns_out_blind_is_not_left_out(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = make()
    _attach(stage, _file(tmp_path))
    assert stage.controller.send("What is it?")
    stage.engine.write("A garden.")
    stage.engine.finish()
    stage.wait_until_idle()
    chat = stage.state.current
    stage = make(encoder=None)
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()
    stage.controller.regenerate(stage.state.messages[-1].id)
    assert stage.engine.last_generate.turns[-1].images  # the engine says that it cannot see


def test_the_detail_and_the_description_of_a_picture_are_kept_and_sent(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = make()
    id = _attach(stage, _file(tmp_path)).id
    stage.controller.attachments.set_detail(id, 300)
    stage.controller.attachments.describe(id, "A garden")
    part = replace(_kept(stage), detail=300, description="A garden")
    assert stage.states.attachments.of(None)[0].part == part
    stage = make()
    assert _attached(stage)[0].part == part  # of the draft, which was read again
    assert stage.controller.send("What is it?")
    (given,) = stage.engine.last_generate.turns[-1].images
    assert (given.detail, given.description) == (300, "A garden")
    stage.engine.write("A garden.")
    stage.engine.finish()
    stage.wait_until_idle()
    sent = stage.state.messages[0]
    stage.controller.attachments.begin_edit(sent.id)
    attached = stage.states.attachments.of(Editing(sent.id))[0]
    stage.controller.attachments.set_detail(attached.id, Detail.HIGH)
    assert stage.controller.edit(sent.id, (TextPart("And now?"),))
    assert stage.engine.last_generate.turns[-1].images[0].detail is Detail.HIGH


def _kept(stage: Stage) -> ImagePart:
    part = stage.states.attachments.of(None)[0].part
    assert isinstance(part, ImagePart)
    return part


@pytest.mark.parametrize("encoder", [ENCODER, None])
def test_what_each_detail_costs_is_counted_for_a_model_that_sees(
    make: Callable[..., Stage], tmp_path: Path, encoder: Path | None
) -> None:
    stage = make(encoder)
    costs = {Detail.LOW: 64, Detail.STANDARD: 256, Detail.HIGH: 1024}
    stage.engine.image_tokens = lambda image: costs[image.detail]  # type: ignore[index]
    id = _attach(stage, _file(tmp_path)).id
    stage.controller.detail_counts.count(id)
    stage.wait_until_idle()
    if encoder:
        until(lambda: stage.states.attachments.details(id) is not None)
    counted = stage.states.attachments.details(id)
    assert counted == (DetailTokens(64, 256, 1024) if encoder else None)


def test_a_refused_picture_names_an_installed_model_that_sees(
    make: Callable[..., Stage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inspect(path: Path, **_: object) -> ModelFacts:
        facts = ModelFacts(path, "", memory_bytes=10, available_bytes=20)
        seeing = {"seeing.gguf": facts, "large.gguf": replace(facts, memory_bytes=30)}
        return replace(seeing[path.name], encoder=ENCODER) if path.name in seeing else facts

    monkeypatch.setattr("app.chat.sending.sight.inspect_model", inspect)
    stage = make(encoder=None)
    names = ("blind", "large", "seeing")
    stage.state.set_installed([ModelFile(Path(f"/models/{n}.gguf"), n.title(), 9) for n in names])
    _attach(stage, _file(tmp_path))
    assert not stage.controller.send("What is it?")
    stage.wait_until_idle()
    notice = stage.state.notices[NOTICE]
    assert (notice.remedy, notice.action) == ("Seeing on this computer can.", "Use Seeing")
    stage.window.banners.acted.emit(NOTICE)
    assert stage.engine.commands[-1].path == Path("/models/seeing.gguf")
    assert NOTICE not in stage.state.notices


def test_a_picture_is_refused_before_anything_is_written(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = make(encoder=None)
    attached = _attach(stage, _file(tmp_path))
    until(lambda: NOTICE in stage.state.notices and bool(stage.state.notices[NOTICE].action))
    notice = stage.state.notices[NOTICE]
    assert notice.sentence == "Small Model cannot read images."
    assert notice.action == "Get one that can"  # no other model is installed
    stage.controller.attachments.remove(attached.id)
    assert NOTICE not in stage.state.notices
    _attach(stage, _file(tmp_path))
    until(lambda: NOTICE in stage.state.notices)
    loaded = stage.state.model.loaded
    assert loaded is not None
    seeing = replace(stage.state.model, loaded=replace(loaded, encoder=ENCODER))
    stage.state.set_model(seeing)
    assert NOTICE not in stage.state.notices
    stage.state.set_model(replace(seeing, loaded=loaded))
    until(lambda: bool(stage.state.notices[NOTICE].action))
    wanted: list[bool] = []
    stage.controller.models_wanted.disconnect()  # it opens the page of models
    stage.controller.models_wanted.connect(lambda: wanted.append(True))
    stage.window.banners.acted.emit(NOTICE)
    assert wanted
    assert NOTICE not in stage.state.notices


def test_the_copies_that_are_shown_are_made_by_a_child_process(
    stage: Stage, tmp_path: Path
) -> None:
    part = _attach(stage, _file(tmp_path)).part
    assert isinstance(part, ImagePart)
    read: list[PictureCopy] = []
    stage.states.pictures.read.connect(read.append)
    stage.controller.pictures.read(part, 100)
    until(lambda: bool(read))
    assert (read[0].width, read[0].height, read[0].ending) == (100, 40, ".png")
    assert len(read[0].pixels) == 3 * 100 * 40
    damaged = Blobs(stage.store_queue.path).add(_content()[:200])
    stage.controller.pictures.read(replace(part, sha256=damaged), 100)
    until(lambda: len(read) == 2)
    assert read[1].fault == "garden.png is damaged or incomplete."
