"""Scenes of the settings page and of the resume line, for tests/pictures/shots.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtWidgets import QApplication

from app.downloads.policy import InstallProgress, InstallStep
from app.settings.model_settings import ModelDefaults
from app.state.gpu import GPUPhase, GPUView
from app.state.snapshots import Resume, ResumePhase, SavedSnapshots
from app.system.translation import tr
from app.ui.settings.fields import ChoiceButton
from app.ui.settings.page import ABOUT, Preferences
from engine import DeviceFault, DeviceInfo, DeviceRefusal, Fault, FaultKind, Restore, Sampling
from fakes import MODEL
from scenes_chat import show_menu
from stage import Stage, flush, until

Scene = Callable[[Stage], None]

CHANGED: dict[str, object] = {
    "system_prompt": "Answer in short sentences.\nWhere a number matters, give its unit.",
    "temperature": 0.2,
    "context": 16_384,
    "cache": "q8_0",
    "hub_endpoint": "https://mirror.example/hub",
    "proxy": "http://proxy.example:3128",
}


def page(stage: Stage, **changed: object) -> Preferences:
    """Open the settings page, with the given settings changed."""
    stage.ready(MODEL)
    stage.controller.change_settings(**changed)
    stage.window.preferences.open()
    stage.wait_until_idle()
    stage.states.sessions.set_saved(SavedSnapshots(1_236_000_000))
    flush()
    assert stage.window.preferences.page is not None
    return stage.window.preferences.page


def scroll_to(preferences: Preferences, group: str) -> None:
    """Scroll a section to the top of the viewport."""
    QApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)
    view = preferences.view
    top = preferences.headings[group].mapTo(view.viewport(), QPoint(0, 0)).y()
    view.verticalScrollBar().setValue(view.verticalScrollBar().value() + top)


def settings_look(stage: Stage) -> None:
    page(stage)


def settings_language(stage: Stage) -> None:
    """The open list of the languages."""
    field = page(stage).rows["language"].field
    assert isinstance(field, ChoiceButton)
    show_menu(stage, field.menu_of_choices(), field)


def settings_recommended(stage: Stage) -> None:
    """Values of the model's file, one that the user chose, and one for the model alone."""
    stage.start(MODEL)
    recommended = Sampling(temperature=0.3, top_k=20, top_p=1.0)
    stage.engine.finish_load(sampling=recommended)
    stage.wait_until_idle()
    stage.controller.library.defaults.change(MODEL, ModelDefaults(min_p=0.1))
    stage.controller.change_settings(top_k=40)
    stage.window.preferences.open()
    stage.wait_until_idle()
    assert stage.window.preferences.page is not None
    scroll_to(stage.window.preferences.page, "answers")


def settings_model(stage: Stage) -> None:
    scroll_to(page(stage), "model")


def settings_runs_on(stage: Stage) -> None:
    preferences = page(stage, runs_on="split")
    stage.state.set_devices((DeviceInfo("cuda", "NVIDIA GeForce RTX 4070"),))
    scroll_to(preferences, "model")


GPU = GPUView(
    GPUPhase.OFFERED,
    "NVIDIA GeForce RTX 4070",
    12_878_610_432,
    size_bytes=2_610_000_000,
    unpacked_bytes=5_440_000_000,
    can_get=True,
)
HALF = InstallProgress(InstallStep.DOWNLOADING, 1_204_000_000, GPU.size_bytes, 310.0)


def _gpu(stage: Stage, **changed: Any) -> Preferences:
    """The model settings of a computer with a GPU that is not used."""
    preferences = page(stage)
    refusal = DeviceRefusal(DeviceFault.NO_SUPPORT, "This build of torch has no CUDA.")
    stage.state.set_devices((DeviceInfo("cuda", "", refusal=refusal),))
    stage.wait_until_idle()
    stage.states.gpu.set_view(replace(GPU, **changed))
    scroll_to(preferences, "model")
    return preferences


def settings_gpu_offered(stage: Stage) -> None:
    _gpu(stage)


def settings_gpu_unavailable(stage: Stage) -> None:
    _gpu(
        stage,
        phase=GPUPhase.UNAVAILABLE,
        problem="The NVIDIA driver is too old: version 535.183.01.",
        remedy="Install version 580.65.06 or a newer one, then start Tokonoma again.",
        can_get=False,
    )


def settings_gpu_installing(stage: Stage) -> None:
    _gpu(stage, phase=GPUPhase.INSTALLING, progress=HALF, can_get=False)


def settings_gpu_begun(stage: Stage) -> None:
    _gpu(stage, phase=GPUPhase.BEGUN, done_bytes=HALF.done_bytes, can_remove=True)


def settings_gpu_failed(stage: Stage) -> None:
    preferences = _gpu(
        stage,
        phase=GPUPhase.FAILED,
        problem=tr("The GPU could not be used in a test."),
        remedy=tr("Update the NVIDIA driver, then try again."),
        detail="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        can_remove=True,
    )
    preferences.gpu.more.click()
    flush()


def settings_gpu_ready(stage: Stage) -> None:
    _gpu(stage, phase=GPUPhase.READY, can_get=False, can_remove=True)


