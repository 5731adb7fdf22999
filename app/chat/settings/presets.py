"""Presets: made, changed, deleted, applied to chats, and chosen for new ones.

What a new chat begins with is decided in `Presets.for_new_chat`, and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.chat.chat_list.conversations import Conversations
from app.chat.settings.builtin_presets import built_in
from app.chat.settings.chat_settings import ChatSettingsController
from app.chat.settings.preset_files import FoundPreset, PresetFileError, read_preset, write_preset
from app.domain import presets
from app.domain.chat import Preset
from app.domain.chat_settings import NO_SETTINGS, PARTS, ChatSettings, with_parts
from app.domain.folders import chain
from app.domain.ids import new_id
from app.domain.message import Message, MessageState
from app.domain.model_ref import ModelRef
from app.domain.parts import TextPart, parts_of
from app.library.settings_editor import ModelSettingsEditor
from app.settings.table import Settings
from app.state.chat import Notice, State
from app.state.presets import PresetState, PresetUse
from app.store.store import Store, StoreError
from app.store.writer import StoreQueue
from app.system.translation import listed, sentences, tr, trn
from app.system.worker import BackgroundWorker
from engine import Role

# Kinds of notices.
OFFERED, ADDED = "preset_offered", "preset_added"
APPLIED, REFUSED = "preset_applied", "preset_refused"


class Presets(QObject):
    """Changes the presets in the state at once, and in the store afterwards."""

    new_chat_requested = Signal()  # show the new chat

    def __init__(
        self,
        state: State,
        shown: PresetState,
        store_queue: StoreQueue,
        chat_settings: ChatSettingsController,
        conversations: Conversations,
        files: BackgroundWorker,
        settings: Callable[[], Settings],
        model_settings: ModelSettingsEditor,
        stays_empty: Callable[[], bool],
        usual_model: Callable[[], ModelRef | None],
        parent: QObject | None = None,
    ) -> None:
        """`files` is the worker for the user's files; `stays_empty`: the shown chat has no message
        and no text, and no other chat is being opened; `usual_model` is the model that new chats
        begin with, None: the one in use.
        """
        super().__init__(parent)
        self._state, self._shown, self._store_queue = state, shown, store_queue
        self._chat_settings, self._conversations = chat_settings, conversations
        self._files, self._settings, self._model_settings = files, settings, model_settings
        self._own: dict[int, Preset] = {}  # stored ones, also those of the app that were changed
        self._has_read = False
        self._given = NO_SETTINGS  # what the new chat got from `for_new_chat` last
        self._offered: list[FoundPreset] = []  # read from files, to be added
        self._stays_empty, self._usual_model = stays_empty, usual_model
        self._greets: int | None = None  # the preset with a greeting that is for new chats
        self._added: int | None = None
        # What the last preset replaced: the chat, its settings before, and their parts.
        self._before: tuple[int | None, ChatSettings, frozenset[str]] | None = None
        self._compared: tuple[Sequence[Preset], ChatSettings] | None = None
        self._in_use: Preset | None = None  # the one of those that has these settings
        state.model_changed.connect(self.refresh)
        state.conversation_changed.connect(self._on_shown)
        state.conversations_changed.connect(self._show_use)
        state.settings_changed.connect(self._show_use)
        state.folders_changed.connect(self._follow)
        state.new_folder_changed.connect(self._follow)
        model_settings.changed.connect(self.refresh)
        store_queue.fault_changed.connect(self._on_store_fault)
        self._show(None)

    # --- the store ------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the stored presets."""

        def found(stored: list[Preset]) -> None:
            self._own = {preset.id: preset for preset in stored} | self._own
            self._has_read = True
            self._show(self._shown.deleted)

        self._store_queue.read(Store.presets, found)

    def write_all(self) -> None:
        """Write the presets again, after a damaged store was replaced."""
        for preset in self._own.values():
            self._write(preset)

    def _write(self, preset: Preset) -> None:
        self._store_queue.write(
            lambda store: store.set_preset(preset), preset.settings.instructions or ""
        )

    def _on_store_fault(self, error: StoreError | None) -> None:
        if error is None and not self._has_read:
            self.read()

    # --- changing presets -----------------------------------------------------------------------

    def save(self, preset: Preset) -> None:
        """Add a preset, or change the one with its id; one without a name keeps the one it had."""
        before = self._shown.preset(preset.id)
        preset = presets.made(preset)
        if not preset.name:
            preset = replace(preset, name=before.name if before else tr("Preset"))
        if before == preset:
            return
        if preset in built_in():
            self._own.pop(preset.id, None)
            self._store_queue.write(lambda store: store.delete_preset(preset.id))
        else:
            self._own[preset.id] = preset
            self._write(preset)
        self._show(None if before is None else self._shown.deleted)

    def add(self) -> int:
        """Add an empty preset; returns its id."""
        made = Preset(new_id(), tr("New preset"), parts=frozenset(("instructions",)))
        self.save(made)
        return made.id

    def save_chat(self, name: str = "") -> int:
        """Make a preset of all that the shown chat has changed; returns its id."""
        title = name or self._state.title(self._state.current) or tr("New preset")
        settings = self._state.settings(self._state.current)
        made = presets.preset_from_chat(new_id(), title, settings)
        self.save(made)
        return made.id

    def take_from_chat(self, id: int) -> None:
        """Give the parts that a preset has, and those the shown chat has changed, to the preset."""
        preset = self._shown.preset(id)
        if preset is not None:
            settings = self._state.settings(self._state.current)
            changed = presets.preset_from_chat(id, preset.name, settings)
            parts = preset.parts | changed.parts
            self.save(replace(preset, settings=settings, parts=parts))

    def delete(self, id: int) -> None:
        """Delete a preset; `undo` restores it."""
        preset = self._shown.preset(id)
        if preset is None:
            return
        if preset.built_in:  # else it would come back
            self._own[id] = replace(preset, hidden=True)
            self._write(self._own[id])
        else:
            self._own.pop(id, None)
            self._store_queue.write(lambda store: store.delete_preset(id))
        self._show(preset)

    def undo(self) -> None:
        """Restore the preset that was deleted last."""
        if (preset := self._shown.deleted) is not None:
            self._own.pop(preset.id, None)
            self._show(None)
            self.save(preset)

    def restore_built_in(self) -> None:
        """Make the presets of the app as they came; changed ones stay as presets of the user."""
        for preset in built_in():
            changed = self._own.pop(preset.id, None)
            if changed is None:
                continue
            self._store_queue.write(lambda store, id=preset.id: store.delete_preset(id))
            if not changed.hidden:
                kept = replace(changed, id=new_id())
                self._own[kept.id] = kept
                self._write(kept)
        self._show(None)

    def _show(self, deleted: Preset | None) -> None:
        own = dict(self._own)
        found = [own.pop(preset.id, preset) for preset in built_in()]
        found += own.values()
        shown = [preset for preset in found if not preset.hidden]
        restorable = any(preset.built_in for preset in self._own.values())
        self._shown.set(shown, deleted, restorable=restorable)
        self.refresh()

    # --- chats ----------------------------------------------------------------------------------

    def for_new_chat(self) -> Preset | None:
        """The preset that the new chat begins with; None: none.

        The nearest one counts: the preset of the folder it begins in, or of a folder around that;
        else the one of the model in use; else the one of the app's settings. A preset that was
        deleted counts as none.
        """
        around = chain(self._state.folders, self._state.new_folder)
        wanted = [folder.preset for folder in around]
        if (path := self._state.model.path) is not None:
            wanted.append(self._model_settings.own(path).preset)
        wanted.append(self._settings().new_chat_preset)
        found = (self._shown.preset(id) for id in wanted)
        return next((preset for preset in found if preset is not None), None)

    def set_for_model(self, path: Path, id: int | None) -> None:
        """Begin new chats with a preset while this model is in use; None: as in the settings."""
        own = self._model_settings.own(path)
        self._model_settings.change(path, replace(own, preset=id))

    def settings_for_new_chat(self) -> ChatSettings:
        """The settings that the new chat begins with."""
        return self._begun(self.for_new_chat())

    def _begun(self, preset: Preset | None) -> ChatSettings:
        """The settings of a new chat with a preset; None: without one."""
        settings = presets.begin(preset)
        return replace(settings, model=settings.model or self._usual_model())

    def begin_new_chat(self) -> None:
        """Show a new chat; one whose preset has a greeting begins with it."""
        preset = self.for_new_chat()
        if preset is not None and preset.greeting:
            self.start(preset.id)
        else:
            self.new_chat_requested.emit()

    def start(self, id: int) -> None:
        """Begin a new chat with a preset, and show it."""
        preset = self._shown.preset(id)
        if preset is None:
            return
        if not preset.greeting.strip():
            before = self._state.new_chat
            self.new_chat_requested.emit()
            self._chat_settings.change(None, self._begun(preset))
            usual = (NO_SETTINGS, self._begun(None), self._given, self._state.new_chat)
            if before not in usual and not any(
                presets.is_in_use(each, before) for each in self._shown.presets
            ):
                self._offer_undo(preset, None, before, frozenset(PARTS))
            return
        if not self._shows_greeting_only(preset):
            self._state.show(self._begin_with_greeting(preset))

    def toggle(self, id: int) -> None:
        """Begin the new chat with a preset; one that has it gives it back."""
        preset, settings = self._shown.preset(id), self._state.settings(None)
        if preset is not None and presets.is_in_use(preset, settings):
            usual = self.settings_for_new_chat()
            self._chat_settings.change(None, self._begun(None) if usual == settings else usual)
        else:
            self.start(id)

    def use(self, id: int) -> None:
        """Give the shown chat the settings of a preset; a new one begins with its greeting."""
        preset, shown = self._shown.preset(id), self._state.current
        if preset is None:
            return
        settings = self._state.settings(shown)
        if shown is None and preset.greeting.strip():
            self.start(id)
        elif (changed := presets.apply(preset, settings)) != settings:
            self._chat_settings.change(shown, changed)
            self._offer_undo(preset, shown, settings, preset.parts)

    def _offer_undo(
        self, preset: Preset, chat: int | None, before: ChatSettings, parts: frozenset[str]
    ) -> None:
        self._before = chat, before, parts
        sentence = tr("This chat now has the preset “{name}”.", name=preset.name)
        self._state.set_notice(APPLIED, Notice(sentence, action=tr("Undo")))

    def take_back(self) -> None:
        """Undo the last preset that was applied; what it does not set stays as it is now."""
        self._state.set_notice(APPLIED, None)
        if self._before is not None:
            chat, before, parts = self._before
            now = self._state.settings(chat)
            self._chat_settings.change(chat, with_parts(now, before, parts))
            self._before = None

    def refresh(self) -> None:
        """Presets, the model or settings have changed: the empty chat follows.

        It begins with the greeting of a preset that is for new chats only now.
        """
        self._follow()
        preset = self.for_new_chat() if self._has_read else None
        greets = preset.id if preset is not None and preset.greeting.strip() else None
        is_new, self._greets = greets != self._greets, greets
        untouched = self._state.new_chat == self._given
        if greets is not None and is_new and untouched and self._stays_empty():
            self.start(greets)

    def _follow(self) -> None:
        """The untouched new chat has the settings of the preset that it begins with."""
        wanted, now = self.settings_for_new_chat(), self._state.new_chat
        if self._has_read and now in (self._given, wanted):
            self._given = wanted
            self._chat_settings.change(None, wanted)
        self._show_use()

    def renew(self) -> None:
        """The new chat became a conversation: the next one begins with the preset again."""
        self._given = NO_SETTINGS
        self._follow()

    def _shows_greeting_only(self, preset: Preset) -> bool:
        messages = self._state.messages
        begun = any(message.role is not Role.ASSISTANT or message.model for message in messages)
        settings = self._state.settings(self._state.current)
        return bool(messages) and not begun and presets.is_in_use(preset, settings)

    def _begin_with_greeting(self, preset: Preset) -> int:
        """A conversation whose first message is the greeting; other ones are versions of it."""
        settings = self._begun(preset)
        folder = self._state.new_folder
        conversation = self._conversations.begin((TextPart(preset.name),), settings, folder)
        self._state.set_new_folder(None)
        greetings = (preset.greeting, *preset.greetings)
        now, count, complete = time.time(), len(greetings), MessageState.COMPLETE
        messages = [
            Message(
                new_id(), conversation, None, Role.ASSISTANT, parts_of(Role.ASSISTANT, text),
                complete, now, "", "", 0, 0, 0.0, number, count,
            )
            for number, text in enumerate(greetings, 1)
        ]  # fmt: skip

        def add(store: Store) -> None:
            for message in reversed(messages):  # the last one added is shown
                store.add_message(
                    conversation, None, message.role, message.parts, complete, id=message.id
                )

        self._store_queue.write(add, preset.greeting)
        self._state.add(messages[0])
        return conversation

    # --- what is in use -------------------------------------------------------------------------

    def _on_shown(self) -> None:
        self._state.set_notice(APPLIED, None)
        self._show_use()

    def _show_use(self) -> None:
        model, settings = self._state.model, self._state.settings(self._state.current)
        offered, path = self._shown.presets, model.path
        if self._compared != (offered, settings):  # most changes are of something else
            self._compared = offered, settings
            in_use = (each for each in offered if presets.is_in_use(each, settings))
            self._in_use = next(in_use, None)
        shown = self._in_use
        by_model = None if path is None else self._model_settings.own(path).preset
        self._shown.set_use(
            PresetUse(
                None if shown is None else shown.id,
                self._settings().new_chat_preset or None,
                by_model,
                path,
                model.name if path is not None else "",
            )
        )

    # --- files ----------------------------------------------------------------------------------

    def open(self, paths: Sequence[Path]) -> None:
        """Add the presets of files that the user chose."""

        def read() -> list[FoundPreset | str]:
            return [_read(path) for path in paths]

        def found(results: list[FoundPreset | str]) -> None:
            self._refuse([each for each in results if isinstance(each, str)])
            self._add([each for each in results if isinstance(each, FoundPreset)])

        self._files.run(read, found)

    def offer(self, found: Sequence[FoundPreset]) -> None:
        """Ask whether to add the presets of files that were dropped."""
        self._offered = [FoundPreset(each.preset) for each in found]
        notes = sentences(*(each.note for each in found))
        names = listed(each.preset.name for each in found)
        sentence = trn(
            "“{names}” is a preset.", "These are presets: {names}.", len(found), names=names
        )
        self._state.set_notice(OFFERED, Notice(sentence, notes, tr("Add it to the presets")))

    def act_on_notice(self, kind: str) -> None:
        """Run the action of a notice about presets."""
        if kind == OFFERED:
            self.add_offered()
        elif kind == ADDED:
            self.start_added()
        elif kind == APPLIED:
            self.take_back()

    def add_offered(self) -> None:
        """Add the presets that were offered."""
        self._state.set_notice(OFFERED, None)
        offered, self._offered = self._offered, []
        self._add(offered)

    def start_added(self) -> None:
        """Begin a chat with the preset that was added last."""
        self._state.set_notice(ADDED, None)
        if self._added is not None:
            self.start(self._added)

    def export(self, id: int, path: Path) -> None:
        """Write a preset to a file."""
        preset = self._shown.preset(id)
        if preset is None:
            return

        def write() -> str:
            try:
                write_preset(preset, path)
            except PresetFileError as error:
                return str(error)
            return ""

        self._files.run(write, lambda sentence: self._refuse([sentence] if sentence else []))

    def _add(self, found: Sequence[FoundPreset]) -> None:
        for each in found:
            preset = replace(each.preset, id=new_id())
            self.save(preset)
            self._added = preset.id
        if found:
            names = listed(each.preset.name for each in found)
            sentence = trn(
                "“{names}” is among your presets now.", "Added presets: {names}.", len(found),
                names=names,
            )  # fmt: skip
            notes = sentences(*(each.note for each in found))
            self._state.set_notice(ADDED, Notice(sentence, notes, tr("Start a chat with it")))

    def _refuse(self, refusals: Sequence[str]) -> None:
        self._state.set_notice(REFUSED, Notice(sentences(*refusals)) if refusals else None)


def _read(path: Path) -> FoundPreset | str:
    """The preset of a file, or why there is none."""
    try:
        found = read_preset(path)
    except PresetFileError as error:
        return str(error)
    return found or tr("{file} is no preset and no character card.", file=path.name)
