"""Conversation to prompt, by the template the model file carries, or by one of our own.

The template is Jinja written for Hugging Face transformers, so the option set is theirs. It comes
from a stranger: see `engine/chat/sandbox.py`. It is compiled at its first use, so that a model whose
template is broken can still be loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import jinja2

from engine.chat import builtin as builtin_templates
from engine.chat.budget import Budget, Exhausted
from engine.chat.sandbox import Refused, TemplateEnvironment
from engine.errors import TemplateError
from engine.messages import THOUGHT_ENDS, THOUGHT_OPENS, Role, Turn
from engine.tokenizer.tokenizer import Tokenizer

_OTHER_COPY = "Choose another copy of this model, or another model."
_MAX_MESSAGE = 300  # characters of the template's own words
_MAX_DATE_FORMAT = 200
_MARK = "SystemTextGoesHere"
# What Python code that Jinja makes out of any text can raise.
_FAULTS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


class ChatTemplate:
    """A model's chat template; one rendering at a time."""

    def __init__(
        self, source: str, *, bos: str, eos: str, built_in: str = "", stop: Sequence[str] = ()
    ) -> None:
        """`source` is Jinja text, `bos` and `eos` are token texts.

        `built_in` names a template of ours that stands in for one the file lacks, "" where the
        file has its own; `stop` are texts that end an answer under it.
        """
        self.source = source
        self.built_in = built_in
        self.stop = tuple(stop)
        self._bos = bos
        self._eos = eos
        self._environment = TemplateEnvironment()
        self._compiled: jinja2.Template | None = None

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], tokenizer: Tokenizer) -> ChatTemplate:
        """The template of a GGUF file, or the one of its family where it carries none."""
        bos, eos = (
            "" if token is None else tokenizer.piece(token).decode("utf-8", "replace")
            for token in (tokenizer.bos, tokenizer.eos)
        )
        if has_template(metadata):
            return cls(_source(metadata), bos=bos, eos=eos)
        ours = builtin_templates.choose(metadata, tokenizer)
        return cls(ours.source, bos=bos, eos=eos, built_in=ours.name, stop=ours.stop)

    def render(
        self,
        turns: Sequence[Turn],
        *,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        enable_thinking: bool | None = None,
    ) -> str:
        """The prompt for `turns`, ending where the assistant is to speak.

        When the template refuses or ignores system text, that goes before the first words of the
        user. `now` is for templates that name the date. Raises TemplateError when the template refuses
        the conversation, is faulty, or does not come to an end.
        """
        options: dict[str, object] = {
            "add_generation_prompt": add_generation_prompt,
            "strftime_now": _clock(now),
        }
        if enable_thinking is not None:
            options["enable_thinking"] = enable_thinking
        try:
            return self._rendered_whole(turns, options)
        except Refused as refusal:
            raise TemplateError(
                f"The model's chat template refuses this conversation: {_one_line(refusal)}",
                "Edit the conversation so that user and assistant take turns, or start a new one.",
            ) from refusal
        except Exhausted as excess:
            raise TemplateError(
                f"The model's chat template was stopped: it {excess}.", _OTHER_COPY
            ) from excess
        except _FAULTS as fault:
            words = _one_line(fault) or type(fault).__name__
            raise TemplateError(
                f"The model's chat template is faulty: {words}", _OTHER_COPY
            ) from fault

    def render_continuation(
        self,
        turns: Sequence[Turn],
        *,
        now: datetime | None = None,
        enable_thinking: bool | None = None,
    ) -> str:
        """The prompt that makes the model go on with the assistant's last words.

        Those words stand at the end as they are. When somebody else spoke last, this is `render`.
        """
        if not turns or turns[-1].role is not Role.ASSISTANT:
            return self.render(turns, now=now, enable_thinking=enable_thinking)
        prompt = self.render(turns[:-1], now=now, enable_thinking=enable_thinking)
        if answer_prefix(prompt):  # the answer's own words say whether it began with a thought
            prompt = prompt.rstrip().removesuffix(THOUGHT_OPENS)
        return prompt + turns[-1].text

    def _rendered_whole(self, turns: Sequence[Turn], options: Mapping[str, object]) -> str:
        folded = _fold_system(turns)
        if folded is None:
            return self._rendered(turns, options)
        try:
            prompt = self._rendered(turns, options)
            if not self._ignores_system(turns, options, prompt):
                return prompt
        except Refused:
            pass
        return self._rendered(folded, options)

    def _ignores_system(
        self, turns: Sequence[Turn], options: Mapping[str, object], prompt: str
    ) -> bool:
        if all(turn.text.strip() in prompt for turn in turns if turn.role is Role.SYSTEM):
            return False
        # Not there as it is; it may still be there quoted, so one plain word is tried instead.
        marked = [Turn(turn.role, _MARK) if turn.role is Role.SYSTEM else turn for turn in turns]
        return _MARK not in self._rendered(marked, options)

    def _rendered(self, turns: Sequence[Turn], options: Mapping[str, object]) -> str:
        try:
            return self._rendered_with(turns, {"tools": None, **options})
        except TypeError:
            if "tools" not in self.source:
                raise
            # Some go through the tools without asking whether there are any.
            return self._rendered_with(turns, {"tools": [], **options})

    def _rendered_with(self, turns: Sequence[Turn], options: Mapping[str, object]) -> str:
        characters = sum(len(turn.text) for turn in turns)
        self._environment.budget = Budget(
            text=500_000 + 4 * characters,
            bytes_left=96_000_000 + 64 * characters,
            steps_left=400_000 + 2_000 * len(turns),
            seconds=1.0 + 0.005 * len(turns),  # some templates look at every turn from every turn
        )
        if self._compiled is None:
            self._compiled = self._environment.compiled(self.source)
        messages = [_message(turn) for turn in turns]
        return self._environment.rendered(
            self._compiled,
            {
                "messages": messages,
                "bos_token": self._bos,
                "eos_token": self._eos,
                **options,
            },
        )


