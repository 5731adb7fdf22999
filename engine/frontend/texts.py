"""Requests that only need the vocabulary or the template: tokens of texts, texts of tokens, prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.errors import RequestError
from engine.frontend.infill import infill_ids
from engine.frontend.prompt import Prompt, PromptBuilder
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import (
    ApplyTemplate,
    Complete,
    CountTokens,
    Detokenize,
    Detokenized,
    Infill,
    TemplateApplied,
    Tokenize,
    Tokenized,
    TokensCounted,
)
from engine.vision.source import never

_ANSWER_SHARE = 4  # of the context, what is kept free for what fills a gap: a fourth at most

TextRequest = CountTokens | Tokenize | Detokenize | ApplyTemplate
TextEvent = TokensCounted | Tokenized | Detokenized | TemplateApplied


def answered(
    request: TextRequest,
    id: int,
    tokenizer: Tokenizer,
    prompts: PromptBuilder,
    cancelled: Callable[[], bool] = never,
) -> TextEvent:
    """The event that answers a request; a very long text takes seconds. Raises EngineError."""
    match request:
        case CountTokens(text=text, images=images):
            tokens = len(tokenizer.encode(text, add_special=False))
            return TokensCounted(id, tokens + prompts.image_tokens(images, cancelled))
        case Tokenize():
            ids = tokenizer.encode(
                request.text,
                add_special=request.adds_special,
                parse_special=request.parses_special,
            )
            pieces = (tokenizer.piece(token) for token in (ids if request.with_pieces else ()))
            return Tokenized(id, tuple(ids), tuple(piece.decode("latin-1") for piece in pieces))
        case Detokenize(ids=ids):
            return Detokenized(id, tokenizer.decode(known(ids, tokenizer), special=True))
        case ApplyTemplate():
            return applied(id, written(request, prompts, cancelled))


def written(
    request: ApplyTemplate, prompts: PromptBuilder, cancelled: Callable[[], bool] = never
) -> Prompt:
    """The prompt of a request."""
    write = prompts.answer if request.begins_answer else prompts.conversation
    return write(
        request.turns,
        request.policy,
        thinking_switch(request),
        tools=request.tools,
        variables=request.template_arguments,
        cancelled=cancelled,
    )


def applied(id: int, prompt: Prompt, cached: int = 0, seconds: float = 0.0) -> TemplateApplied:
    """The event that shows a prompt, of which so many tokens are cached."""
    text, tokens = prompt.rendered.text, len(prompt.ids)
    return TemplateApplied(id, text, tokens, prompt.dropped_turns, cached, seconds)


def thinking_switch(request: ApplyTemplate) -> bool | None:
    """Whether the prompt asks for thoughts: as said, or as a variable of the template says."""
    given = request.template_arguments.get("enable_thinking")
    return given if request.thinking is None and isinstance(given, bool) else request.thinking


def prompt_of(request: Complete, tokenizer: Tokenizer, context: int) -> list[int]:
    """The tokens of a prompt. Raises RequestError for an id that the model does not have, and for a
    gap that it cannot fill.
    """
    if isinstance(request.prompt, Infill):
        answer = min(request.max_tokens or context, context // _ANSWER_SHARE)
        return infill_ids(request.prompt, tokenizer, context - answer - 1)
    if isinstance(request.prompt, str):
        return tokenizer.encode(request.prompt, parse_special=request.parses_special)
    return known(request.prompt, tokenizer)


def known(ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """The ids; raises RequestError for one that the model does not have."""
    for token in ids:
        if not 0 <= token < tokenizer.size:
            raise RequestError(
                f"The model has no token {token}.", f"Give ids from 0 to {tokenizer.size - 1}."
            )
    return list(ids)
