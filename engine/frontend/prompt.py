"""Prompt of a conversation: its turns rendered and tokenized, the oldest left out if need be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from engine.errors import Fault, FaultKind, PromptTooLong
from engine.frontend import context_window
from engine.frontend.template import AnswerPrompt, ChatTemplate, prompt_ids, split_thoughts
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.frontend.tool_formats.formats import ToolFormat
from engine.messages import ContextPolicy, Tool, Turn


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation as text and token ids."""

    ids: list[int]
    dropped_turns: int  # left out so that it fits: the first ones after the instructions
    rendered: AnswerPrompt
    tool_format: ToolFormat | None = None  # of the calls in its answer; None: it may have none


class PromptBuilder:
    """Builds prompts for one loaded model."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer, context: int) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._context = context

    def answer(
        self,
        turns: Sequence[Turn],
        policy: ContextPolicy,
        thinking: bool | None,
        *,
        opens_thoughts: bool = False,
        tools: Sequence[Tool] = (),
        variables: Mapping[str, object] | None = None,
    ) -> Prompt:
        """The prompt for an answer, or for continuing the last turn if it is the assistant's.

        `opens_thoughts`: it begins thoughts, if `thinking` asks for these. `tools` are those that
        the model may call, `variables` are given to the template.
        """
        write = partial(
            self._template.render_answer,
            enable_thinking=thinking,
            opens_thoughts=opens_thoughts,
            tools=tools,
            variables=variables,
        )
        prompt = self._build(turns, policy, write)
        return replace(prompt, tool_format=self._template.tool_format) if tools else prompt

    def conversation(
        self,
        turns: Sequence[Turn],
        policy: ContextPolicy,
        thinking: bool | None = None,
        *,
        tools: Sequence[Tool] = (),
        variables: Mapping[str, object] | None = None,
    ) -> Prompt:
        """The turns as they are, as they will begin the prompt of the next answer."""

        def write(turns: Sequence[Turn]) -> AnswerPrompt:
            text = self._template.render(
                turns,
                add_generation_prompt=False,
                enable_thinking=thinking,
                tools=tools,
                variables=variables,
            )
            return AnswerPrompt(text)

        return self._build(turns, policy, write)

    def _build(
        self,
        turns: Sequence[Turn],
        policy: ContextPolicy,
        render: Callable[[Sequence[Turn]], AnswerPrompt],
    ) -> Prompt:
        context = self._context
        rendered = render(turns)
        ids = self._ids(rendered.text)
        if policy is ContextPolicy.STOP or context_window.fits(len(ids), context):
            return Prompt(ids, 0, rendered)
        omits = self._template.omits_thoughts
        # A continued answer is in the prompt with its reasoning, whatever the template does.
        read = [_read_text(turn, omits_thoughts=omits) for turn in turns[:-1]]
        lengths = [len(self._ids(words)) for words in (*read, turns[-1].text)]
        markup = -(-max(len(ids) - sum(lengths), 0) // len(turns))
        dropped = context_window.dropped_turns(turns, [n + markup for n in lengths], context)
        while True:
            rendered = render(context_window.without(turns, dropped))
            ids = self._ids(rendered.text)
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

    def _ids(self, text: str) -> list[int]:
        return prompt_ids(self._tokenizer, text)


def _read_text(turn: Turn, *, omits_thoughts: bool) -> str:
    """What a prompt has of an earlier turn, for its length."""
    text = split_thoughts(turn)[1] if omits_thoughts else turn.text
    return text + "".join(call.name + call.arguments for call in turn.calls)
