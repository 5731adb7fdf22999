"""Scenes of the chat page, the sidebar and the pop-up cards, for tests/pictures/shots.py."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QHoverEvent, QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QApplication, QLabel, QMenu, QWidget

from app.domain.message import MessageState
from app.state.chat import ModelFile, Notice
from app.store.store import Store
from engine import FinishReason, Role, SlowPart, SlowReason
from fakes import MODEL
from stage import Stage, flush, until

NAME = "SmolLM2 135M Instruct"
ANSWER = """\
The sky is blue because air scatters **short** wavelengths of sunlight far more than long ones.

1. Sunlight holds every colour.
2. Molecules of air are much smaller than the wavelength of light, so they scatter it by the rule of
   *Rayleigh*: the shorter the wavelength, the stronger.
3. Blue reaches your eye from every direction; red goes straight on.

| Colour | Wavelength | Scattered |
|:-------|-----------:|----------:|
| Violet | 400 nm | 9.4 times |
| Blue | 450 nm | 5.9 times |
| Red | 700 nm | 1.0 times |

```python
def scattering(wavelength: float) -> float:
    \"\"\"How strongly air scatters light, compared with red.\"\"\"
    return (700 / wavelength) ** 4  # nanometres


print(f"{scattering(450):.1f} times as much blue as red")
```

> At sunset the light crosses so much air that the blue is gone before it arrives.

So `scattering(450)` explains the noon, and what is left explains the evening.
"""
FORMULAS = r"""\
For $ax^2 + bx + c = 0$ with $a \ne 0$ the solutions are

$$x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}$$

The discriminant \(\Delta = b^2 - 4ac\) decides: with $\Delta < 0$ there is no real one.

| Equation | $\Delta$ | Solutions |
|:---------|--------:|:----------|
| $x^2 - 5x + 6 = 0$ | $1$ | $2$ and $3$ |
| $x^2 + 1 = 0$ | $-4$ | $\pm i$ |

