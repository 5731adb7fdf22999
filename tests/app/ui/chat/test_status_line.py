"""Status line: its text while loading, during prefill and generation, and when idle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.domain.documents import Reads
from app.domain.generation_settings import GenerationSettings
from app.domain.model_ref import Local
from app.domain.parts import FilePart, ImagePart
from app.state.attachments import Attachment
from app.state.chat import ChatModel
from app.ui.chat.status_line import StatusLine
from engine import DeviceFault, DevicePart, DeviceRefusal, SlowPart, SlowReason
from fakes import MODEL
from stage import Stage


def words(stage: Stage) -> str:
    return stage.window.chat.status_line.words.text()


def line(stage: Stage) -> StatusLine:
    return stage.window.chat.status_line


def test_without_a_model_the_line_says_so(stage: Stage) -> None:
    stage.start()
    assert words(stage) == "No model loaded"
    assert line(stage).meter.isHidden()


def test_a_base_model_is_marked_in_every_chat(stage: Stage) -> None:
    stage.ready(MODEL)
    assert "not made to chat" not in words(stage)
    model = stage.state.model
    assert model.loaded is not None
    stage.state.set_model(replace(model, loaded=replace(model.loaded, base=True)))
    assert words(stage).startswith("Small Model 135M · not made to chat")


def test_load_shows_a_progress_bar_with_cancel(qtbot: QtBot, stage: Stage) -> None:
    stage.start(MODEL)
    stage.engine.progress(0.42)
    stage.drain()
    assert line(stage).loading.text() == "Loading Small Model 135M"
    assert line(stage).percent.text() == "42 %"
    assert line(stage).progress.share == pytest.approx(0.42, abs=0.01)
    qtbot.mouseClick(line(stage).cancel, Qt.MouseButton.LeftButton)
    stage.engine.cancel_load()
    stage.drain()
    assert words(stage) == "No model loaded"


def test_load_is_never_at_nothing_or_all_of_it(stage: Stage) -> None:
    stage.start(MODEL)
    assert line(stage).percent.text() == "starting…"  # torch is imported, no byte is known yet
    for share, shown in ((0.0, "0 %"), (0.5, "50 %"), (0.999, "99 %"), (1.0, "almost ready…")):
        stage.engine.progress(share)
        stage.drain()
        assert line(stage).percent.text() == shown


def test_idle_line_names_the_model_and_its_tip_the_kernels(stage: Stage) -> None:
    stage.ready(MODEL)
    assert words(stage) == "Small Model 135M"
    assert line(stage).context.text() == "0 of 8,192"
    assert "712 MB" in line(stage).words.toolTip()
    assert "Kernels: reference" in line(stage).words.toolTip()


def test_prefill_shows_its_progress(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("A long story")
    stage.engine.report_prompt_progress(512, 2048)
    stage.drain()
    assert words(stage).endswith("reading 512 of 2,048 tokens")


def test_hidden_tokens_are_counted(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Hello")
    stage.engine.report_prompt_progress(33, 33)
    stage.drain()
    assert words(stage).endswith("reading 33 of 33 tokens")
    shown: list[str] = []
    stage.state.text_added.connect(lambda _message, text: shown.append(text))
    stage.engine.write("", tokens=1)
    stage.drain()
    assert words(stage).endswith("writing, 1 token")
    stage.engine.write("", tokens=2)
    stage.drain()
    assert stage.state.shown_generation is not None
    assert stage.state.shown_generation.generated == 2
    assert words(stage).endswith("writing, 2 tokens")
    assert line(stage).context.text() == "42 of 8,192"
    assert shown == []
    stage.engine.write("Hi", tokens=3)
    stage.drain()
    assert shown == ["Hi"]
    stage.controller.new_conversation()
    assert "writing" not in words(stage)


def test_finished_answer_shows_speed_and_context_use(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Hello")
    stage.engine.write("one two three", tokens=1160)
    stage.drain()
    assert line(stage).context.text() == "1,200 of 8,192"
    stage.engine.finish(tokens=1164)
    stage.wait_until_idle()
    assert words(stage).endswith("38.5 tokens/s")
    assert line(stage).context.text() == "1,204 of 8,192"
    assert line(stage).meter.share == pytest.approx(1204 / 8192)


def test_attached_files_count_before_they_are_sent(stage: Stage) -> None:
    stage.ready(MODEL)
    picture = Attachment(1, "a.png", part=ImagePart("0" * 64), tokens=1_200)
    cut = Attachment(2, "b.pdf", part=FilePart("b.pdf", reads=Reads.SUMMARY), tokens=90_000)
    stage.states.attachments.set(None, [picture, cut])
    assert line(stage).context.text() == "1,200 of 8,192"
    assert "Your message has 1,200 tokens" in line(stage).context.toolTip()
    stage.states.attachments.set(None, [])
    assert line(stage).context.text() == "0 of 8,192"


def test_the_last_token_of_a_full_chat_is_no_more_than_the_context(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Hello")
    stage.engine.write("Hi")
    stage.engine.finish(tokens=8_193)
    stage.wait_until_idle()
    assert line(stage).context.text() == "8,192 of 8,192"


def test_context_use_is_per_conversation(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Hello")
    stage.engine.write("Hi")
    stage.engine.finish(tokens=100)
    stage.wait_until_idle()
    stage.controller.new_conversation()
    assert line(stage).context.text() == "0 of 8,192"


def test_keeping_the_other_of_two_answers_shows_its_context_use(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Hello")
    stage.engine.finish(tokens=100)
    stage.wait_until_idle()
    stage.controller.compare(
        stage.state.messages[-1].id, GenerationSettings(), GenerationSettings()
    )
    for tokens, command in zip((20, 700), stage.engine.unfinished, strict=True):
        stage.engine.finish(request=command.request, tokens=tokens)
    stage.wait_until_idle()
    before = line(stage).context.text()
    stage.controller.keep(stage.state.messages[-1].compared)
    assert line(stage).context.text() == f"{stage.state.context_used:,} of 8,192"
    assert line(stage).context.text() != before


@pytest.mark.parametrize("reason", list(SlowReason))
def test_reduced_speed_and_its_reason_are_shown(reason: SlowReason, stage: Stage) -> None:
    stage.ready(MODEL)
    loaded = stage.state.model.loaded
    assert loaded is not None
    assert "reduced speed" not in words(stage)
    assert "Slower" not in line(stage).words.toolTip()
    slow = replace(loaded, kernels="cpu", slow=(SlowPart(reason, "linear IQ1_S"),))
    stage.state.set_model(replace(stage.state.model, loaded=slow))
    assert words(stage) == "Small Model 135M · reduced speed"
    *_, heading, why = line(stage).words.toolTip().splitlines()
    assert heading == "Slower than this computer could run it:"
    assert why.endswith(".")


def test_narrow_line_keeps_the_start_of_the_name_and_the_progress(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.window.resize(1080, 700)
    stage.window.panel.open()
    stage.wait_for_animations()
    stage.controller.send("Why?")
    stage.drain()
    stage.engine.report_prompt_progress(1234, 5678)
    stage.drain()
    stage.engine.finish_load("A model with a name that is longer than most names are, 135M")
    stage.drain()
    assert line(stage).words.shown != words(stage)
    assert line(stage).words.shown.startswith("Small Model")
    assert line(stage).words.shown.endswith("5,678 tokens")


def test_the_context_of_another_model_is_not_shown_as_the_chats(stage: Stage) -> None:
    stage.ready(MODEL)
    assert line(stage).meter.isVisible()
    own = Local(stage.folder / "Other.gguf")
    stage.state.set_chat_model(ChatModel(own, "Other 4B", "Small Model 135M"))
    assert words(stage) == "Other 4B is not loaded"
    assert line(stage).meter.isHidden()
    assert line(stage).context.isHidden()
    stage.state.set_chat_model(None)
    assert words(stage).startswith("Small Model 135M")
    assert line(stage).meter.isVisible()


def test_speed_is_cleared_for_the_next_model(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Hello")
    stage.engine.write("Hi")
    stage.engine.finish()
    stage.wait_until_idle()
    assert words(stage).endswith("36.9 tokens/s")
    stage.controller.load_model(MODEL.with_name("Other.gguf"))
    stage.engine.finish_load("Other")
    stage.drain()
    assert words(stage) == "Other"
    stage.controller.load_model(MODEL)
    stage.engine.finish_load()
    stage.drain()
    assert words(stage) == "Small Model 135M"


def test_failed_load_keeps_the_speed_of_the_loaded_model(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Hello")
    stage.engine.write("Hi")
    stage.engine.finish()
    stage.wait_until_idle()
    stage.controller.load_model(MODEL.with_name("Other.gguf"))
    stage.engine.fail_load("It is not a model.", "Choose another.", model_gone=False)
    stage.drain()
    assert words(stage) == "Other is not loaded"  # the one that was chosen for this chat
    stage.controller.new_conversation()
    assert words(stage).endswith("36.9 tokens/s")


def test_line_and_tip_say_what_runs_where(stage: Stage) -> None:
    gpu = DevicePart("cuda", "NVIDIA H100", 24, 3_700_000_000)
    processor = DevicePart("cpu", "", 12, 1_900_000_000)
    stage.start(MODEL)
    stage.engine.finish_load(runs_on=(gpu,))
    stage.drain()
    assert words(stage) == "Small Model 135M · NVIDIA H100"
    assert "Runs on: NVIDIA H100" in line(stage).words.toolTip()
    stage.controller.load_model(MODEL.with_name("b.gguf"))
    moved = DeviceRefusal(DeviceFault.TOO_LARGE, "24 of 36 layers fit.")
    stage.engine.finish_load(runs_on=(processor, gpu), moved=moved)
    stage.drain()
    assert words(stage).endswith("12 layers: processor, 24 layers: NVIDIA H100")
    assert "24 of its 36 layers run there." in line(stage).words.toolTip()
    stage.controller.load_model(MODEL)
    stage.engine.finish_load(runs_on=(processor,))
    stage.drain()
    assert words(stage) == "Small Model 135M · processor"
    assert "Runs on: processor" in line(stage).words.toolTip()


def test_tip_names_what_is_wrong_with_the_file(stage: Stage) -> None:
    stage.start(MODEL)
    key = "general.sampling.temp: nan"
    stage.engine.finish_load(template_problem="The exact reason.", unusable=(key,))
    stage.drain()
    tip = line(stage).words.toolTip().splitlines()
    assert tip[-2:] == [
        "The exact reason.",
        f"The file recommends values that cannot be used: {key}",
    ]
