"""Reading an answer aloud, from its tool to what the system is given."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.chat.answering.reading_aloud import NOTICE, ReadingAloud
from app.markdown.spoken import to_speech
from app.markdown.stream import parse
from fakes import MODEL
from stage import Stage

ANSWER = """# Sky

It is **blue**, see [this](https://a.b/c):

- one `item`

| a | b |
|---|---|
| 1 | 2 |

```python
print("no")
```
"""


class FakeSpeech(QObject):
    """Stands for the system: keeps what it was to speak."""

    ended, failed = Signal(), Signal(str)
    is_available = True

    def __init__(self) -> None:
        super().__init__()
        self.spoken: list[str] = []

    def speak(self, text: str) -> None:
        self.spoken.append(text)

    def stop(self) -> None:
        self.ended.emit()


def test_only_what_is_said_is_spoken() -> None:
    assert to_speech(parse(ANSWER)) == "Sky\nIt is blue, see this:\none item\na, b\n1, 2"


def test_an_answer_is_read_by_its_tool_which_then_stops_it(stage: Stage) -> None:
    speech = FakeSpeech()
    reading = ReadingAloud(stage.state, speech)  # type: ignore[arg-type]
    transcript = stage.window.transcript
    transcript.speech_requested.disconnect(stage.controller.reading.toggle)
    transcript.speech_requested.connect(reading.toggle)
    stage.ready(MODEL)
    stage.controller.send("Why?")
    stage.engine.write(ANSWER)
    stage.engine.finish()
    stage.wait_until_idle()

    def use(name: str) -> None:
        tools, _ = transcript.tools.all(1)
        transcript.tools.use(1, next(tool for tool in tools if tool.name == name))

    use("speak")
    assert speech.spoken == [to_speech(parse(ANSWER))]
    assert stage.state.reading == stage.state.messages[1].id
    use("silence")
    assert stage.state.reading is None
    use("speak")
    speech.ended.emit()  # to its end
    assert stage.state.reading is None
    use("speak")
    speech.failed.emit("no voice")
    assert stage.state.notices[NOTICE].detail == "no voice"
    own = [tool.name for tool in transcript.tools.all(0)[0]]
    assert "speak" not in own


def test_code_alone_is_not_read(stage: Stage) -> None:
    speech = FakeSpeech()
    reading = ReadingAloud(stage.state, speech)  # type: ignore[arg-type]
    stage.ready(MODEL)
    stage.controller.send("Code?")
    stage.engine.write("```\nx = 1\n```")
    stage.engine.finish()
    stage.wait_until_idle()
    reading.toggle(stage.state.messages[1].id)
    assert speech.spoken == []
    assert "only code" in stage.state.notices[NOTICE].sentence
