"""Connects what the window shows of tools to the controllers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.chat.controller import Controller
from app.state.chat import Notice
from app.state.tools import Consent
from app.system.translation import tr
from app.ui.window import Window

if TYPE_CHECKING:
    from app.ui.panel.tools import ToolsSection
    from app.ui.settings.tools import ToolsSettings
    from app.ui.tools.page import ActivityPage

_NOTICE = "calls"  # kind of the notice that the list of calls cannot be written


def connect_calls(window: Window, controller: Controller) -> None:
    """Connect the calls in the transcript."""
    transcript, tools = window.transcript, controller.tools

    def decide(message: int, call: str, consent: Consent, arguments: str) -> None:
        tools.calls.decide(message, call, consent, arguments)

    def stop_call(message: int, call: str) -> None:
        tools.calls.stop_call(message, call)

    transcript.decided.connect(decide)
    transcript.stop_call.connect(stop_call)
    transcript.answer_again_from.connect(controller.messages.answer_from)
    transcript.activity_requested.connect(window.activity.open)
    window.activity.made.connect(partial(_connect_activity, window, controller))


def connect_section(section: ToolsSection, window: Window, controller: Controller) -> None:
    """Connect the section of the chat's panel."""
    section.paths_wanted.connect(controller.tool_paths.look)
    section.activity_requested.connect(window.activity.open)
    window.panel.opened.connect(section.look)
    window.panel.opened.connect(controller.tools.look)
    controller.tools.look()


def connect_settings(section: ToolsSettings, window: Window, controller: Controller) -> None:
    """Connect the section of the settings."""
    sources = controller.tools.sources

    def shows(provider: str, kept: bool) -> None:
        section.show_key(provider, kept=kept)

    def change_key(provider: str, key: str) -> None:
        sources.set_key(provider, key, partial(shows, provider))

    def look_for_key(provider: str) -> None:
        sources.look_for_key(provider, partial(shows, provider))

    section.key_changed.connect(change_key)
    section.key_wanted.connect(look_for_key)
    controller.settings_changed.connect(sources.settings_changed)


def _connect_activity(window: Window, controller: Controller, page: ActivityPage) -> None:
    tools = controller.tools

    def failed(error: OSError) -> None:
        reason = error.strerror or str(error)
        sentence = tr("The calls cannot be written: {reason}.", reason=reason)
        controller.state.set_notice(_NOTICE, Notice(sentence, tr("Choose another place.")))

    def export(path: Path) -> None:
        tools.export_activity(path, failed)

    def open_chat(conversation: int, message: int, call: str) -> None:
        window.close_page()
        controller.open_conversation(conversation)
        window.transcript.calls.show_call(message, call)

    page.calls.more_requested.connect(tools.show_activity)
    page.calls.chat_requested.connect(open_chat)
    page.export_requested.connect(export)
    page.allowed.revoked.connect(tools.grants.revoke)
    page.allowed.all_revoked.connect(tools.grants.revoke_all)
    page.allowed.may_always_changed.connect(tools.grants.set_may_always)
    tools.show_activity()