A book for $5 and one for $10 are prices, and \(\frac{1}{\) is no formula.
"""
LONG_QUESTION = (
    "I am writing a short talk for children of about nine years, and I would like to explain why "
    "the sky is blue at noon but red in the evening. They know what light is and have seen a "
    "prism. Could you give me an explanation in three steps, a small table they can copy, and one "
    "experiment with things from a kitchen?"
)
TITLES = (
    (0.1, "Why is the sky blue?"),
    (2, "Names for a quiet café by the river"),
    (5, "A reply to the landlord about the heating, polite but firm and not too long"),
    (26, "Three ideas for a rainy Sunday"),
    (29, "لماذا السماء زرقاء؟"),
    (80, "天空为什么是蓝色的？"),
    (110, "Unit tests for a date parser"),
    (150, "Packing list for a week in the mountains"),
    (900, "Explain compound interest"),
    (2000, "A poem about a bonsai tree"),
)

Scene = Callable[[Stage], None]


def fill(folder: Path) -> None:
    """Create a store with conversations of several days."""
    store = Store.open(folder / "conversations.sqlite")
    ids = []
    for _, title in TITLES:
        conversation = store.create_conversation(title)
        own = store.add_message(conversation.id, None, Role.USER, title)
        answer = store.add_message(
            conversation.id, own.id, Role.ASSISTANT, ANSWER, MessageState.COMPLETE, NAME
        )
        store.finish(answer.id, MessageState.COMPLETE, prompt_tokens=41, generated_tokens=310)
        ids.append(conversation.id)
    store.close()
    with closing(sqlite3.connect(folder / "conversations.sqlite")) as database, database:
        for conversation_id, (hours, _) in zip(ids, TITLES, strict=True):
            database.execute(
                "UPDATE conversation SET updated = ? WHERE id = ?",
                (time.time() - hours * 3600, conversation_id),
            )


def ready(stage: Stage, *, can_think: bool = False) -> None:
    stage.start(MODEL)
    stage.engine.finish_load(NAME, can_think=can_think)
    stage.state.set_installed(
        [
            ModelFile(MODEL, NAME, 98_362_432),
            ModelFile(Path("/models/a.gguf"), "gemma 3 270m", 253_100_000),
            ModelFile(
                Path("/models/b.gguf"), "Bonsai 8B 1 bit instruct long context", 1_160_000_000
            ),
        ]
    )
    stage.wait_until_idle()


def ask(stage: Stage, text: str = "Why is the sky blue?") -> None:
    stage.window.composer.submitted.emit(text)
    stage.wait_until_idle()


def answer(stage: Stage, text: str, reason: FinishReason = FinishReason.END) -> None:
    stage.engine.write(text)
    stage.drain()
    stage.engine.finish(reason, tokens=310)
    stage.wait_until_idle()


# --- scenes -------------------------------------------------------------------------------------


def empty(stage: Stage) -> None:
    ready(stage)


def no_model(stage: Stage) -> None:
    stage.start()


def load_failed(stage: Stage) -> None:
    stage.start(MODEL)
    stage.engine.fail_load(
        "The file Small-Model-135M-Q4_1.gguf ends in the middle of tensor blk.7.ffn_up.weight.",
        "Download it again; the copy is not complete.",
    )
    stage.wait_until_idle()


def reduced_speed(stage: Stage) -> None:
    """Kernels are missing or failed their check: status line and tooltip explain it."""
    long_answer(stage)
    loaded = stage.state.model.loaded
    assert loaded is not None
    slow = (
        SlowPart(SlowReason.WRONG_KERNEL, "rope"),
        SlowPart(SlowReason.NO_KERNEL, "linear IQ1_S"),
    )
    name = "Qwen3 30B A3B"
    shown = replace(loaded, name=name, kernels="cpu avx512 + reference", slow=slow)
    stage.state.set_model(replace(stage.state.model, name=name, loaded=shown))
    status = stage.window.chat.status_line.words
    tip = QLabel(status.toolTip(), stage.window)
    tip.setStyleSheet("background: #ffffff; color: #000000; padding: 6px")
    tip.adjustSize()
    tip.move(status.mapTo(stage.window, QPoint(0, -tip.height() - 4)))
    tip.show()


def loading(stage: Stage) -> None:
    stage.start(MODEL)
    stage.engine.progress(0.42)
    stage.wait_until_idle()


def show_menu(stage: Stage, menu: QMenu, button: QWidget) -> None:
    """Show the menu of a button inside the window, so that it is in the picture of the window."""
    menu.setParent(stage.window, menu.windowFlags() & ~menu.windowType())
    size = menu.sizeHint()
    place = button.mapTo(stage.window, QPoint(0, button.height()))
    start = place.x() + button.width() - size.width() if menu.isRightToLeft() else place.x()
    start = max(0, min(start, stage.window.width() - size.width()))  # as Qt keeps it on the screen
    top = min(place.y(), stage.window.height() - size.height())
    menu.setGeometry(start, top, size.width(), size.height())
    menu.show()
    flush()


def waiting(stage: Stage) -> None:
    loading(stage)
    ask(stage)


def reading(stage: Stage) -> None:
    ready(stage)
    ask(stage, LONG_QUESTION)
    stage.engine.report_prompt_progress(512, 2048)
    stage.drain()


def streaming(stage: Stage) -> None:
    ready(stage)
    ask(stage)
    stage.engine.write(ANSWER[:420])
    stage.drain()


def long_answer(stage: Stage) -> None:
    ready(stage)
    ask(stage)
    answer(stage, ANSWER)


def formulas(stage: Stage) -> None:
    ready(stage)
    ask(stage, "How do I solve a quadratic equation?")
    answer(stage, FORMULAS)
    until(lambda: not stage.window.transcript.formulas.waiting)


def zoomed(stage: Stage) -> None:
    long_answer(stage)
    stage.controller.change_settings(zoom=200)
    flush()
    top = QKeyEvent(QKeyEvent.Type.KeyPress, Qt.Key.Key_Home, Qt.KeyboardModifier.ControlModifier)
    QApplication.sendEvent(stage.window.transcript, top)
    flush()


def memory_line(stage: Stage) -> None:
    ready(stage)
    for question in ("Why is the sky blue?", "And in the evening?"):
        ask(stage, question)
        answer(stage, ANSWER[:330])
    stage.controller.send("What about the sea?")
    stage.engine.report_prompt_progress(5100, 7000, dropped=2)
    stage.engine.write("The sea mirrors the sky.", tokens=7000)
    stage.drain()
    flush()


def answer_details(stage: Stage) -> None:
    long_answer(stage)
    stage.window.cards.open_details(stage.state.messages[-1].id)
    flush()


def top_of_answer(stage: Stage) -> None:
    long_answer(stage)
    home = QKeyEvent(QKeyEvent.Type.KeyPress, Qt.Key.Key_Home, Qt.KeyboardModifier.ControlModifier)
    QApplication.sendEvent(stage.window.transcript, home)
    flush()


def long_question(stage: Stage) -> None:
    ready(stage)
    ask(stage, LONG_QUESTION)
    answer(stage, "Certainly. Here is a plan for your talk, in three steps.")


def failed(stage: Stage) -> None:
    ready(stage)
    ask(stage)
    stage.engine.write("The sky is blue because air")
    stage.engine.fail(
        "The memory of this machine ran out.",
        "Close other programs, or load this model with a smaller context.",
    )
    stage.wait_until_idle()


def stopped(stage: Stage) -> None:
    ready(stage)
    ask(stage)
    answer(stage, ANSWER[:300], FinishReason.CANCELLED)


def repeating(stage: Stage) -> None:
    ready(stage)
    ask(stage, "My neighbour plays loud music at night. What can I say to him?")
    answer(
        stage, "You can say this to him:\n\n" + "Yay for you, buddy! " * 24, FinishReason.REPETITION
    )


def interrupted(stage: Stage) -> None:
    store = Store.open(stage.folder / "conversations.sqlite")
    conversation = store.create_conversation("Why is the sky blue?")
    own = store.add_message(conversation.id, None, Role.USER, "Why is the sky blue?")
    left = store.add_message(
        conversation.id, own.id, Role.ASSISTANT, "", MessageState.STREAMING, NAME
    )
    store.append_text(left.id, ANSWER[:330])
    store.close()
    ready(stage)
    stage.controller.open_conversation(conversation.id)
    stage.wait_until_idle()


def siblings(stage: Stage) -> None:
    ready(stage)
    ask(stage)
    answer(stage, "Because air scatters blue light more than red.")
    stage.controller.regenerate(stage.state.messages[-1].id)
    stage.wait_until_idle()
    answer(stage, "Sunlight meets air, and its blue part is thrown in every direction.")


def editing(stage: Stage) -> None:
    long_question(stage)
    stage.window.transcript.edit_message(stage.state.messages[0].id)
    flush()


def editing_answer(stage: Stage) -> None:
    long_question(stage)
    stage.window.transcript.edit_message(stage.state.messages[1].id)
    flush()


def renaming(stage: Stage) -> None:
    ready(stage)
    sidebar = stage.window.sidebar
    sidebar.list.setFocus()
    sidebar.list.edit(sidebar.model.first())
    flush()


def several_selected(stage: Stage) -> None:
    ready(stage)
    sidebar = stage.window.sidebar
    for row in (1, 2, 3):
        sidebar.list.selectionModel().select(
            sidebar.model.index(row), sidebar.list.selectionModel().SelectionFlag.Select
        )
    sidebar.list.setFocus(Qt.FocusReason.TabFocusReason)
    flush()


def hovering(stage: Stage) -> None:
    ready(stage)
    hover_row(stage, 2)


def hover_row(stage: Stage, row: int) -> None:
    """Move the mouse over a row of the sidebar."""
    view = stage.window.sidebar.list
    place = QPointF(view.visualRect(stage.window.sidebar.model.index(row)).center())
    everywhere = view.viewport().mapToGlobal(place)
    move = QMouseEvent(
        QMouseEvent.Type.MouseMove, place, everywhere, Qt.MouseButton.NoButton,
        Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier,
    )  # fmt: skip
    QApplication.sendEvent(view.viewport(), move)
    hover = QHoverEvent(QHoverEvent.Type.HoverMove, place, everywhere, QPointF(0, 0))
    QApplication.sendEvent(view.viewport(), hover)
    flush()


def undo_line(stage: Stage) -> None:
    ready(stage)
    listed = [conversation.id for conversation in stage.state.conversations]
    stage.controller.deletions.delete(listed[:3])
    stage.wait_until_idle()


def background_answer(stage: Stage) -> None:
    streaming(stage)
    stage.controller.open_conversation(stage.state.conversations[2].id)
    stage.wait_until_idle()


def dragging(stage: Stage) -> None:
    ready(stage)
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile("/models/gemma-3-270m-q4_k_m.gguf")])
    event = QDragEnterEvent(
        QPoint(400, 300), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )  # fmt: skip
    QApplication.sendEvent(stage.window, event)
    flush()


def keyboard_focus(stage: Stage) -> None:
    ready(stage)
    stage.window.activateWindow()
    stage.window.chat.empty_view.suggestions[0].setFocus(Qt.FocusReason.TabFocusReason)
    flush()


def keyboard_in_list(stage: Stage) -> None:
    ready(stage)
    stage.window.activateWindow()
    sidebar = stage.window.sidebar
    sidebar.list.setFocus(Qt.FocusReason.TabFocusReason)
    sidebar.list.setCurrentIndex(sidebar.model.index(2))
    flush()


def shortcuts(stage: Stage) -> None:
    ready(stage)
    stage.window.shortcuts_card.open_centred()
    flush()


def database_banner(stage: Stage) -> None:
    long_answer(stage)
    stage.state.set_notice(
        "store",
        Notice(
            "The disk is full, so this could not be saved.",
            "Free some space, then try again; what was saved before is safe.",
        ),
    )
    stage.state.set_notice(
        "damaged",
        Notice(
            "The file of conversations is damaged.",
            "Move the file aside: what can still be read is copied into a new one.",
            "Move it aside",
        ),
    )
    flush()


def arabic(stage: Stage) -> None:
    ready(stage)
    ask(stage, "لماذا السماء زرقاء؟")
    answer(
        stage,
        "السماء زرقاء لأن الهواء يشتت الضوء الأزرق أكثر من الأحمر.\n\n"
        "- الضوء الأبيض يحتوي على كل الألوان.\n- الجزيئات الصغيرة تشتت **الأزرق** أكثر.\n",
    )


def chinese(stage: Stage) -> None:
    ready(stage)
    ask(stage, "天空为什么是蓝色的？")
    answer(
        stage,
        "因为空气分子对**蓝光**的散射比红光强得多。\n\n1. 阳光包含所有颜色。\n2. 蓝光向各个方向散射。\n",
    )


def no_sidebar(stage: Stage) -> None:
    long_answer(stage)
    stage.window.set_sidebar(False)
    flush()


def narrow(stage: Stage) -> None:
    stage.window.resize(440, 720)
    long_answer(stage)


def narrow_empty(stage: Stage) -> None:
    stage.window.resize(440, 640)
    ready(stage)


def wide(stage: Stage) -> None:
    stage.window.resize(1680, 1000)
    long_answer(stage)


def low(stage: Stage) -> None:
    stage.window.resize(900, 480)
    ready(stage)


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        empty,
        no_model,
        load_failed,
        loading,
        reduced_speed,
        waiting,
        reading,
        streaming,
        long_answer,
        answer_details,
        memory_line,
        formulas,
        zoomed,
        top_of_answer,
        long_question,
        failed,
        stopped,
        repeating,
        interrupted,
        siblings,
        editing,
        editing_answer,
        renaming,
        several_selected,
        hovering,
        undo_line,
        background_answer,
        dragging,
        keyboard_focus,
        keyboard_in_list,
        shortcuts,
        database_banner,
        arabic,
        chinese,
        no_sidebar,
        narrow,
        narrow_empty,
        wide,
        low,
    )
}
