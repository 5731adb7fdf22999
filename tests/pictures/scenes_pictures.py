"""Scenes of pictures in messages: thumbnails in the transcript, and the viewer."""

from __future__ import annotations

import io

from PIL import Image, ImageDraw
from PySide6.QtCore import Qt
from PySide6.QtGui import QPixmap
from PySide6.QtTest import QTest

from app.domain.documents import DocumentKind
from app.domain.parts import FilePart, ImagePart, Part, TextPart
from app.state.attachments import Attachment, AttachmentPhase, DetailTokens
from app.state.pictures import EmbeddedPictures, PictureCopy, embedded_key
from app.store.blobs import Blobs
from app.store.store import Store
from app.ui.documents.embedded import PIXELS
from app.ui.pictures.card import PictureCard
from app.ui.pictures.region import RegionOverlay
from engine import Role
from scenes_chat import NAME, Scene, ready
from stage import Stage, flush, until

ANSWER = (
    "The first picture shows a **lake** below a wooded ridge, shortly after sunset. The second one"
    " is the same ridge from the path, in portrait."
)


def landscape(width: int, height: int, hour: int = 0) -> bytes:
    """A lake below hills, as PNG."""
    picture = Image.new("RGB", (width, height))
    draw = ImageDraw.Draw(picture)
    for y in range(height):
        share = y / height
        draw.line((0, y, width, y), (60 + int(170 * share), 90 + int(90 * share), 150 - hour * 30))
    horizon = height * 0.58
    for n, color in enumerate(((72, 92, 88), (48, 72, 62))):
        peaks = [(width * k / 5, horizon - height * (0.1 + 0.12 * ((k * 7 + n * 3) % 4) / 3))
                 for k in range(6)]  # fmt: skip
        draw.polygon([(0, horizon + 2), *peaks, (width, horizon + 2)], color)
    draw.rectangle((0, horizon, width, height), (88, 116, 132))
    radius = min(width, height) * 0.06
    draw.ellipse((width * 0.7, horizon * 0.3, width * 0.7 + 2 * radius, horizon * 0.3 + 2 * radius),
                 (250, 226, 160))  # fmt: skip
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def _kept(blobs: Blobs, name: str, width: int, height: int, description: str = "") -> ImagePart:
    content = landscape(width, height, len(name) % 3)
    sha256 = blobs.add(content)
    return ImagePart(
        name, sha256, f"/home/ada/{name}", width, height, len(content), description=description
    )


def _show(stage: Stage, *more: Part) -> None:
    """Open a chat with pictures."""
    path = stage.folder / "conversations.sqlite"
    blobs = Blobs(path)
    parts: tuple[Part, ...] = (
        _kept(blobs, "lake in the evening.jpg", 1600, 1000, "A lake below a wooded ridge"),
        _kept(blobs, "ridge.png", 700, 1100),
        *more,
        TextPart("Where were these taken, and at what time of the day?"),
    )
    store = Store.open(path)
    chat = store.create_conversation("A lake").id
    own = store.add_message(chat, None, Role.USER, parts).id
    store.add_message(chat, own, Role.ASSISTANT, (TextPart(ANSWER),), model=NAME)
    store.close()
    ready(stage)
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()
    stage.window.grab()
    stage.wait_until_idle()


def pictures(stage: Stage) -> None:
    """One with words for a screen reader, one upright, a narrow one, and one that is gone."""
    blobs = Blobs(stage.folder / "conversations.sqlite")
    gone = ImagePart("garden.png", "0" * 64, "/pictures/garden.png", 1280, 960, 431_000)
    _show(stage, _kept(blobs, "panorama.png", 2000, 180), gone)


def pictures_focused(stage: Stage) -> None:
    """The keyboard is at the second one."""
    _show(stage)
    view = stage.window.transcript
    view.setFocus()
    view.keys.enter(backwards=False)
    view.keys._focus_message(0)
    view.keys.step(forward=True)
    flush()


