"""A call of a tool as its card shows it: its state in words, and the blocks of the open card.

All texts are of models and servers: they are shown as they are, without Markdown, links and
pictures, and with escapes for characters that nobody sees.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

from app.domain.builtin_words import title_of
from app.domain.parts import CallEnd, ToolCallPart, ToolResultPart
from app.domain.tool_activity import ToolActivity
from app.domain.tool_words import (
    allowed_sentence,
    argument_list,
    cut_sentence,
    end_sentence,
    is_short,
    pretty_json,
    read_arguments,
    result_and_language,
    result_words,
    seconds_words,
    short_arguments,
)
from app.domain.visible_text import escaped, on_one_line, written_out
from app.markdown.blocks import Block, Code, Paragraph, Place, Run, runs_of
from app.state.tools import CallPhase, LiveCall
from app.system.translation import isolated, listed, sentences, tr
from app.ui.blocks.call_foot import CallFoot
from app.ui.transcript.message.kept_files import KeptFiles, kept_files

if TYPE_CHECKING:
    from app.domain.tools import ToolSpec

_KEPT = 1024  # calls whose blocks are kept
_OUTPUT_LINES = 200  # the last ones of a running call
# Colours and cursor movements of terminals.
_CONTROLS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


class CallLook(Enum):
    """What a call looks like."""

    WRITING = "writing"  # the model writes its arguments
    NEXT = "next"  # it is written, and has not begun
    ASKING = "asking"  # it waits for the user's consent
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    DENIED = "denied"
    STOPPED = "stopped"
    REFUSED = "refused"
    LOST = "lost"  # the answer ended without a result of it


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """What is known of the calls of one message besides its parts."""

    tools: Mapping[str, ToolSpec] = field(default_factory=dict[str, "ToolSpec"])  # by name
    live: Mapping[str, LiveCall] = field(default_factory=dict[str, LiveCall])  # by call
    made: Mapping[str, ToolActivity] = field(default_factory=dict[str, ToolActivity])  # by call


NOTHING_KNOWN = KnownCalls()


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A call of a message, with its result or what it does now."""

    part: ToolCallPart | None  # None: there is only a result
    result: ToolResultPart | None = None
    live: LiveCall | None = None
    tool: ToolSpec | None = None  # None: there is no such tool now
    made: ToolActivity | None = None  # of the list of all calls; None: not known
    streaming: bool = False  # its answer is being written
    is_last: bool = False  # of the parts of that answer

    @property
    def id(self) -> str:
        """Within its message."""
        return self.part.call if self.part else self.result.call if self.result else ""

    @property
    def name(self) -> str:
        """As the model wrote it."""
        return self.part.name if self.part else self.result.name if self.result else ""

    @property
    def title(self) -> str:
        """The tool's title, which a built-in one keeps where it is off, or its name."""
        tool = self.live.tool if self.live else self.tool
        title = tool.title if tool else title_of(self.name)
        return on_one_line(title or self.name) or tr("Tool")

    @property
    def server(self) -> str:
        """The name of its MCP server; "": built in, or not known."""
        known = (self.live.tool if self.live else None) or self.made or self.tool
        return on_one_line(known.server) if known else ""

    @property
    def short(self) -> str:
        """Its arguments in a few words."""
        return short_arguments(self.part.arguments) if self.part else ""

    @property
    def look(self) -> CallLook:
        """What it looks like."""
        if self.result is not None:
            ends = {
                CallEnd.DENIED.value: CallLook.DENIED,
                CallEnd.STOPPED.value: CallLook.STOPPED,
                CallEnd.REFUSED.value: CallLook.REFUSED,
            }
            found = CallLook.FAILED if self.result.failed else CallLook.DONE
            return ends.get(self.result.end, found)
        if self.live is not None:
            return CallLook.ASKING if self.live.phase is CallPhase.ASKING else CallLook.RUNNING
        if not self.streaming:
            return CallLook.LOST
        written = self.part is not None and read_arguments(self.part.arguments) is not None
        return CallLook.WRITING if self.is_last and not written else CallLook.NEXT

    @property
    def state(self) -> str:
        """What it does or what became of it, in a few words, with the time that it took."""
        match self.look:
            case CallLook.WRITING:
                return tr("being written")
            case CallLook.NEXT:
                return tr("comes next")
            case CallLook.ASKING:
                return tr("waits for you")
            case CallLook.RUNNING:
                took = time.monotonic() - self.live.began if self.live and self.live.began else 0.0
                seconds = seconds_words(took, whole=True)
                return tr("running {time}", time=seconds) if seconds else tr("running")
            case CallLook.LOST:
                return tr("no result")
            case _:
                assert self.result is not None
                return result_words(self.result)

    @property
    def words(self) -> str:
        """All that the folded card shows, for screen readers."""
        server = tr("of the server {name}", name=self.server) if self.server else ""
        return listed((self.title, server, self.short, self.state, self.file_names))

    def blocks(self) -> list[Block]:
        """The blocks of the open card."""
        return list(_blocks(self))

    def copied_blocks(self) -> list[Block]:
        """Its name, arguments and result, as they are."""
        arguments = pretty_json(self.part.arguments) if self.part else ""
        made: list[Block] = [Paragraph(Place(0, 1), (Run(self.name or self.title, code=True),))]
        if arguments:
            made.append(Code(Place(0, 1), "json", arguments, True))
        if self.result is not None and self.result.text:
            made.append(Code(Place(0, 1), "", self.result.text, True))
        if names := self.file_names:
            made.append(Paragraph(Place(0, 1), (Run(names),)))
        return made

    @property
    def file_names(self) -> str:
        """The names of the files that it returned."""
        return listed([file.name for file in self.result.files]) if self.result else ""