def has_template(metadata: Mapping[str, object]) -> bool:
    """Whether a GGUF file carries a template."""
    return bool(_source(metadata).strip())


def _source(metadata: Mapping[str, object]) -> str:
    """The file's template; one that is no text counts as none."""
    source = metadata.get("tokenizer.chat_template")
    return source if isinstance(source, str) else ""


def answer_prefix(prompt: str) -> str:
    """What an answer to a rendered prompt begins with before the model says a word.

    Templates of models that always think open the thought themselves.
    """
    return f"{THOUGHT_OPENS}\n" if prompt.rstrip().endswith(THOUGHT_OPENS) else ""


def _message(turn: Turn) -> dict[str, str]:
    """A turn as templates know it; thoughts stand apart, and most templates leave them out."""
    begin = turn.text.lstrip()
    if turn.role is not Role.ASSISTANT or not begin.startswith(THOUGHT_OPENS):
        return {"role": turn.role.value, "content": turn.text}
    thoughts, _, answer = begin.removeprefix(THOUGHT_OPENS).partition(THOUGHT_ENDS)
    return {
        "role": turn.role.value,
        "content": answer.lstrip("\n"),
        "reasoning_content": thoughts.strip("\n"),
    }


def prompt_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of a rendered prompt, with exactly one begin token if the model wants any.

    Templates often write the begin token themselves. No end token is added: the reply follows.
    """
    ids = tokenizer.encode(text, add_special=False)
    if tokenizer.add_bos and tokenizer.bos is not None and ids[:1] != [tokenizer.bos]:
        return [tokenizer.bos, *ids]
    return ids


def _fold_system(turns: Sequence[Turn]) -> list[Turn] | None:
    """The turns with all system text before the first user text; None when nothing can move."""
    system = [turn.text for turn in turns if turn.role is Role.SYSTEM]
    rest = [turn for turn in turns if turn.role is not Role.SYSTEM]
    at = next((i for i, turn in enumerate(rest) if turn.role is Role.USER), None)
    if not system or at is None:
        return None
    rest[at] = Turn(Role.USER, "\n".join([*system, rest[at].text]))
    return rest


def _clock(now: datetime | None) -> Callable[[str], str]:
    moment = now or datetime.now()

    def strftime_now(pattern: str) -> str:
        if len(pattern) > _MAX_DATE_FORMAT:
            raise Exhausted("asks for a date that is too long")
        return moment.strftime(pattern)

    return strftime_now


def _one_line(error: Exception) -> str:
    words = " ".join(str(error).split())
    return words if len(words) <= _MAX_MESSAGE else words[:_MAX_MESSAGE] + "..."
