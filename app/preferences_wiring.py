"""Connects the settings page, which is made when it is first opened, to the controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.controller import Controller
from app.library.gpu_support import GPUSupportController
from app.state.chat import ModelPhase
from app.system import restart
from app.system.file_manager import show_in_folder
from app.tool_wiring import connect_settings
from app.transfer_dialogs import connect_storage
from app.ui.theme.theme import Theme
from app.ui.widgets.links import open_link
from app.ui.window import Window

if TYPE_CHECKING:
    from app.ui.settings.gpu import GPUSection
    from app.ui.settings.page import Preferences


def connect_preferences(
    page: Preferences, controller: Controller, window: Window, theme: Theme
) -> None:
    """Connect the settings page to the controller, and show changed settings on it."""
    state = controller.state

    def change(name: str, value: object) -> None:
        if name == "theme":
            theme.choose(str(value))
        controller.change_settings(**{name: value})

    def show_settings() -> None:
        page.show_settings(controller.settings, controller.used_sampling(), state.model.name)

    loaded: list[object] = [None]

    def show_model() -> None:
        model = state.model
        if model.phase is ModelPhase.READY and model.loaded is loaded[0]:
            return
        loaded[0] = model.loaded if model.phase is ModelPhase.READY else None
        page.show_model(loaded[0] is not None)
        show_settings()

    def show_devices() -> None:
        page.show_devices(state.devices)

    state.devices_changed.connect(show_devices)
    show_devices()
    page.changed.connect(change)
    page.opened.connect(controller.sessions.measure)
    page.delete_requested.connect(controller.sessions.delete_saved)
    page.folder_requested.connect(show_in_folder)
    connect_storage(page, window, controller)
    connect_gpu(page.gpu, window, controller.gpu_support)
    connect_settings(page.tools, window, controller)
    connect_updates(page, window, controller)
    page.reload_requested.connect(controller.model_use.reload)
    page.given_up.connect(controller.reset_sampling)
    controller.settings_changed.connect(show_settings)
    controller.library.defaults.changed.connect(show_settings)
    state.model_changed.connect(show_model)
    show_model()


def connect_gpu(section: GPUSection, window: Window, controller: GPUSupportController) -> None:
    """Connect the section of GPU support to its controller."""

    def start_again() -> None:
        restart.request()
        window.quit()

    section.get_requested.connect(controller.get)
    section.stop_requested.connect(controller.stop)
    section.retry_requested.connect(controller.retry)
    section.remove_requested.connect(controller.remove)
    section.restart_requested.connect(start_again)


def connect_updates(page: Preferences, window: Window, controller: Controller) -> None:
    """Connect what the settings page says of newer versions."""
    section, updates = page.about.updates, controller.updates
    section.check_requested.connect(updates.check)
    section.get_requested.connect(updates.get)
    section.stop_requested.connect(updates.stop_getting)
    section.install_requested.connect(updates.install)
    section.folder_requested.connect(show_in_folder)
    section.page_requested.connect(open_link)
    section.removal_requested.connect(updates.remove_leftover)
    updates.installing.connect(window.quit)
