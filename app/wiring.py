"""Connects the window's signals to the controllers; neither imports the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QFileDialog

from app.chat.answering.chat_models import NOTICE as MODEL_NOTICE
from app.chat.answering.served_answers import NOTICE as SERVED_NOTICE
from app.chat.controller import Controller
from app.chat.documents.rewritten import SAVED_NOTICE
from app.chat.models.adapters import Adapters
from app.chat.settings.chat_settings import NOTICE as OPTIONS_NOTICE
from app.chat.store_faults import NEWER_NOTICE
from app.chat.transfer.controller import EXPORTED_NOTICE
from app.chat.updates import NEWS_NOTICE, OTHER_NOTICE
from app.chat.updates import NOTICE as UPDATE_NOTICE
from app.domain.documents import Reads
from app.domain.generation_settings import GenerationSettings
from app.domain.message import AnswerAgain
from app.domain.model_ref import local_path
from app.domain.parts import Content, Parts, without_files_and_images
from app.domain.transfer import ExportFormat
from app.library.service import Library
from app.preferences_wiring import connect_preferences
from app.settings.table import thinking
from app.state.attachments import Attachment
from app.state.chat import Notice
from app.system.awake import Awake
from app.system.file_manager import show_in_folder
from app.system.translation import tr
from app.system.windows_shell import taskbar_button
from app.tool_server_wiring import connect_tool_servers
from app.tool_wiring import connect_calls, connect_section
from app.transfer_dialogs import connect_transfer, export_all
from app.ui.comparison.values import default_choices
from app.ui.file_dialogs import choose_place
from app.ui.theme.theme import Theme
from app.ui.transcript.message.endings import ending
from app.ui.widgets.activation import Activation
from app.ui.widgets.notification import AnswerNotifier
from app.ui.widgets.tray import ServerTray
from app.ui.widgets.work_shown import WorkShown
from app.ui.window import Window

if TYPE_CHECKING:
    from app.ui.collections.page import CollectionsPage
    from app.ui.connections.page import ConnectionsPage
    from app.ui.library.page import LibraryPage
    from app.ui.panel.adapters import AdapterSection
    from app.ui.panel.content import PanelContent
    from app.ui.presets.page import PresetsPage
    from app.ui.settings.page import Preferences

ZOOM_STEPS = (80, 90, 100, 110, 125, 150, 175, 200)  # percent


def connect(window: Window, controller: Controller, theme: Theme) -> None:
    """Connect the window to the chat controller."""
    sidebar, transcript, states = window.sidebar, window.transcript, window.panel.states
    composer = window.composer
    refused: Content | None = None  # a message that could not be sent
    refused_edit: tuple[int, Parts] | None = None

    def send(content: Content, left: Parts = ()) -> None:
        nonlocal refused
        waits = controller.state.busy
        composer.set_text("")
        refused = None
        if not controller.send(content, left):
            composer.set_text(left or content)
            refused = content
            window.chat.flush_draft()
        elif not waits:
            composer.set_text(left)
            transcript.jump_to_end()

    def send_counted() -> None:
        """Send a message again whose length was not known, unless it is another one now."""
        editing = transcript.editing
        if editing.editor is not None and (
            refused_edit == (editing.message_id, editing.editor.parts())
        ):
            editing.editor.submit()
        elif composer.parts() == refused:
            composer.submit()

    def suggest(text: str) -> None:
        """Send a suggestion; what was typed stays in the field."""
        composer.end_composition()
        send(text, composer.parts())

    def edit(message_id: int, parts: Parts) -> None:
        nonlocal refused_edit
        refused_edit = None
        if not controller.edit(message_id, parts):
            refused_edit = message_id, parts
            transcript.editing.keep(message_id, parts)
            transcript.edit_message(message_id)

    def take_back(number: int) -> None:
        """Put a waiting message into the field, before what is typed there."""
        parts = controller.outbox.parts(number)
        controller.attachments.put_back(parts)
        composer.put_before(without_files_and_images(parts))
        window.chat.flush_draft()  # first: a crash in between must not lose the message
        controller.outbox.remove(number)
        composer.setFocus()

    def next_theme() -> None:
        choice = theme.next_choice()
        theme.choose(choice)
        controller.change_settings(theme=choice)

    def act(kind: str) -> None:
        if kind in ("model", MODEL_NOTICE):
            window.open_picker()
        elif kind == EXPORTED_NOTICE:
            show_in_folder(controller.transfer.exported)
        elif kind == SAVED_NOTICE:
            show_in_folder(controller.rewritten.saved)
        elif kind == OPTIONS_NOTICE:
            window.open_panel("format")
        elif kind == NEWER_NOTICE:
            export_all(window, controller, ExportFormat.JSON)
        elif kind == OTHER_NOTICE:
            window.quit()
        elif kind in (UPDATE_NOTICE, NEWS_NOTICE):
            controller.close_notice(kind)
            page = window.preferences.open()
            page.show_notes() if kind == NEWS_NOTICE else page.show_updates()
        elif kind == SERVED_NOTICE:
            controller.network.served_answers.do_now()
        else:
            controller.act_on_notice(kind)

    def zoom(steps: int) -> None:
        """Go to the next step of the text size, or back to the normal one."""
        now = controller.settings.zoom
        up = [step for step in ZOOM_STEPS if step > now]
        down = [step for step in ZOOM_STEPS if step < now]
        wanted = up[:1] if steps > 0 else down[-1:]
        controller.change_settings(zoom=(wanted or [now])[0] if steps else 100)

    def show_zoom() -> None:
        window.set_zoom(controller.settings.zoom)

    def keep_place(geometry: str) -> None:
        controller.change_settings(window_geometry=geometry)

    def keep_sidebar(wanted: bool) -> None:
        controller.change_settings(sidebar_open=wanted)

    def answer_again(message_id: int, how: AnswerAgain) -> None:
        if how is AnswerAgain.OTHER_MODEL:
            window.choose_model_for(message_id)
        else:
            controller.regenerate(message_id, how)

    def ask_comparison(message_id: int) -> None:
        chat_model = controller.state.settings(controller.state.current).model
        own = chat_model or controller.state.model.model
        app_settings = controller.library.defaults.settings_for(local_path(own))
        offered = controller.state.capabilities.adapters
        stack = [entry.used for entry in states.adapters.stack]
        saved = states.adapters.mixes.items()
        mixes = {name: tuple(entry.used for entry in mix) for name, mix in saved}
        chat = controller.state.settings(controller.state.current)
        shown = states.chat_settings.shown
        used, usually = chat.applied(shown.usual), chat.thinks(thinking(app_settings))
        models = controller.chat_models.offered(own)
        name = next((name for model, name in models if model == own), "")
        choices = default_choices(stack if offered else (), used, usually, own, name)
        window.cards.open_comparison(
            message_id,
            choices,
            mixes if offered else {},
            thinks=shown.can_think,
            models=models,
            capabilities=controller.engines.capabilities,
        )

    def compare_last() -> None:
        messages = controller.state.messages
        if messages and not controller.state.busy:
            ask_comparison(messages[-1].id)

    def compare(message_id: int, first: GenerationSettings, second: GenerationSettings) -> None:
        controller.compare(message_id, first, second)
        shown = controller.state.messages[-1].id
        other = controller.state.compared.get(shown)
        if other is not None:
            transcript.expect({shown: first, other.id: second})
        transcript.jump_to_end()

    def wire_preferences(page: Preferences) -> None:
        connect_preferences(page, controller, window, theme)

    def refuse_file(sentence: str) -> None:
        controller.state.set_notice(OPTIONS_NOTICE, Notice(sentence))

    def wire_panel(content: PanelContent) -> None:
        content.refused.connect(refuse_file)
        content.instructions.typed.connect(controller.chat_settings.token_count.count)
        content.adapters.compare_requested.connect(compare_last)
        content.model.elsewhere_requested.connect(window.open_engines)
        content.documents.manage_requested.connect(window.collections.open)
        connect_section(content.tools, window, controller)
        connect_adapters(content.adapters, controller.adapters)

    connect_calls(window, controller)
    window.panel.made.connect(wire_panel)
    window.panel.opened.connect(controller.adapters.find_missing)
    window.panel.changed.connect(controller.chat_settings.change_shown)
    window.panel.left.connect(controller.chat_settings.change)
    window.files_dropped.connect(controller.opening.open)
    composer.submitted.connect(controller.opening.forget)
    composer.typing.connect(controller.last_chat.stay)
    composer.submitted.connect(send)
    controller.attachments.state.counted.connect(send_counted)
    composer.stopped.connect(controller.stop)
    composer.typed.connect(controller.token_count.count)
    composer.typed.connect(controller.fit.type)
    window.chat.empty_view.suggested.connect(suggest)
    window.chat.draft_flushed.connect(controller.drafts.keep)
    window.chat.waiting.send_requested.connect(controller.outbox.send_now)
    window.chat.waiting.remove_requested.connect(controller.outbox.remove)
    window.chat.waiting.edit_requested.connect(take_back)

    window.top_bar.new_button.clicked.connect(lambda: controller.new_conversation())
    sidebar.new_requested.connect(controller.new_conversation)
    sidebar.opened.connect(controller.open_conversation)
    sidebar.opened.connect(window.close_page)  # also for the conversation already shown
    sidebar.result_opened.connect(controller.navigation.open_found)
    sidebar.result_opened.connect(window.close_page)
    sidebar.renamed.connect(controller.conversations.rename)
    window.top_bar.title.renamed.connect(controller.conversations.rename)
    sidebar.delete_requested.connect(controller.deletions.delete)
    sidebar.stop_requested.connect(controller.stop_in)
    sidebar.undo_requested.connect(controller.deletions.undo)
    window.undo_requested.connect(controller.deletions.undo)
    window.restore_requested.connect(controller.deletions.restore)
    window.remove_requested.connect(controller.deletions.remove)
    sidebar.searched.connect(controller.conversations.search)

    connect_folders(window, controller)
    connect_files(window, controller)

    def save_rewritten(message: int) -> None:
        start = Path.home() / controller.rewritten.name(message)
        choose_place(window, start, partial(controller.rewritten.save, message))

    transcript.save_requested.connect(save_rewritten)
    transcript.fork_requested.connect(controller.copies.fork)
    composer.prompt_saved.connect(controller.snippets.add)
    window.prompts.changed.connect(controller.snippets.change)
    window.prompts.deleted.connect(controller.snippets.delete)
    window.prompts.restore_requested.connect(controller.snippets.restore)
    transcript.speech_requested.connect(controller.reading.toggle)
    transcript.regenerate_requested.connect(answer_again)
    transcript.compare_requested.connect(ask_comparison)
    window.cards.comparison_requested.connect(compare)
    transcript.keep_requested.connect(controller.keep)
    transcript.stop_requested.connect(controller.stop_answer)
    transcript.reopen_requested.connect(controller.reopen_comparison)
    transcript.delete_requested.connect(controller.deletions.delete_message)
    transcript.adapters_requested.connect(window.open_adapters)
    transcript.edit_submitted.connect(edit)
    transcript.instructions_requested.connect(partial(window.open_panel, "instructions"))
    transcript.continue_requested.connect(controller.continue_answer)
    retrieval = controller.retrieval
    transcript.pin_requested.connect(retrieval.pin)
    transcript.strike_requested.connect(retrieval.toggle)
    transcript.passages_changed.connect(retrieval.answer_with)
    transcript.more_passages_requested.connect(retrieval.answer_with_more)
    transcript.no_passages_requested.connect(retrieval.answer_without)
    transcript.sibling_requested.connect(controller.navigation.show_sibling)
    window.chat.regenerate_requested.connect(controller.regenerate)

    window.model_chosen.connect(controller.model_use.choose)
    window.other_model_chosen.connect(controller.regenerate_with)
    window.chat.model_line.use_loaded_requested.connect(controller.model_use.use_loaded)
    window.chat.model_line.choose_requested.connect(window.open_picker)
    window.picker.opened.connect(controller.library.picker_opened)
    window.picker.opened.connect(controller.network.connections.test_all)
    window.picker.unload_requested.connect(controller.unload_model)
    window.picker.cancel_requested.connect(controller.model_use.cancel_load)
    window.chat.status_line.title_cancelled.connect(controller.titles.cancel)
    window.chat.status_line.cancel_requested.connect(controller.model_use.cancel_load)
    window.banners.closed.connect(controller.close_notice)
    window.banners.acted.connect(act)

    connect_library(controller.library, controller, window)
    connect_transfer(window, controller)
    window.preferences.made.connect(wire_preferences)
    connect_presets(window, controller)
    connect_collections(window, controller)
    connect_network(window, controller)
    connect_tool_servers(window, controller)

    window.performance_opened.connect(controller.performance.refresh)
    window.sidebar_toggled.connect(keep_sidebar)
    window.placement.changed.connect(keep_place)
    window.zoom_requested.connect(zoom)
    controller.settings_changed.connect(show_zoom)
    window.theme_requested.connect(next_theme)
    AnswerNotifier(
        controller.state,
        window,
        lambda: controller.settings.notify == "on",
        window.come_forward,
        ending,
    )
    downloads = controller.library.state, controller.gpu_support.state, controller.updates.state
    WorkShown(controller.state, *downloads, window, Awake(), taskbar_button())


def connect_files(window: Window, controller: Controller) -> None:
    """Connect what is seen of attached files to the controller."""
    composer, editing, attaching = window.composer, window.transcript.editing, window.attaching
    files, fit_line = controller.attachments, window.chat.fit_line
    window.transcript.thumbnails.wanted.connect(controller.pictures.read)
    window.prompt_list.parts_wanted.connect(files.read_by_parts)

    def attach_in_editor(message: int, paths: list[Path]) -> None:
        files.attach(paths, message)

    def attach_image_in_editor(message: int, content: bytes) -> None:
        files.attach_image(content, message)

    def restore_in_editor(message: int, removed: Attachment, place: int) -> None:
        files.undo_remove(removed, place, message)

    def read_passages(ids: list[int]) -> None:
        for each in ids:
            files.set_reads(each, Reads.PASSAGES)

    def read_by_parts() -> None:
        if composer.editor.text().strip():  # that is asked of each part
            files.read_by_parts(Reads.SUMMARY)
        else:
            window.prompt_list.offer_all()

    def offer_files() -> None:
        here = files.known_files(controller.state.current)
        attaching.list.show_files(here)
        files.recent_files(partial(attaching.list.show_files, here))

    Activation(window).activated.connect(files.check_changed)  # others may have changed them
    composer.files_pasted.connect(controller.opening.open)
    composer.image_pasted.connect(files.attach_image)
    composer.file_restored.connect(files.undo_remove)
    for source in (composer, editing):
        source.file_removed.connect(files.remove)
        source.file_retried.connect(files.retry)
        source.file_reloaded.connect(files.reload)
    editing.files_pasted.connect(attach_in_editor)
    editing.image_pasted.connect(attach_image_in_editor)
    editing.file_restored.connect(restore_in_editor)
    editing.began.connect(files.begin_edit)
    for cancel in (files.cancel_edit, controller.fit.cancel_edit):
        editing.cancelled.connect(cancel)
    attaching.attached.connect(files.attach)
    attaching.folder_requested.connect(show_in_folder)
    regions, screenshots = attaching.regions, controller.screenshots
    attaching.screenshot_requested.connect(screenshots.take)
    screenshots.window_asked.connect(regions.open)
    regions.taken.connect(screenshots.attach)
    regions.failed.connect(screenshots.fail)
    attaching.document_requested.connect(controller.passage_documents.open)
    controller.passage_documents.opened.connect(attaching.show_passage)
    attaching.viewer.pages_chosen.connect(files.set_pages)
    attaching.viewer.reads_chosen.connect(files.set_reads)
    document, of_document = attaching.viewer, controller.document_pictures
    viewer, pictures = attaching.pictures, controller.pictures
    document.page_pictures_requested.connect(of_document.attach)
    document.pictures_attached.connect(of_document.attach_embedded)
    document.pictures_listed.connect(pictures.list_embedded)
    document.pictures_wanted.connect(pictures.read_embedded)
    viewer.wanted.connect(pictures.read)
    viewer.save_requested.connect(pictures.save)
    viewer.marked_save_requested.connect(pictures.save_made)
    attaching.kept_save_requested.connect(pictures.save)
    viewer.detail_chosen.connect(files.set_detail)
    viewer.described.connect(files.describe)
    viewer.details_wanted.connect(controller.detail_counts.count)
    attaching.list.wanted.connect(offer_files)
    for chosen in (attaching.list.chosen, window.chat.changed_line.attach_requested):
        chosen.connect(files.attach_known)
    fit_line.detail_requested.connect(files.set_detail)
    fit_line.passages_requested.connect(read_passages)
    fit_line.parts_requested.connect(read_by_parts)
    window.chat.search_model_line.get_requested.connect(controller.encoder.get)
    fit_line.longer_requested.connect(controller.fit.use_longer_context)
    fit_line.model_requested.connect(window.open_picker)
    controller.models_wanted.connect(window.library.open)
    fit_line.model_chosen.connect(controller.fit.use_model)


def connect_folders(window: Window, controller: Controller) -> None:
    """Connect the places of chats in the list to the controller."""
    sidebar, menu, folders = window.sidebar, window.sidebar.menu, controller.folders

    def add_folder(parent: int | None, conversations: list[int]) -> None:
        """Create a folder, and let the user name it."""
        sidebar.rename_folder(folders.create(tr("New folder"), parent, conversations))

    def keep_closed(closed: list[int]) -> None:
        controller.change_settings(closed_folders=" ".join(map(str, closed)))

    sidebar.folders_deleted.connect(controller.deletions.delete)
    sidebar.folder_requested.connect(add_folder)
    sidebar.folder_renamed.connect(folders.rename)
    sidebar.folder_toggled.connect(keep_closed)
    for source in (sidebar.list, menu):
        source.moved.connect(folders.move)
        source.folder_moved.connect(folders.place)
    menu.pinned.connect(folders.pin)
    menu.archived.connect(folders.archive)
    menu.duplicate_requested.connect(controller.copies.duplicate)
    window.folder.changed.connect(folders.change)
    window.chat.empty_view.folder_left.connect(partial(controller.state.set_new_folder, None))
    closed = controller.settings.closed_folders.split()
    sidebar.set_closed([int(number) for number in closed if number.isdecimal()])


def connect_library(library: Library, controller: Controller, window: Window) -> None:
    """Connect the models page to the library, and its load requests to the controller."""

    def use(path: Path) -> None:
        controller.load_model(path)
        window.close_page()

    def show_devices() -> None:
        library.state.set_devices(controller.state.devices)

    controller.state.devices_changed.connect(show_devices)
    library.use_requested.connect(use)
    library.better_model.use_requested.connect(controller.load_model)
    for offer in (window.chat.empty_view.better, window.chat.download_line):
        offer.accepted.connect(library.better_model.accept)
        offer.cancelled.connect(library.better_model.cancel)
        offer.put_away.connect(library.better_model.put_away)
        offer.dismissed.connect(lambda: controller.change_settings(offer_better_model=False))
    library.unload_requested.connect(controller.unload_model)

    window.models_restored.connect(library.trash.restore)
    window.models_removed.connect(library.trash.remove)
    window.library.made.connect(partial(connect_models, library, controller, window, use))


def connect_models(
    library: Library,
    controller: Controller,
    window: Window,
    use: Callable[[Path], None],
    page: LibraryPage,
) -> None:
    """Connect the models page, when it is made; `use` loads a model and shows the chat."""

    def search_with(path: Path) -> None:
        controller.change_settings(embedding_model=str(path))

    page.use_requested.connect(use)
    page.embedder_chosen.connect(search_with)
    page.cancel_load_requested.connect(controller.model_use.cancel_load)
    page.unload_requested.connect(controller.unload_model)
    page.open_file_requested.connect(window.open_file)
    page.opened.connect(library.opened)
    page.opened.connect(controller.encoder.look)
    page.seen.connect(library.model_index.inspect_files)
    page.offers_seen.connect(library.hub.read_beginnings)
    page.download_requested.connect(library.download)
    page.encoder_chosen.connect(library.choose_encoder)
    page.pictures_requested.connect(library.add_pictures)
    page.pause_requested.connect(library.downloads.pause)
    page.resume_requested.connect(library.downloads.resume)
    page.cancel_requested.connect(library.cancel)
    page.retry_requested.connect(library.downloads.retry)
    page.delete_requested.connect(library.trash.delete)
    page.unlink_requested.connect(library.model_index.unlink)
    page.folder_removed.connect(library.model_index.remove_folder)
    page.files_dropped.connect(library.open_files)
    page.searched.connect(library.hub.search)
    page.link_submitted.connect(library.hub.submit_link)
    page.repository_opened.connect(library.hub.open)
    page.defaults_opened.connect(library.defaults.show)
    page.defaults_changed.connect(library.defaults.change)
    page.defaults_closed.connect(library.defaults.close)
    page.line_acted.connect(library.act_on_line)
    page.line_closed.connect(library.close_line)
    page.show_folder_requested.connect(show_in_folder)
    page.add_folder_requested.connect(lambda: ask_for_folder(page, library))


def ask_for_folder(page: LibraryPage, library: Library) -> None:
    """Open a dialog to choose a models folder; returns at once."""
    dialog = QFileDialog(page, tr("Add a folder of models"), str(Path.home()))
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)

    def add(name: str) -> None:
        library.model_index.add_folder(Path(name))

    dialog.fileSelected.connect(add)
    dialog.finished.connect(dialog.deleteLater)
    dialog.open()


def connect_presets(window: Window, controller: Controller) -> None:
    """Connect the menu, the chips and the page of presets to their controller."""
    presets = controller.presets

    def start(id: int) -> None:
        presets.start(id)
        window.close_page()

    def begin_with(id: int) -> None:
        controller.change_settings(new_chat_preset=id)

    def wire(page: PresetsPage) -> None:
        page.changed.connect(presets.save)
        page.started.connect(start)
        page.add_requested.connect(lambda: page.show_preset(presets.add()))
        page.chat_saved.connect(lambda: page.show_preset(presets.save_chat()))
        page.taken.connect(presets.take_from_chat)
        page.deleted.connect(presets.delete)
        page.undone.connect(presets.undo)
        page.restore_requested.connect(presets.restore_built_in)
        page.new_chat_chosen.connect(begin_with)
        page.model_chosen.connect(presets.set_for_model)
        page.files_chosen.connect(presets.open)
        page.exported.connect(presets.export)

    window.presets.made.connect(wire)
    window.preset_menu.started.connect(start)
    window.prompt_list.preset_chosen.connect(presets.use)
    window.preset_menu.applied.connect(presets.use)
    window.preset_menu.save_requested.connect(
        lambda: window.presets.open().show_preset(presets.save_chat())
    )
    window.chat.empty_view.chips.chosen.connect(presets.toggle)


def connect_collections(window: Window, controller: Controller) -> None:
    """Connect the page of collections, and what switches them in a chat, to the controller."""
    collections, choices = controller.collections, controller.collection_choices
    use = controller.chat_settings.use_collection

    def use_from_page(id: int, used: bool) -> None:
        use(id, used)
        if used:
            window.close_page()

    def wire(page: CollectionsPage) -> None:
        def add(paths: list[Path]) -> None:
            page.show_collection(choices.make(paths))

        page.added.connect(add)
        page.sources_added.connect(choices.extend)
        page.source_removed.connect(collections.remove_source)
        page.let_go.connect(collections.let_go)
        page.use_switched.connect(use_from_page)
        page.folder_requested.connect(show_in_folder)
        page.renamed.connect(collections.rename)
        page.deleted.connect(collections.delete)
        page.undone.connect(collections.restore)
        page.look_requested.connect(collections.look_now)

    def show(id: int) -> None:
        window.collections.open().show_collection(id)

    composer, offered = window.composer, window.attaching.list
    window.collections.made.connect(wire)
    composer.collection_switched.connect(use)
    composer.collection_opened.connect(show)
    offered.collection_chosen.connect(use)
    for source in (offered.manage_requested, composer.collections_requested):
        source.connect(window.collections.open)


def connect_network(window: Window, controller: Controller) -> None:
    """Connect the page of connections and the tray symbol to their controllers."""
    network, server = controller.network, controller.network.serving
    connections, state = network.connections, server.state
    tray = ServerTray(window, window.windowIcon(), window.come_forward, window.quit)

    def change(name: str, value: object) -> None:
        controller.change_settings(**{name: value})

    def begin_chat(connection: str) -> None:
        """Show a new chat with the only model of a connection, or offer its models."""
        served = controller.state.served
        found = [each for each in served if each.model.connection == connection]
        controller.new_conversation()
        window.close_page()
        if len(found) == 1:
            controller.model_use.choose(found[0].model)
        elif found:
            window.open_picker()
            window.picker.search.setText(found[0].server)

    def wire(page: ConnectionsPage) -> None:
        def show_settings() -> None:
            page.show_settings(controller.settings)

        def watch() -> None:
            state.set(has_tray=tray.is_available)
            network.watch(True)

        page.changed.connect(change)
        page.opened.connect(watch)
        page.hidden.connect(partial(network.watch, False))
        page.server.key_requested.connect(server.make_key)
        page.engines.saved.connect(connections.save)
        page.engines.edit_closed.connect(connections.close_edit)
        page.engines.deleted.connect(connections.delete)
        page.engines.undone.connect(controller.deletions.undo)
        page.engines.tested.connect(connections.test)
        page.engines.chat_requested.connect(begin_chat)
        page.engines.search_requested.connect(connections.find)
        page.contacts.cleared.connect(connections.clear_contacts)
        controller.settings_changed.connect(show_settings)

    def show_tray() -> None:
        tray.show_server(state.status, on=server.stays_on_close)
        if window.was_closed and not server.stays_on_close:
            window.come_forward()  # nothing else shows that the app still runs

    def come_back() -> None:
        if window.was_closed:
            window.come_forward()

    def ask_in_window() -> None:
        if "quit" in controller.state.notices:
            come_back()

    def stays_on_close() -> bool:
        """Whether closing the window leaves the app running, with its tray symbol."""
        show_tray()
        return server.stays_on_close and tray.is_shown

    window.connections.made.connect(wire)
    window.stays_on_close = stays_on_close
    tray.lost.connect(come_back)
    for unloads in (window.picker.unload_requested, controller.library.unload_requested):
        unloads.connect(network.served_answers.on_unload)
    state.changed.connect(show_tray)
    controller.settings_changed.connect(show_tray)
    controller.state.notices_changed.connect(ask_in_window)


def connect_adapters(panel: AdapterSection, adapters: Adapters) -> None:
    """Connect the section of the adapters to its controller."""
    panel.added.connect(adapters.add)
    panel.removed.connect(adapters.remove)
    panel.cleared.connect(adapters.clear)
    panel.switched.connect(adapters.set_on)
    panel.strength_changed.connect(adapters.set_strength)
    panel.strength_settled.connect(adapters.flush)
    panel.moved.connect(adapters.move)
    panel.mix_saved.connect(adapters.save_mix)
    panel.mix_chosen.connect(adapters.apply_mix)
    panel.mix_deleted.connect(adapters.delete_mix)
