"""List of saved prompts and presets above the message field, opened by "/" in an empty field.

A new chat gets the chosen preset; in another chat its instructions are inserted, as a prompt is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from app.domain.chat import Preset
from app.domain.documents import Reads
from app.domain.language_names import language_names
from app.domain.snippet import Snippet, has_words, matching
from app.domain.variables import resolved
from app.domain.visible_text import on_one_line, written_out
from app.state.states import States
from app.system.translation import tr
from app.ui.chat.composer.composer import Composer
from app.ui.chat.composer.offer_list import Offer, OfferList
from app.ui.widgets.controls import TextButton

_PREVIEW = 120  # characters of a text beside its name
SLASHES = ("/", "\uff0f")  # the second one is of Chinese and Japanese input methods


class PromptList(OfferList):
    """Offers what the text behind the "/" names."""

    parts_wanted = Signal(object)  # the documents are read part by part: a `Reads`
    preset_chosen = Signal(object)  # its id, for the new chat
    server_prompt_chosen = Signal(str, str)  # id of a server of tools, name of a prompt
    manage_requested = Signal()

    def __init__(self, states: States, composer: Composer, parent: QWidget) -> None:
        super().__init__(composer, parent, tr("Saved prompts and presets"))
        self._attachments = states.attachments
        self._chat, self._snippets, self._presets = states.chat, states.snippets, states.presets
        self.manage = TextButton(tr("Manage saved prompts…"), "link")
        self.manage.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.manage.clicked.connect(self._manage)
        self.rows.addWidget(self.manage, 0, Qt.AlignmentFlag.AlignLeading)
        composer.editor.slash_typed.connect(self.open_list)
        self._servers = states.tool_servers
        self._snippets.changed.connect(self.follow)
        self._servers.changed.connect(self.follow)
        self._presets.changed.connect(self.follow)
        self._chat.conversation_changed.connect(self.follow)

    def offer_all(self) -> None:
        """Show all that there is, as if its key was typed."""
        self._composer.replace_text(SLASHES[0])
        self._composer.editor.setFocus()
        self.open_list()

    def _query(self) -> str | None:
        text = self._composer.editor.text()
        return text[1:] if text.startswith(SLASHES) and "\n" not in text else None

    def _has_rest(self, query: str) -> bool:
        return not query

    def _offers(self, query: str) -> Sequence[Offer]:
        begin = _translate_into()
        if query.casefold().startswith(begin.casefold()):
            return self._languages(query[len(begin) :].strip())
        prompts = [
            Offer(_words(each), partial(self._composer.replace_text, each.text), each.text)
            for each in matching(self._snippets.snippets, query)
        ]
        presets = [
            Offer(self._preset_words(each), partial(self._use_preset, each), _text(each))
            for each in self._usable(query)
        ]
        prompts += self._of_servers(query)
        if self._attachments.of(self._chat.current):
            return [*self._built_in(query), *prompts, *presets]
        return [*prompts, *self._built_in(query), *presets]

    def _of_servers(self, query: str) -> list[Offer]:
        """The prompts of servers of tools that run."""
        return [
            Offer(words, partial(self._use_of_server, row.id, each.id), written_out(each.about))
            for row in self._servers.rows
            for each in row.prompts
            if has_words(words := on_one_line(f"{each.title or each.id} · {row.name}"), query)
        ]

    def _use_of_server(self, server: str, name: str) -> None:
        self._composer.replace_text("")
        self.server_prompt_chosen.emit(server, name)

    def _built_in(self, query: str) -> list[Offer]:
        """Prompts for documents that are too long to be read at once."""
        prompts = (
            (
                tr("Summarise a long document, part by part"),
                tr("Summarise this document. Keep names, numbers and conclusions."),
                Reads.SUMMARY,
            ),
            (tr("Translate a document, part by part"), "", Reads.REWRITE),
            (
                tr("Rewrite a document, part by part"),
                tr("Rewrite this document in plain language."),
                Reads.REWRITE,
            ),
            (
                tr("Ask a table: sums, counts and rows are looked up exactly"),
                tr("How many rows does this table have?"),
                Reads.TABLES,
            ),
        )
        return [
            Offer(
                words,
                partial(self._use_for_parts, reads, text) if text else self._choose_language,
                text,
            )
            for words, text, reads in prompts
            if has_words(words, query)
        ]

    def _use_for_parts(self, reads: Reads, text: str) -> None:
        self._composer.replace_text(text)
        if reads is Reads.TABLES:  # an example, to be replaced by what is typed
            self._composer.editor.selectAll()
        self.parts_wanted.emit(reads)

    def _choose_language(self) -> None:
        """Offer languages to translate into; another one can be typed."""
        self._composer.replace_text(f"/{_translate_into()}")
        self.open_list()

    def _languages(self, query: str) -> list[Offer]:
        names = [name for name in language_names() if has_words(name, query)]
        if query and query.casefold() not in map(str.casefold, names):
            names.append(query)
        return [
            Offer(name, partial(self._use_for_parts, Reads.REWRITE, text), text)
            for name in names
            if (text := tr("Translate this document into {language}.", language=name))
        ]

    def _usable(self, query: str) -> list[Preset]:
        """The presets named so that would change something here."""
        is_new, used = self._chat.current is None, self._presets.use.shown
        return [
            each
            for each in self._presets.presets
            if has_words(each.name, query) and (each.id != used if is_new else _text(each).strip())
        ]

    def _preset_words(self, found: Preset) -> str:
        """What becomes of a preset in the shown chat."""
        if self._chat.current is not None:
            words = tr("Insert the instructions of “{name}”", name=found.name)
        else:
            words = tr("Use the preset “{name}”", name=found.name)
        return f"{words} — {found.description}" if found.description else words

    def _use_preset(self, found: Preset) -> None:
        if self._chat.current is not None:  # a message has no variables
            self._composer.replace_text(resolved(_text(found), datetime.now()))
        else:
            self._composer.replace_text("")
            self.preset_chosen.emit(found.id)

    def _manage(self) -> None:
        self.close_list()
        self._composer.replace_text("")
        self.manage_requested.emit()


def _translate_into() -> str:
    """What is typed before the name of a language."""
    return tr("Translate into:") + " "


def _text(found: Preset) -> str:
    return found.settings.instructions or ""


def _words(snippet: Snippet) -> str:
    """The name and the beginning of the text, unless the name is that beginning."""
    begin = " ".join(snippet.text[: 2 * _PREVIEW].split())[:_PREVIEW]
    is_begin = begin.casefold().startswith(snippet.name.rstrip("…").casefold())
    return begin if is_begin else f"{snippet.name} — {begin}"