def settings_gpu_in_use(stage: Stage) -> None:
    preferences = _gpu(stage, phase=GPUPhase.IN_USE, can_get=False, can_remove=True)
    stage.state.set_devices((DeviceInfo("cuda", GPU.gpu),))
    scroll_to(preferences, "model")


def settings_gpu_not_used(stage: Stage) -> None:
    """GPU support that ended the last start; the chat says so too."""
    _gpu(
        stage,
        phase=GPUPhase.NOT_USED,
        problem=tr("Tokonoma ended while it was loading GPU support."),
        remedy=tr("Update the NVIDIA driver, then try again, or remove GPU support."),
        can_get=False,
        can_retry=True,
        can_remove=True,
    )


def settings_storage(stage: Stage) -> None:
    scroll_to(page(stage), "storage")


def settings_about(stage: Stage) -> None:
    scroll_to(page(stage), ABOUT)


def settings_changed(stage: Stage) -> None:
    page(stage, **CHANGED)


def settings_changed_below(stage: Stage) -> None:
    preferences = page(stage, **CHANGED)
    preferences.rows["threads"].field.picked.emit(2)
    scroll_to(preferences, "model")


def settings_wrong_proxy(stage: Stage) -> None:
    preferences = page(stage)
    scroll_to(preferences, "downloads")
    _type(preferences, "hub_endpoint", "http://mirror.example")
    _type(preferences, "proxy", "socks5://proxy.example:1080")
    _type(preferences, "context", "many")


def settings_nothing_saved(stage: Stage) -> None:
    preferences = page(stage)
    stage.states.sessions.set_saved(
        SavedSnapshots(
            0,
            error="There is no room on the disk for 412 MB.",
            remedy="Free some space, or give saved reading less.",
        )
    )
    scroll_to(preferences, "storage")


def settings_focus(stage: Stage) -> None:
    preferences = page(stage)
    stage.window.activateWindow()
    preferences.rows["theme"].field.buttons["system"].setFocus(Qt.FocusReason.TabFocusReason)
    flush()


def settings_licences(stage: Stage) -> None:
    page(stage).show_licences()
    flush()


def settings_narrow(stage: Stage) -> None:
    narrow(stage)
    page(stage, **CHANGED)


def settings_narrow_below(stage: Stage) -> None:
    narrow(stage)
    scroll_to(page(stage, **CHANGED), "downloads")
    flush()


def settings_narrow_storage(stage: Stage) -> None:
    narrow(stage)
    scroll_to(page(stage), "storage")
    flush()


def settings_arabic(stage: Stage) -> None:
    page(stage, system_prompt="أجب بجمل قصيرة.\n用简短的句子回答。")


def resume_ready(stage: Stage) -> None:
    _resume(stage, Resume(1, ResumePhase.DONE, 4096, 4096, 4096, 0.21))


def resume_restoring(stage: Stage) -> None:
    _resume(stage, Resume(1))
    until(lambda: bool(stage.window.chat.resume_line.text))


def resume_part(stage: Stage) -> None:
    _resume(stage, Resume(1, ResumePhase.DONE, 3000, 3000, 4096, 0.21, 3.4))


def resume_refused(stage: Stage) -> None:
    _resume(stage, _REFUSED)


def resume_refused_narrow(stage: Stage) -> None:
    narrow(stage)
    _resume(stage, _REFUSED)


_REFUSED = Resume(
    1,
    ResumePhase.DONE,
    0,
    0,
    4096,
    0.0,
    12.3,
    "The session was saved with another model, Gemma 3 270M.",
    Fault(FaultKind.SAVED_MODEL, "Gemma 3 270M"),
)


def _resume(stage: Stage, resume: Resume) -> None:
    """Show the oldest conversation with the given resume state."""
    stage.ready(MODEL)
    oldest = min(row.id for row in stage.state.conversations)
    stage.controller.open_conversation(oldest)
    stage.wait_until_idle()
    until(lambda: stage.engine.count(Restore) == 1)
    stage.states.sessions.set_resume(None)
    stage.states.sessions.set_resume(replace(resume, conversation=oldest))
    flush()


def narrow(stage: Stage) -> None:
    stage.window.resize(420, 720)
    stage.window.set_sidebar(False)


def _type(preferences: Preferences, name: str, text: str) -> None:
    line = preferences.rows[name].field.line
    line.setText(text)
    line.setModified(True)
    line.editingFinished.emit()
    flush()


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        settings_look,
        settings_language,
        settings_recommended,
        settings_model,
        settings_gpu_offered,
        settings_gpu_unavailable,
        settings_gpu_installing,
        settings_gpu_begun,
        settings_gpu_failed,
        settings_gpu_ready,
        settings_gpu_in_use,
        settings_gpu_not_used,
        settings_runs_on,
        settings_storage,
        settings_about,
        settings_changed,
        settings_changed_below,
        settings_wrong_proxy,
        settings_nothing_saved,
        settings_focus,
        settings_licences,
        settings_narrow,
        settings_narrow_below,
        settings_narrow_storage,
        settings_arabic,
        resume_ready,
        resume_restoring,
        resume_part,
        resume_refused,
        resume_refused_narrow,
    )
}
