"""Prompt of a conversation: its turns rendered and tokenized, the oldest left out if need be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from engine.errors import Fault, FaultKind, PromptTooLong, RequestError
from engine.frontend import context_window
from engine.frontend.image_prompt import ImagePlaces, Pictures
from engine.frontend.template import (
    AnswerPrompt,
    ChatTemplate,
    prompt_ids,
    split_thoughts,
    with_begin,
)
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.frontend.tool_formats.formats import ToolFormat
from engine.messages import Blindness, ContextPolicy, ImagePart, Role, Tool, Turn
from engine.vision.source import never

Write = Callable[[ChatTemplate, Sequence[Turn]], AnswerPrompt]  # how turns are rendered


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation as text and token ids; a picture has an id for each of its rows."""

    ids: list[int]
    dropped_turns: int  # left out so that it fits: the first ones after the instructions
    rendered: AnswerPrompt
    tool_format: ToolFormat | None = None  # of the calls in its answer; None: it may have none


class PromptBuilder:
    """Builds prompts for one loaded model."""

    def __init__(
        self,
        template: ChatTemplate,
        tokenizer: Tokenizer,
        context: int,
        pictures: Pictures | None = None,
        blind: Blindness | None = None,
    ) -> None:
        """Without `pictures` turns that have some are refused; `blind` says why, if it is known."""
        self._template = template
        self._tokenizer = tokenizer
        self._context = context
        self._pictures, self._blind = pictures, blind

    def answer(
        self,
        turns: Sequence[Turn],
        policy: ContextPolicy,
        thinking: bool | None,
        *,
        opens_thoughts: bool = False,
        tools: Sequence[Tool] = (),
        variables: Mapping[str, object] | None = None,
        cancelled: Callable[[], bool] = never,
    ) -> Prompt:
        """The prompt for an answer, or for continuing the last turn if it is the assistant's.

        `opens_thoughts`: it begins thoughts, if `thinking` asks for these. `tools` are those that
        the model may call, `variables` are given to the template. `cancelled` is asked while
        pictures are read.
        """
        write = partial(
            ChatTemplate.render_answer,
            enable_thinking=thinking,
            opens_thoughts=opens_thoughts,
            tools=tools,
            variables=variables,
        )
        prompt = self._build(turns, policy, write, cancelled)
        return replace(prompt, tool_format=self._template.tool_format) if tools else prompt

    def conversation(
        self,
        turns: Sequence[Turn],
        policy: ContextPolicy,
        thinking: bool | None = None,
        *,
        tools: Sequence[Tool] = (),
        variables: Mapping[str, object] | None = None,
        cancelled: Callable[[], bool] = never,
    ) -> Prompt:
        """The turns as they are, as they will begin the prompt of the next answer."""

        def write(template: ChatTemplate, turns: Sequence[Turn]) -> AnswerPrompt:
            text = template.render(
                turns,
                add_generation_prompt=False,
                enable_thinking=thinking,
                tools=tools,
                variables=variables,
            )
            return AnswerPrompt(text)

        return self._build(turns, policy, write, cancelled)

    def image_tokens(
        self, images: Sequence[ImagePart], cancelled: Callable[[], bool] = never
    ) -> int:
        """Tokens that pictures have in a prompt; raises EngineError as `answer` does."""
        turn = Turn(Role.USER, tuple(images))
        places = self._read_pictures((turn,), cancelled)
        return 0 if places is None else places.count(turn, self._tokenizer)

    def _build(
        self,
        turns: Sequence[Turn],
        policy: ContextPolicy,
        write: Write,
        cancelled: Callable[[], bool],
    ) -> Prompt:
        context = self._context
        places = self._read_pictures(turns, cancelled)

        def render(turns: Sequence[Turn]) -> tuple[AnswerPrompt, list[int]]:
            if places is not None:
                return self._with_pictures(turns, write, places)
            rendered = write(self._template, turns)
            return rendered, self._ids(rendered.text)

        rendered, ids = render(turns)
        if policy is ContextPolicy.STOP or context_window.fits(len(ids), context):
            return Prompt(ids, 0, rendered)
        omits = self._template.omits_thoughts
        # A continued answer is in the prompt with its reasoning, whatever the template does.
        read = [_read_text(turn, omits_thoughts=omits) for turn in turns[:-1]]
        lengths = [len(self._ids(words)) for words in (*read, turns[-1].text)]
        if places is not None:
            pictured = (places.count(turn, self._tokenizer) for turn in turns)
            lengths = [a + b for a, b in zip(lengths, pictured, strict=True)]
        markup = -(-max(len(ids) - sum(lengths), 0) // len(turns))
        dropped = context_window.dropped_turns(turns, [n + markup for n in lengths], context)
        while True:
            rendered, ids = render(context_window.without(turns, dropped))
            more = context_window.next_start(turns, dropped)
            if len(ids) < context or more is None:
                break
            dropped = more
        if len(ids) >= context:
            raise PromptTooLong(
                f"This message is too long: with the instructions it has {len(ids):,} tokens, and "
                f"the model can take in {context:,}.",
                "Shorten it, or choose a longer context in the model's settings.",
                Fault(FaultKind.MESSAGE_TOO_LONG, context=len(ids), most_context=context),
            )
        return Prompt(ids, dropped, rendered)

    def _read_pictures(
        self, turns: Sequence[Turn], cancelled: Callable[[], bool]
    ) -> ImagePlaces | None:
        """The pictures of turns, read; None: there are none. Raises EngineError."""
        if not any(turn.images for turn in turns):
            return None
        if self._pictures is None:
            blind = self._blind
            raise RequestError(
                f"This model cannot see pictures{f': {blind.sentence}' if blind else '.'}",
                "Leave the picture out, or load a model with a picture encoder (an mmproj file) "
                "beside it.",
                Fault(FaultKind.NO_SIGHT, blind.reason.value if blind else ""),
            )
        last = turns[-1]
        if last.images and last.role is Role.ASSISTANT and not last.calls:
            raise RequestError(
                "An answer with a picture in it cannot be continued.", "Ask for a new one."
            )
        return ImagePlaces(self._pictures.marks, self._pictures.read(turns, cancelled))

    def _with_pictures(
        self, turns: Sequence[Turn], write: Write, places: ImagePlaces
    ) -> tuple[AnswerPrompt, list[int]]:
        """The rendered prompt of turns with pictures, and its ids."""
        assert self._pictures is not None
        template = self._template.with_images(places)
        rendered = write(template, [places.in_words(turn) for turn in turns])
        ids = self._pictures.ids(places.pieces(rendered.text), self._tokenizer)
        shown = replace(rendered, text=places.text(rendered.text))
        return shown, with_begin(self._tokenizer, ids)

    def _ids(self, text: str) -> list[int]:
        return prompt_ids(self._tokenizer, text)


def _read_text(turn: Turn, *, omits_thoughts: bool) -> str:
    """What a prompt has of an earlier turn, for its length."""
    text = split_thoughts(turn)[1] if omits_thoughts else turn.text
    return text + "".join(call.name + call.arguments for call in turn.calls)
