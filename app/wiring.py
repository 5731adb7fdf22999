"""Connects what the window says with what the controller does; neither knows the other."""

from __future__ import annotations

from app.adapter_wiring import connect_adapters
from app.controller import Controller
from app.library_wiring import connect_library
from app.session_wiring import connect_preferences
from app.ui.preferences import Preferences
from app.ui.theme import CHOICES, Theme
from app.window import Window


def connect(window: Window, controller: Controller, theme: Theme) -> None:
    """Wire every intent, and show the window as the settings say."""
    sidebar, transcript = window.sidebar, window.transcript
    composer = window.composer

    def send(text: str) -> None:
        composer.set_text("")
        if controller.send(text):
            transcript.jump_to_end()
        else:
            composer.set_text(text)

    def next_theme() -> None:
        choice = CHOICES[(CHOICES.index(theme.choice) + 1) % len(CHOICES)]
        theme.choose(choice)
        controller.change_settings(theme=choice)

    def change(name: str, value: object) -> None:
        controller.change_settings(**{name: value})

    def act(kind: str) -> None:
        if kind == "model":
            window.open_picker()
        else:
            controller.act_on_notice(kind)

    def keep_draft(text: str) -> None:
        controller.drafts.keep(controller.state.current, text)

    def keep_sidebar(wanted: bool) -> None:
        controller.change_settings(sidebar_open=wanted)

    def compare(message_id: int) -> None:
        controller.regenerate(message_id, bare=True)

    def wire_preferences(page: Preferences) -> None:
        show_settings = connect_preferences(
            page,
            controller.sessions,
            controller.state,
            theme,
            change=change,
            reload=controller.load_model,
        )
        controller.settings_changed.connect(lambda: show_settings(controller.settings))
        page.closed.connect(window.close_page)

    composer.submitted.connect(send)
    composer.stopped.connect(controller.stop)
    composer.edited.connect(keep_draft)
    window.chat.empty_view.suggested.connect(send)
    window.chat.draft_left.connect(controller.drafts.keep)

    window.top_bar.new_button.clicked.connect(controller.new_conversation)
    sidebar.new_requested.connect(controller.new_conversation)
    sidebar.opened.connect(controller.open_conversation)
    sidebar.opened.connect(window.close_page)  # also when it is the shown one
    sidebar.renamed.connect(controller.conversations.rename)
    sidebar.delete_requested.connect(controller.delete_conversations)
    sidebar.undo_requested.connect(controller.undo_delete)
    sidebar.searched.connect(controller.conversations.search)

    transcript.regenerate_requested.connect(controller.regenerate)
    transcript.compare_requested.connect(compare)
    transcript.adapters_requested.connect(window.adapters.open)
    transcript.edit_submitted.connect(controller.edit)
    transcript.continue_requested.connect(controller.continue_answer)
    transcript.sibling_requested.connect(controller.show_sibling)
    window.chat.regenerate_requested.connect(controller.regenerate)

    window.model_chosen.connect(controller.load_model)
    window.picker.cancel_requested.connect(controller.models.cancel)
    window.chat.status_line.cancel_requested.connect(controller.models.cancel)
    window.banners.closed.connect(controller.close_notice)
    window.banners.acted.connect(act)

    connect_library(
        window.library,
        controller.library,
        load=controller.load_model,
        cancel_load=controller.models.cancel,
        unload=controller.unload_model,
        open_file=window.open_file,
        leave=window.close_page,
    )
    connect_adapters(window.adapters, controller.adapters)
    window.preferences_made.connect(wire_preferences)

    window.sidebar_toggled.connect(keep_sidebar)
    window.theme_requested.connect(next_theme)
    theme.changed.connect(window.apply_palette)
    window.apply_palette(theme.palette)
    window.restore_geometry(controller.settings.window_geometry)
    window.set_sidebar(controller.settings.sidebar_open)
