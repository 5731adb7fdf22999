"""The prompt builder: a chat's messages and settings as a request for the model.

This is also where each kind of part becomes text: thoughts with their tags as the model wrote them,
attached texts between blank lines, results of tools as data that cannot end itself. Calls of tools and
their results are turns of their own, which the chat template writes; pictures that a tool returned
are behind its result. Errors are not in a prompt. A model that cannot see pictures reads their names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from itertools import dropwhile, groupby
from pathlib import Path
from typing import TYPE_CHECKING

from app.chat.requests.context_room import answer_room, bytes_per_token, context_of
from app.domain.answer_request import AnswerRequest, OfferedTool, PromptMessage
from app.domain.chat_settings import ResolvedText
from app.domain.message import AnswerAgain, Message
from app.domain.model_ref import ModelRef, Remote
from app.domain.parts import (
    ImagePart,
    Part,
    Parts,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
    images,
    prompt_text,
    unseen_image,
    without_error,
)
from app.domain.passages import as_read, passages_part, text_bytes, without_old
from app.domain.tool_files import result_pictures
from app.domain.tool_rounds import arranged
from app.domain.variables import has_variables, resolved
from app.settings.samplers import SAMPLERS
from app.settings.table import Settings, sampling, thinking
from app.state.chat import State
from app.system.translation import number, tr
from engine import (
    ApplyTemplate,
    Chat,
    ReasoningPart,
    Role,
    Sampling,
    Tool,
    ToolCall,
    ToolResult,
    Turn,
)
from engine import ImagePart as GivenImage
from engine import Part as GivenPart
from engine import TextPart as GivenText

if TYPE_CHECKING:
    from app.domain.tools import ToolSpec

_RESULTS = 256  # results of tools that are kept as models read them: each prompt has all of them
_FEWEST_WORDS = 15  # that an answer is asked to have
GREETED = "You began this conversation with these words:"  # before a greeting
_Piece = tuple[int, Turn]  # the message, and some of its parts
GiveImage = Callable[[ImagePart], GivenImage | None]  # None: the model reads its name


def _no_image(image: ImagePart) -> None:
    """How pictures are given to a model that cannot see them."""


def _no_tools(conversation: int | None) -> tuple[ToolSpec, ...]:
    return ()


def _no_file(sha256: str) -> None:
    """Where no files are kept."""


class PromptBuilder:
    """Reads the settings of a chat, of its folder, of the model and of the app, in this order."""

    def __init__(
        self,
        state: State,
        settings: Callable[[ModelRef | None], Settings],
        now: Callable[[], datetime] = datetime.now,
        *,
        file: Callable[[str], Path | None] = _no_file,
        tools: Callable[[int | None], Sequence[ToolSpec]] = _no_tools,
    ) -> None:
        """`settings` are those of a model, of None: the one in use; `now` is the local time, for
        variables. `file` finds the file of a picture by its hash. `tools` are those that the model
        of a chat may call.
        """
        self._tools = tools
        self._state = state
        self._settings = settings
        self._now = now
        self._file = file

    def usual_instructions(self, conversation: int | None) -> str:
        """Default instructions of a chat: its folder's, or else those of the app's settings."""
        found = self._state.folder_instructions(conversation)
        return self._settings(None).system_prompt if found is None else found

    def instructions(self, conversation: int | None) -> str:
        """The instructions of a chat, with the variables that were replaced for it."""
        return self.resolved(conversation).text

    def resolved(self, conversation: int | None) -> ResolvedText:
        """The instructions as they are typed, and with their variables replaced.

        The values that were stored for the chat stay until another text is typed.
        """
        settings = self._state.settings(conversation)
        text = settings.instructions
        text = self.usual_instructions(conversation) if text is None else text
        if text == settings.resolved.source:
            return settings.resolved
        return ResolvedText(text, resolved(text, self._now()) if has_variables(text) else text)

    def usual_sampling(self, model: ModelRef | None = None) -> Sampling:
        """The sampling by the settings and a model, None: the one in use."""
        loaded = self._state.model.loaded if self._state.has_in_use(model) else None
        return sampling(self._settings(model), loaded.sampling if loaded else None)

    def left_to_server(self, model: ModelRef | None) -> frozenset[str]:
        """The samplers whose values are not sent where a chat does not change them."""
        if not isinstance(model, Remote):
            return frozenset()
        return frozenset(SAMPLERS) - self._own(self._settings(None)).keys() - {"seed"}

    @staticmethod
    def _own(app: Settings) -> dict[str, float]:
        """The samplers that the user has changed in the settings."""
        return {name: getattr(app, name) for name in app.own_sampling.split() if name in SAMPLERS}

    def tools(self, conversation: int | None) -> tuple[Tool, ...]:
        """The tools that the model of a chat may call."""
        offered = self._tools(conversation)
        return tuple(Tool(each.name, each.description, each.schema) for each in offered)

    def turns(self, conversation: int | None, messages: Sequence[Message]) -> tuple[Turn, ...]:
        """Prompt turns of a branch of a chat, with its instructions."""
        fitting, system = self._fitting(conversation, messages)[0], self.instructions(conversation)
        if self.sees(conversation):
            return turns_of(fitting, system, self.given)
        asked = next((each for each in reversed(messages) if each.role is Role.USER), None)
        new = images(asked.parts) if asked else ()  # which the engine refuses in a sentence
        return turns_of(fitting, system, lambda one: self.given(one) if one in new else None)

    def sees(self, conversation: int | None) -> bool:
        """Whether the model of a chat sees pictures, as far as that is known."""
        model, loaded = self._state.settings(conversation).model, self._state.model.loaded
        is_loaded = loaded is not None and self._state.has_in_use(model)
        return loaded is None or not is_loaded or loaded.encoder is not None

    def given(self, image: ImagePart) -> GivenImage | None:
        """A picture as the engine takes it; None: its file is not there any more."""
        path = self._file(image.sha256) if image.sha256 else None
        return (
            None
            if path is None
            else GivenImage(path, image.detail, image.description or image.name)
        )

    def _fitting(
        self, conversation: int | None, messages: Sequence[Message]
    ) -> tuple[Sequence[Message], frozenset[int]]:
        """A branch with the passages that the model reads, as far as there is room for old ones.

        With the ids of the questions that have lost theirs. Nothing is left out of a branch that
        fits, since each change costs the cached context behind it.
        """
        messages = as_read(messages)
        context = context_of(self._state, conversation)
        if not context or not any(passages_part(each.parts) for each in messages):
            return messages, frozenset()
        size = sum(map(text_bytes, messages)) + len(self.instructions(conversation).encode())
        room = (context - answer_room(context)) * bytes_per_token(messages)
        return without_old(messages, round(size - room)) if size > room else (messages, frozenset())

    def _asked(self, conversation: int, messages: Sequence[Message]) -> Sequence[Message]:
        """What is asked of the model: the messages as they are now, as far as there is room."""
        now = {each.id: each for each in self._state.branches.get(conversation, ())}
        newest = [now.get(each.id, each) for each in messages]
        fitting, left_out = self._fitting(conversation, newest)
        if now.keys() >= {each.id for each in messages}:  # else one of them is not sent yet
            self._state.set_left_out(conversation, left_out)
        return fitting

    def template(self, conversation: int | None, messages: Sequence[Message]) -> ApplyTemplate:
        """The request to count the prompt that answers a branch, and what is cached of it."""
        chat = self._state.settings(conversation)
        thinks = chat.thinks(thinking(self._settings(None)))
        turns = self.turns(conversation, messages)
        tools = self.tools(conversation)
        return ApplyTemplate(turns, thinks, chat.policy, tools, measures_cache=True)

    def command(self, conversation: int, messages: Sequence[Message], extra: str = "") -> Chat:
        """The request to answer a branch, or to continue its last answer.

        `extra` is an instruction for this answer only: it follows the question, so that the cached
        context of the chat before it stays of use.
        """
        app, chat = self._settings(None), self._state.settings(conversation)
        return Chat(
            with_extra(self.turns(conversation, self._asked(conversation, messages)), extra),
            chat.applied(self.usual_sampling()),
            app.max_tokens,
            chat.stop,
            thinking=chat.thinks(thinking(app)),
            thinking_budget=chat.budget,
            policy=chat.policy,
            constraint=chat.constraint,
            tools=self.tools(conversation),
        )

    def request(
        self, conversation: int, messages: Sequence[Message], extra: str = ""
    ) -> AnswerRequest:
        """The same for an engine elsewhere, which is sent only the sampling that the user chose.

        The model and its context are those of the engine, see `RemoteEngines.generate`.
        """
        app, chat = self._settings(None), self._state.settings(conversation)
        return AnswerRequest(
            "",
            prompt_messages(
                self._asked(conversation, messages), self.instructions(conversation), extra
            ),
            self._own(app) | dict(chat.sampling),
            app.max_tokens,
            chat.stop,
            chat.thinks(thinking(app)),
            chat.constraint,
            tuple(
                OfferedTool(each.name, each.description, each.schema)
                for each in self._tools(conversation)
            ),
        )


def prompt_messages(
    messages: Sequence[Message], system: str, extra: str = ""
) -> tuple[PromptMessage, ...]:
    """The messages of a branch with all their parts; see `turns_of` for a greeting."""
    greeting, _ = _greeting(_groups(messages))
    if greeting:
        system = f"{system.rstrip()}\n\n{GREETED}\n{greeting}".lstrip()
        messages = list(dropwhile(lambda each: each.role is Role.ASSISTANT, messages))
    made = [PromptMessage(Role.SYSTEM, (TextPart(system),))] if system.strip() else []
    made += [PromptMessage(each.role, _sent(each.parts)) for each in messages if each.parts]
    at = max((at for at, each in enumerate(made) if each.role is Role.USER), default=-1)
    if extra and at >= 0:
        made[at] = replace(made[at], parts=(*made[at].parts, TextPart(f"\n\n{extra}")))
    return tuple(made)


def _sent(parts: Parts) -> Parts:
    """Parts for an engine elsewhere: results of tools as data that cannot end itself."""

    def sent(part: Part) -> Part:
        match part:
            case ToolResultPart():
                return replace(part, text=result_text(part))
            case ToolCallPart():  # servers refuse a chat in which one is no JSON
                return replace(part, arguments=_an_object(part.arguments))
            case _:
                return part

    return tuple(map(sent, arranged(without_error(parts))))


def turns_of(
    messages: Sequence[Message], system: str, give: GiveImage = _no_image
) -> tuple[Turn, ...]:
    """Prompt turns of a branch: empty turns dropped, consecutive turns of one role merged.

    An answer that failed before its first token leaves two user messages in a row; many chat
    templates refuse that, so they are joined. Many also refuse a first turn by the model, such as
    the greeting of a preset: it is put behind the instructions, where every model reads it.
    """
    greeting, groups = _greeting(_groups(messages, give))
    if greeting:
        system = f"{system.rstrip()}\n\n{GREETED}\n{greeting}".lstrip()
    turns = [Turn(Role.SYSTEM, system)] if system.strip() else []
    return (*turns, *(Turn(group[0][1].role, _content(group)) for group in groups))


def length_instruction(how: AnswerAgain, words: int) -> str:
    """The instruction to answer at another length than an answer of so many words; "" for none."""
    match how:
        case AnswerAgain.SHORTER:
            most = max(words // 2, _FEWEST_WORDS)
            return tr("Answer in at most {count} words.", count=number(most))
        case AnswerAgain.LONGER:
            most = max(words * 2, 2 * _FEWEST_WORDS)
            return tr("Answer in more detail, in about {count} words.", count=number(most))
        case AnswerAgain.SAME | AnswerAgain.OTHER_MODEL:
            return ""


def with_extra(turns: tuple[Turn, ...], extra: str) -> tuple[Turn, ...]:
    """The turns with an instruction after the last question."""
    at = max((at for at, turn in enumerate(turns) if turn.role is Role.USER), default=-1)
    if not extra or at < 0:
        return turns
    content = turns[at].content
    if isinstance(content, str):
        asked = Turn(Role.USER, f"{content}\n\n{extra}")
    else:
        asked = Turn(Role.USER, (*content, GivenText(f"\n\n{extra}")))
    return (*turns[:at], asked, *turns[at + 1 :])


def memory_start(messages: Sequence[Message], dropped_turns: int) -> int | None:
    """Id of the first message that the model reads; None if it reads all of them.

    `dropped_turns` is the engine's count of the turns after the instructions.
    """
    _, groups = _greeting(_groups(messages))
    return groups[dropped_turns][0][0] if 0 < dropped_turns < len(groups) else None


def _greeting(groups: list[list[_Piece]]) -> tuple[str, list[list[_Piece]]]:
    """What the model wrote before the first turn of the user, and the turns from that one on."""
    if len(groups) > 1 and groups[0][0][1].role is Role.ASSISTANT:
        return _text(groups[0]), groups[1:]
    return "", groups


def _text(group: Sequence[_Piece]) -> str:
    return "\n\n".join(turn.text for _, turn in group)


def _content(group: Sequence[_Piece]) -> str | tuple[GivenPart, ...]:
    """The contents of pieces as that of one turn."""
    if all(isinstance(turn.content, str) for _, turn in group):
        return _text(group)
    made: list[GivenPart] = []
    for _, turn in group:
        content = (GivenText(turn.content),) if isinstance(turn.content, str) else turn.content
        parted = made and turn.role is not Role.TOOL
        made += (GivenText("\n\n"), *content) if parted else content
    return tuple(made)


def _groups(messages: Sequence[Message], give: GiveImage = _no_image) -> list[list[_Piece]]:
    """The pieces of the messages that have something to read, those of one turn together."""
    groups: list[list[_Piece]] = []
    for message in messages:
        for turn in _turns(message, give):
            if not (turn.text.strip() or turn.images or turn.calls or turn.results):
                continue
            if groups and groups[-1][0][1].role is turn.role:
                groups[-1].append((message.id, turn))
            else:
                groups.append([(message.id, turn)])
    return groups


def _turns(message: Message, give: GiveImage) -> Iterator[Turn]:
    """The parts of a message as turns: results of tools are read by the model, not written."""
    for is_result, group in groupby(
        arranged(message.parts), lambda part: isinstance(part, ToolResultPart)
    ):
        if not is_result:
            yield _turn(message.role, tuple(group), give)
            continue
        results = [part for part in group if isinstance(part, ToolResultPart)]
        if called := [each for part in results if part.call for each in _result(part, give)]:
            yield Turn(Role.TOOL, tuple(called))
        lost = (part for part in results if not part.call)
        if texts := [f"<tool_response>\n{result_text(part)}\n</tool_response>" for part in lost]:
            yield Turn(Role.USER, "\n".join(texts))


def _result(part: ToolResultPart, give: GiveImage) -> tuple[GivenPart, ...]:
    """A result, with its pictures if the model sees them."""
    given = (give(image) for image in result_pictures(part))
    result = ToolResult(part.call, part.name, result_text(part))
    return (result, *(each for each in given if each is not None))


def _turn(role: Role, parts: Sequence[Part], give: GiveImage) -> Turn:
    """Parts as a turn: a text, or texts, pictures and calls of tools in order."""
    made: list[GivenPart] = []
    run: list[Part] = []
    calls = any(isinstance(part, ToolCallPart) for part in parts)
    for part in parts:
        match part:
            case ToolCallPart():
                arguments = _an_object(part.arguments)
                made += (*_given_text(run), ToolCall(part.call, part.name, arguments))
            case ThoughtPart() if calls:
                made += (*_given_text(run), ReasoningPart(part.text.strip("\n")))
            case ImagePart() if (given := give(part)) is not None:
                made += (*_given_text(run), given)
            case ImagePart():
                run.append(TextPart(unseen_image(part)))
                continue
            case _:
                run.append(part)
                continue
        run = []
    return Turn(role, (*made, *_given_text(run)) if made else prompt_text(run))


@lru_cache(_RESULTS)
def result_text(part: ToolResultPart) -> str:
    """What the model reads of a result: as data, unless it is what this app says."""
    from app.tools.results import shown

    return shown(part.text, part.name, fenced=not part.ours).text


def _an_object(arguments: str) -> str:
    """The arguments of a call as a JSON object, whatever a model wrote."""
    try:
        is_object = isinstance(json.loads(arguments or "{}"), dict)
    except (ValueError, RecursionError):
        is_object = False
    return (arguments or "{}") if is_object else json.dumps({"incomplete": arguments})


def _given_text(parts: Sequence[Part]) -> tuple[GivenText, ...]:
    return (GivenText(text),) if (text := prompt_text(parts)) else ()