@lru_cache(_KEPT)
def _blocks(call: ShownCall) -> tuple[Block, ...]:
    made: list[Block] = []
    output = call.live.output if call.live else ""
    if call.part is not None:
        made += _arguments(call.part.arguments)
        if call.part.written:
            made.append(_code(escaped(pretty_json(call.part.written)), tr("As the model wrote it")))
    if call.look is CallLook.RUNNING and output.strip():
        made.append(_code(shown_output(output), tr("Output")))
    if call.result is not None and call.result.text:
        text, language = result_and_language(call.result.text)
        made.append(_code(text, tr("Result"), language, wraps=not language))
    if call.result is not None and (files := kept_files(call.result)):
        made.append(files)
    made.append(_foot(call))
    return tuple(_placed(made))


def _arguments(arguments: str) -> list[Block]:
    """Arguments as a list, where they are flat, or as JSON."""
    rows = argument_list(arguments)
    if rows is None:
        text = escaped(pretty_json(arguments))
        return [_code(text, tr("Arguments"), "json")] if text else []
    made: list[Block] = []
    for number, (name, value) in enumerate(rows):
        if is_short(value):
            runs = (Run(name, bold=True), Run(f"  {value}"))
            made.append(Paragraph(Place(0, 1, tight=number > 0), runs))
        else:
            made.append(_code(value, name, wraps="\n" not in value))
    return made


def _foot(call: ShownCall) -> CallFoot:
    """What became of the call, and what can be done with it."""
    words: list[str] = []
    match call.look:
        case CallLook.LOST:
            words.append(tr("The answer ended before this call had a result."))
        case CallLook.WRITING:
            words.append(tr("The model is writing this call."))
        case CallLook.NEXT:
            words.append(tr("It has not begun."))
        case CallLook.ASKING | CallLook.RUNNING:
            pass
        case _:
            assert call.result is not None
            words.append(end_sentence(call.result))
            if not call.result.text and not call.result.end:
                words.append(tr("It returned nothing."))
            words.append(cut_sentence(call.result))
    if call.part is not None and call.part.written:
        words.append(tr("You changed its arguments."))
    words.append(allowed_sentence(call.made.allowed if call.made else None))
    if call.server:
        words.append(tr("It is a tool of the server {name}.", name=isolated(call.server)))
    again = call.part is not None and bool(call.id) and not call.streaming
    return CallFoot(Place(0, 1), (Run(sentences(*words)),), again=again)


def _code(text: str, label: str, language: str = "", *, wraps: bool = False) -> Code:
    return Code(Place(0, 1), language, text.removesuffix("\n"), True, label, wraps)


def _placed(blocks: list[Block]) -> list[Block]:
    """The blocks with the lines that they have in `source_of`."""
    made: list[Block] = []
    line = 0
    for block in blocks:
        end = line + block_text(block).count("\n") + 1
        made.append(replace(block, place=replace(block.place, start=line, end=end)))
        line = end
    return made


def block_text(block: Block) -> str:
    """The text of a block of a card."""
    if isinstance(block, KeptFiles):
        return block.text
    return block.text if isinstance(block, Code) else "".join(run.text for run in runs_of(block))


def shown_output(output: str) -> str:
    """The last lines of what a program prints, as a terminal would show them, without colours."""
    lines = _CONTROLS.sub("", output).replace("\r\n", "\n").rstrip("\n").split("\n")
    shown = (line.rstrip("\r").rpartition("\r")[2] for line in lines[-_OUTPUT_LINES:])
    return written_out("\n".join(shown))
