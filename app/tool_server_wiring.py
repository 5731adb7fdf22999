"""Connects the page of the servers of tools, and their questions, to their controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.controller import Controller
from app.domain.parts import FilePart
from app.ui.widgets.links import open_link
from app.ui.window import Window

if TYPE_CHECKING:
    from app.chat.tools.server_offers import AttachedResource
    from app.ui.panel.content import PanelContent
    from app.ui.tools.questions import QuestionsView
    from app.ui.tools.servers import ServersPage


def connect_tool_servers(window: Window, controller: Controller) -> None:
    """Connect what is made when it is first shown."""
    tools, composer, files = controller.tools, window.composer, controller.attachments

    def wire_page(page: ServersPage) -> None:
        servers = tools.servers
        page.opened.connect(servers.look)
        page.switched.connect(servers.switch)
        page.restarted.connect(servers.restart)
        page.cancelled.connect(servers.cancel)
        page.logged_out.connect(servers.log_out)
        page.with_app_changed.connect(servers.set_with_app)
        page.edit_requested.connect(servers.edit)
        page.saved.connect(servers.save)
        page.edit_closed.connect(servers.close_edit)
        page.deleted.connect(servers.delete)
        page.undone.connect(servers.undo)
        page.file_chosen.connect(servers.import_file)
        page.text_pasted.connect(servers.import_text)
        page.import_ended.connect(servers.end_import)
        page.log_requested.connect(servers.open_log)

    def open_page(number: int, address: str) -> None:
        tools.servers.answer(number, open_link(address))

    def put_prompt(text: str) -> None:
        """Put the text of a prompt into the field, behind what was typed meanwhile."""
        typed = composer.editor.text()
        composer.replace_text(f"{typed}\n\n{text}" if typed.strip() else text)
        composer.setFocus()

    def attach(found: AttachedResource) -> None:
        def content(_texts: object, _cancelled: object) -> bytes:
            return found.picture

        if found.picture:
            files.attach_contents(controller.state.current, [(found.name, content)])
        else:
            part = FilePart(found.name, found.text, size_bytes=len(found.text.encode()))
            files.put_back((part,))

    def wire_questions(view: QuestionsView) -> None:
        view.answered.connect(tools.servers.answer)
        view.page_requested.connect(open_page)
        view.agreed.connect(tools.servers.sampling.write)

    def start_server(id: str, on: bool) -> None:
        tools.servers.switch(id, on=on)

    def wire_panel(content: PanelContent) -> None:
        content.tools.servers_requested.connect(window.servers.open)
        content.tools.stopped.started.connect(start_server)

    def use_prompt(server: str, name: str) -> None:
        tools.server_offers.use_prompt(server, name)

    def attach_resource(server: str, address: str) -> None:
        tools.server_offers.attach(server, address)

    window.prompt_list.server_prompt_chosen.connect(use_prompt)
    window.attaching.resource_requested.connect(attach_resource)
    tools.prompt_came.connect(put_prompt)
    tools.resource_came.connect(attach)
    window.servers.made.connect(wire_page)
    window.questions.made.connect(wire_questions)
    window.panel.made.connect(wire_panel)
