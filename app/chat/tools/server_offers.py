"""Resources and prompts of servers of tools, as files and texts of the message that is written."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from app.chat.tools.servers import ToolServers
from app.domain.forms import FormField
from app.domain.tool_servers import FormQuestion, Offered, ServerRow
from app.domain.visible_text import on_one_line
from app.state.chat import Notice, State
from app.state.tool_servers import ToolServersState
from app.system.translation import tr

if TYPE_CHECKING:
    from app.tools.mcp.hooks import ResourceContent

NOTICE = "server resource"
_MOST_TEXT = 4_000_000  # letters of a resource
_LONGEST_NAME = 120
_PLACE = re.compile(r"\{(\+?)([A-Za-z0-9_.]+)\}")  # RFC 6570, levels 1 and 2
_KINDS = (".md", ".txt", ".json", ".csv", ".html", ".xml")  # of texts, which names may end with


@dataclass(frozen=True, slots=True)
class AttachedResource:
    """What was read of a resource: a text, or the file of a picture."""

    name: str
    text: str = ""
    picture: bytes = b""


class ServerOffers(QObject):
    """Fetches what the user chose; every method is called on the GUI thread."""

    prompt_came = Signal(str)  # its text
    resource_came = Signal(object)  # AttachedResource

    def __init__(
        self, state: State, shown: ToolServersState, servers: ToolServers, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._state, self._shown, self._servers = state, shown, servers

    def use_prompt(self, server: str, name: str) -> None:
        """Fetch a prompt of a server, with its arguments from a form if it has any."""
        row, prompt = self._find(server, name, lambda row: row.prompts)
        if row is None or prompt is None:
            return

        def fetch(values: Mapping[str, Any]) -> None:
            texts = {key: str(value) for key, value in values.items()}
            self._servers.run(
                lambda running: running.servers.prompt(server, name, texts),
                self.prompt_came.emit,
                self._fail,
            )

        self._ask(row, prompt, prompt.arguments, fetch)

    def attach(self, server: str, address: str) -> None:
        """Read a resource; a template has its places filled in with a form first."""
        row, resource = self._find(server, address, lambda row: row.resources)
        if row is None or resource is None:
            return
        names = dict.fromkeys(name for _, name in _PLACE.findall(address))
        fields = tuple(FormField(name, name, is_required=True) for name in names)

        def fetch(values: Mapping[str, Any]) -> None:
            def fill(found: re.Match[str]) -> str:
                safe = "/" if found[1] else ""
                return urllib.parse.quote(str(values.get(found[2], "")), safe=safe)

            whole = _PLACE.sub(fill, address) if resource.is_template else address

            def came(contents: Sequence[ResourceContent]) -> None:
                self._attach(row.name, resource, contents)

            self._servers.run(
                lambda running: running.servers.read_resource(server, whole), came, self._fail
            )

        self._ask(row, resource, fields if resource.is_template else (), fetch)

    # --- steps ----------------------------------------------------------------------------------

    def _find(
        self, server: str, id: str, offers: Callable[[ServerRow], Sequence[Offered]]
    ) -> tuple[ServerRow | None, Offered | None]:
        row = self._shown.row(server)
        found = (each for each in (offers(row) if row is not None else ()) if each.id == id)
        return row, next(found, None)

    def _ask(
        self,
        row: ServerRow,
        offered: Offered,
        fields: tuple[FormField, ...],
        then: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """Have the user fill fields in, if there are any."""
        if not fields:
            then({})
            return
        questions = self._servers.questions
        text = "\n".join(filter(None, (offered.title, offered.about)))
        question = FormQuestion(questions.next_number(), row.name, text, fields, is_own=True)
        questions.add(question, lambda values: then(values) if values is not None else None)

    def _attach(self, server: str, resource: Offered, contents: Sequence[ResourceContent]) -> None:
        """Give the message what was read; a folder has several contents."""
        for each in contents:
            last = urllib.parse.unquote(each.uri.rstrip("/").rpartition("/")[2])
            name = on_one_line(last or resource.title or server)[-_LONGEST_NAME:]
            if each.text:
                name = name if name.lower().endswith(_KINDS) else f"{name}.txt"
                self.resource_came.emit(AttachedResource(name, text=each.text[:_MOST_TEXT]))
            elif each.data and each.media_type.startswith("image/"):
                self.resource_came.emit(AttachedResource(name, picture=each.data))
            else:
                self._fail(
                    tr("“{name}” is neither a text nor a picture, and was not attached.", name=name)
                )

    def _fail(self, problem: str) -> None:
        self._state.set_notice(NOTICE, Notice(problem))