def picture_viewer(stage: Stage) -> None:
    """The whole picture, with words for a screen reader."""
    _show(stage)
    stage.window.transcript.message_layout.use_row(0, 0)
    stage.wait_until_idle()
    card = stage.window.attaching.pictures.card
    assert card is not None
    card.canvas._make_fine()
    flush()


def picture_zoomed(stage: Stage) -> None:
    """A part of a picture in twice its size."""
    picture_viewer(stage)
    card = stage.window.attaching.pictures.card
    assert card is not None
    card.move_on(1)
    stage.wait_until_idle()
    card.canvas.set_scale(2.0)
    flush()


MARKED = """Here is what I see:

```json
[
  {"bbox_2d": [0, 390, 1000, 585], "label": "ridge"},
  {"bbox_2d": [695, 168, 760, 255], "label": "sun"},
  {"bbox_2d": [0, 580, 1000, 1000], "label": "lake"},
  {"bbox_2d": [150, 405, 250, 580], "label": "peak"},
  {"bbox_2d": [560, 460, 640, 580], "label": "peak"},
  {"bbox_2d": [960, 540, 1000, 590], "label": "a boat that is moored at the far end of the lake"},
  {"point_2d": [430, 700], "label": "reflection"}
]
```
"""


def _show_marked(stage: Stage, text: str = MARKED, model: str = "Qwen3-VL-8B") -> None:
    path = stage.folder / "conversations.sqlite"
    blobs = Blobs(path)
    parts: tuple[Part, ...] = (
        _kept(blobs, "ridge.png", 700, 1100),
        _kept(blobs, "lake in the evening.jpg", 1600, 1000, "A lake below a wooded ridge"),
        TextPart("Where are the peaks, and the sun? Answer with boxes."),
    )
    store = Store.open(path)
    chat = store.create_conversation("A lake").id
    own = store.add_message(chat, None, Role.USER, parts).id
    store.add_message(chat, own, Role.ASSISTANT, (TextPart(text),), model=model)
    store.close()
    ready(stage)
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()
    stage.window.grab()
    stage.wait_until_idle()


def marks_offered(stage: Stage) -> None:
    """An answer with boxes, and the tool that shows them."""
    _show_marked(stage)


def _open_marks(stage: Stage, *args: str) -> PictureCard:
    _show_marked(stage, *args)
    transcript = stage.window.transcript
    transcript.marks_requested.emit(transcript.stack.views[-1].message.id)
    stage.wait_until_idle()
    card = stage.window.attaching.pictures.card
    assert card is not None
    card.canvas._make_fine()
    flush()
    return card


def marks(stage: Stage) -> None:
    """Boxes and a point over the picture of the question."""
    _open_marks(stage)


def marks_hidden(stage: Stage) -> None:
    """Only two labels are shown, of a model whose coordinates may be read in several ways."""
    card = _open_marks(
        stage, MARKED.replace("bbox_2d", "bbox").replace("point_2d", "point"), "Other"
    )
    for name in ("ridge", "lake", "reflection"):
        card.marks.chips[name].click()
    flush()


def marks_many(stage: Stage) -> None:
    """Sixty labels, at a part of the picture."""
    rows = [f'{{"bbox_2d": [{x}, {y}, {x + 60}, {y + 70}], "label": "thing {x + y * 3}"}}'
            for x in range(20, 1000, 95) for y in range(40, 900, 150)]  # fmt: skip
    card = _open_marks(stage, f"[{','.join(rows)}]")
    card.canvas.set_scale(1.0)
    flush()


def marks_elsewhere(stage: Stage) -> None:
    """Another picture of the question, on which nothing is marked."""
    card = _open_marks(stage, '[{"image_index": 2, "bbox_2d": [1, 2, 300, 400], "label": "lake"}]')
    card.move_on(-1)
    stage.wait_until_idle()


def pictures_edited(stage: Stage) -> None:
    """The message is edited: chips show the thumbnails of the kept files."""
    _show(stage)
    transcript = stage.window.transcript
    transcript.edit_message(transcript.stack.views[0].message.id)
    stage.wait_until_idle()
    flush()


