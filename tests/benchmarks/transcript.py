"""What the transcript costs the window's thread: streaming, opening, scrolling, resizing.

A 760 x 700 window that already holds 500 messages takes a realistic answer in pieces of about six
tokens. A row's time is all the processor time the thread took for one update (reading, layout,
painting), which another busy program does not lengthen. The aims: at most 4 ms an update, at the end of the answer as at its start; a conversation of 500
messages on the screen within 60 ms and laid out within 300 ms; scrolling without a stall.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).parents[2]))

from PySide6.QtWidgets import QApplication

from app.domain.growing import append_text
from app.domain.message import Message, MessageState
from app.domain.parts import parts_of
from app.ui.theme.theme import load_fonts
from app.ui.transcript.view import Transcript
from engine import Role

CHARACTERS = 4.3  # of a token, in realistic Markdown
PIECE = round(6 * CHARACTERS)
PAUSE = 0.010  # seconds between two pieces
SECTION = """## Part {n}: how water moves

A pot drains through its **holes** and dries from its *surface*; the roots take the rest. What
matters is the [grain](https://example.org/grain) of the soil, not its colour, and how often
`water(tree)` is called in a week of wind. Most trees die of kindness: a wet foot, a dark shelf.

1. Lift the pot in the morning and feel its weight.
2. Push a stick {n} cm into the soil:
   - a dark stick means wait,
   - a pale one means water now, slowly, until it runs out below.
3. Turn the tree by a quarter, so that no side forgets the sun.

```python
def litres(trees: list[Tree], week: int = {n}) -> float:
    total = 0.0
    for tree in trees:
        if tree.dry_days > LIMITS[tree.species]:
            total += tree.pot.volume * 0.3  # a third of the pot
    return round(total, 2)
```

| Species | Spring | Summer | Note |
|:--------|-------:|-------:|------|
| Juniper | 2 | {n} | leave it outside |
| Maple | 3 | 7 | shade at noon |
| Ficus | 1 | 2 | never below 15 °C |

> The caretaker learns to wait. The tree has known it all along.

"""


FORMULAS = r"""### Step {n}: the area under a curve

Let $x_{{{n}}} = \frac{{a + {n}}}{{b}}$ be the point where the integral over \(0 \le t \le {n}\) ends.
The pot costs $5 or $10, which changes nothing, and by the rule of the chain the answer is

$$
\int_0^{{{n}}} f(t) \, dt = \sum_{{k=1}}^{{{n}}} \frac{{f(x_k)}}{{k!}} + \sqrt{{x_{{{n}}}^2 + 1}}
$$

- The error is below $\varepsilon_{{{n}}} < 10^{{-{n}}}$, so that it can be left out of every later
  step without a change of the result; what remains is a **finite** sum of small terms.
- Its matrix is \(A_{{{n}}} = \begin{{pmatrix}} 1 & {n} \\ 0 & 1 \end{{pmatrix}}\), and it has the
  determinant one, as all matrices of this kind; no further proof is needed for that.

Most of the work is done once the terms are in order. A reader who checks each of them by hand will
find that the sum converges quickly, that no term is larger than the one before it, and that the rest
is bounded by the first term left out. The same holds in higher dimensions, where the area becomes a
volume and the curve a surface, as long as the function has no jumps on the way from start to end.

"""


def answer_with_formulas() -> str:
    """An answer of 16,000 tokens with 300 formulas, all different."""
    text = "".join(FORMULAS.format(n=number) for number in range(1, 61))
    return text + answer(16000)[: max(int(16000 * CHARACTERS) - len(text), 0)]


def answer(tokens: int) -> str:
    """Realistic Markdown of about so many tokens."""
    text = ""
    while len(text) < tokens * CHARACTERS:
        text += SECTION.format(n=len(text) // 1000 + 1)
    return text[: int(tokens * CHARACTERS)]


def message(number: int, role: Role, text: str, state: MessageState) -> Message:
    """A message as the store would give it."""
    parts = parts_of(role, text)
    return Message(number, 1, number - 1, role, parts, state, 0.0, "", "", 0, 0, 4.0, 1, 1)


def conversation(count: int) -> list[Message]:
    """Questions and answers of usual lengths."""
    messages: list[Message] = []
    for number in range(1, count + 1):
        own = number % 2 == 1
        length = 160 if own else 300 + number * 37 % 1200
        text = "How often should I water it in a dry summer, and with how much? " * 3
        messages.append(
            message(
                number,
                Role.USER if own else Role.ASSISTANT,
                text[:length] if own else answer(400)[:length],
                MessageState.COMPLETE,
            )
        )
    return messages


def busy(application: QApplication, act: Callable[[], object]) -> float:
    """Milliseconds of processor time that something and all that follows from it take."""
    began = time.thread_time()
    act()
    application.processEvents()
    return (time.thread_time() - began) * 1e3


def row(name: str, times: list[float]) -> None:
    """Print one line of the table."""
    ordered = sorted(times)
    p95 = ordered[min(int(len(ordered) * 0.95), len(ordered) - 1)]
    print(f"{name:42} {statistics.median(ordered):7.2f} {p95:7.2f} {ordered[-1]:7.2f}")


def finish(application: QApplication, view: Transcript) -> float:
    """Seconds of processor time until everything is laid out."""
    began = time.thread_time()
    while view.working:
        application.processEvents()
    return time.thread_time() - began


def stream(
    application: QApplication, view: Transcript, number: int, text: str, waits: list[float]
) -> list[float]:
    """Milliseconds of each update while a text streams in; `waits` gets those that passed.

    The time that passed includes the waits for the thread that typesets formulas.
    """
    begun = message(number, Role.ASSISTANT, "", MessageState.STREAMING)
    view.append_message(now := begun)
    view.jump_to_end()
    application.processEvents()
    times: list[float] = []
    for at in range(0, len(text), PIECE):
        piece = text[at : at + PIECE]
        began = time.perf_counter()
        now = replace(now, parts=append_text(now.parts, piece))
        spent = busy(application, lambda now=now, piece=piece: view.append_text(now, piece))
        waits.append((time.perf_counter() - began) * 1e3)
        time.sleep(PAUSE)
        times.append(spent + busy(application, lambda: None))
    ended = replace(begun, parts=parts_of(begun.role, text), state=MessageState.COMPLETE)
    print(
        f"{'':42} end of the answer {busy(application, lambda: view.update_message(ended)):.1f} ms"
    )
    return times


def main() -> None:
    """Run and print the table."""
    sys.setswitchinterval(0.0005)  # as in the app
    application = QApplication([])
    load_fonts()
    view = Transcript()
    view.resize(760, 700)
    view.show()
    application.processEvents()
    view.set_messages(conversation(4))  # fonts are loaded
    finish(application, view)
    view.set_messages([])
    history = conversation(500)
    first = busy(application, lambda: (view.set_messages(history), view.repaint()))
    rest = finish(application, view) * 1e3
    print(f"open 500 messages: first paint {first:.1f} ms, all laid out {first + rest:.0f} ms")
    print(f"{'ms of the window thread':42} {'p50':>7} {'p95':>7} {'max':>7}")
    steps: list[float] = []
    for _ in range(300):
        steps.append(
            busy(
                application,
                lambda: view.message_layout.scroll_to(view.message_layout.offset() - 72),
            )
        )
    row("scroll by 72 pixels", steps)
    view.jump_to_end()
    widths = [busy(application, lambda w=w: view.resize(w, 700)) for w in range(760, 560, -10)]
    row("resize by 10 pixels", widths)
    print(f"{'':42} all laid out after {finish(application, view) * 1e3:.0f} ms")
    view.resize(760, 700)
    finish(application, view)
    texts = [(4000, "", answer(4000)), (16000, "", answer(16000))]
    texts.append((16000, ", 300 formulas", answer_with_formulas()))
    for number, (tokens, kind, text) in enumerate(texts, 1001):
        waits: list[float] = []
        times = stream(application, view, number, text, waits)
        tenth = len(times) // 10
        row(f"{tokens} tokens{kind}, first tenth", times[:tenth])
        row(f"{tokens} tokens{kind}, last tenth", times[-tenth:])
        row(f"{tokens} tokens{kind}, all", times)
        row(f"{tokens} tokens{kind}, time passed", waits)
        over = sum(spent > 4 for spent in times)
        print(f"{'':42} {over} of {len(times)} updates above 4 ms")
    view.close()


if __name__ == "__main__":
    main()