def _attach(stage: Stage, *, fixed: bool = False) -> Attachment:
    """A picture that is not sent."""
    blobs = Blobs(stage.folder / "conversations.sqlite")
    part = _kept(blobs, "lake in the evening.jpg", 1600, 1000)
    item = Attachment(1, part.name, part.path, AttachmentPhase.READY, part, 1024)
    ready(stage)
    shown = stage.states.attachments
    shown.set(stage.state.current, [item])
    stage.wait_until_idle()
    shown.set(stage.state.current, [item])
    tokens = DetailTokens(256, 256, 256) if fixed else DetailTokens(256, 1024, 4096)
    shown.set_details(1, tokens)
    flush()
    return item


def picture_options(stage: Stage) -> None:
    """A picture before it is sent: what each detail costs, and a line for its words."""
    item = _attach(stage)
    stage.window.attaching.pictures.show_attachment(item.id)
    stage.wait_until_idle()
    stage.states.attachments.set_details(1, DetailTokens(256, 1024, 4096))
    flush()


def picture_fixed(stage: Stage) -> None:
    """A model that reads every picture with the same number of tokens."""
    item = _attach(stage, fixed=True)
    stage.window.attaching.pictures.show_attachment(item.id)
    stage.wait_until_idle()
    stage.states.attachments.set_details(1, DetailTokens(256, 256, 256))
    flush()


def _region(stage: Stage) -> RegionOverlay:
    """A screen that is frozen to choose a region of it."""
    ready(stage)
    regions = stage.window.attaching.regions
    screen = stage.window.screen()
    pixmap = QPixmap()
    pixmap.loadFromData(landscape(*(screen.size() * screen.devicePixelRatio()).toTuple()))
    regions._grab = lambda: [(screen, pixmap)]  # type: ignore[method-assign]
    regions.open()
    until(lambda: bool(regions.overlays))
    return regions.overlays[0]


def screen_region(stage: Stage) -> None:
    """Before a region is drawn."""
    _region(stage)
    flush()


def screen_region_drawn(stage: Stage) -> None:
    """A region that was drawn by the keys."""
    overlay = _region(stage)
    QTest.keyClick(overlay, Qt.Key.Key_Down)
    QTest.keyClick(overlay, Qt.Key.Key_Left, Qt.KeyboardModifier.ShiftModifier)
    flush()


def document_pictures(stage: Stage) -> None:
    """The pictures in a document, of which two are chosen and one cannot be read."""
    part = FilePart(
        "letter.docx",
        "Dear Ada",
        "a" * 64,
        DocumentKind.WORD,
        path="/home/ada/letter.docx",
        size_bytes=4_310_000,
    )
    ready(stage)
    stage.states.attachments.set(
        stage.state.current,
        [Attachment(1, part.name, part.path, AttachmentPhase.READY, part, 12)],
    )
    viewer, shown = stage.window.attaching.viewer, stage.states.pictures
    viewer.show_attachment(1)
    sizes = ((1600, 1000), (700, 1100), (40, 40), (2000, 180), (900, 900), (640, 480), (480, 640))
    names = tuple(f"image{n}.png" for n in range(1, len(sizes) + 1))
    shown.embedded.emit(EmbeddedPictures(part.sha256, names))
    assert viewer.card is not None
    viewer.card.embedded_button.click()
    for n, (width, height) in enumerate(sizes):
        share = min(1.0, PIXELS / max(width, height))
        size = round(width * share), round(height * share)
        pixels = Image.open(io.BytesIO(landscape(*size, n % 3))).convert("RGB").tobytes()
        key = embedded_key(part.sha256, n)
        shown.read.emit(PictureCopy(key, PIXELS, *size, pixels, fault="Damaged." if n == 2 else ""))
    grid = viewer.card.embedded.grid
    for n in (1, 4):
        grid.item(n).setSelected(True)
    flush()


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        pictures,
        pictures_focused,
        picture_viewer,
        picture_zoomed,
        picture_options,
        picture_fixed,
        pictures_edited,
        marks_offered,
        marks,
        marks_hidden,
        marks_many,
        marks_elsewhere,
        screen_region,
        screen_region_drawn,
        document_pictures,
    )
}
