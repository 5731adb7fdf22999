"""Benchmark of lookup drafts: one answer that repeats most of its prompt, with and without them."""

from __future__ import annotations

import statistics
from typing import Any

from engine.cli.client import Client
from engine.errors import EngineError, RequestError
from engine.messages import (
    AdapterUse,
    ApplyTemplate,
    Chat,
    Complete,
    DraftKind,
    Finished,
    Role,
    Sampling,
    TemplateApplied,
    Tokenize,
    Tokenized,
    Turn,
)

TASK = "Write the following text again, word for word, but call the cat Oscar instead of Felix.\n\n"
TEXT = """Felix the cat lived above a bakery in the old part of the town. Every morning at five, when \
the first loaves came out of the oven, Felix walked down the back stairs and sat beside the door, \
where the stones were warm. The baker always had a little milk for him, and in return Felix kept the \
flour store free of mice. On Sundays the bakery was closed. Then Felix went to the harbour instead, \
looked at the boats, and waited for the fishermen, who were generous with heads and tails. In winter, \
when the boats stayed out for days, he visited the school. The children were not allowed to feed him \
in class, but the caretaker had a chair for Felix beside the boiler and a saucer that nobody was to \
mention. In spring there was a new baker, a young woman from the mountains, who had never owned a \
cat. She asked what he was for. Felix caught three mice before noon and laid them in a row on the \
step, and after that there was milk again. People say that Felix is nineteen years old by now. He no \
longer hurries. But at five in the morning, when the first loaves come out of the oven, you can still \
see him walk down the back stairs, slowly, one step at a time, and sit down where it is warm.
"""


def lookup_bench(
    client: Client, generated: int, repetitions: int, adapters: tuple[AdapterUse, ...] = ()
) -> dict[str, object]:
    """Speed of a greedy answer of at most `generated` tokens with lookup drafts, and the gain.

    The model is asked to write a text again with one change, and answers in pairs: without drafts,
    then with them. Raises RequestError if prompt and answer do not fit in the context.
    """
    model, text, turns = client.model, f"{TEXT}\n{TEXT[:80]}", (Turn(Role.USER, TASK + TEXT),)
    if model.base:
        prompt = len(client.result(Tokenize(text, adds_special=True), Tokenized).ids)
    else:
        prompt = client.result(ApplyTemplate(turns, thinking=False), TemplateApplied).tokens
    if prompt + generated > model.context:
        raise RequestError(
            f"The text for --ngram has {prompt} tokens: with -n {generated} it needs a context "
            f"of {prompt + generated:,}, and this model was loaded with {model.context:,}.",
            "Give a larger -c, or a smaller -n.",
        )

    def answer(kind: DraftKind) -> Finished:
        asked: dict[str, Any] = {
            "sampling": Sampling(temperature=0),
            "max_tokens": generated,
            "adapters": adapters,
            "stop_loops": False,
            "drafts": kind,
        }
        if model.base:
            return client.result(Complete(text, **asked), Finished)
        return client.result(Chat(turns, thinking=False, **asked), Finished)

    answer(DraftKind.LOOKUP)  # warm-up: measures the costs of steps, caches the prompt
    pairs = [(answer(DraftKind.NONE), answer(DraftKind.LOOKUP)) for _ in range(repetitions)]
    if any(plain.token_ids != drafted.token_ids for plain, drafted in pairs):
        raise EngineError("Drafts changed the answer.", "Please report this with the model's name.")
    drafted = [two for _, two in pairs]
    return {
        "ngram_tokens_per_second": statistics.median(one.tokens_per_second for one in drafted),
        "ngram_gain": statistics.median(_gain(one, two) for one, two in pairs),
        "ngram_estimated_gain": statistics.median(one.draft_gain for one in drafted),
        "ngram_tokens": drafted[-1].generated_tokens,
        "drafted_tokens": drafted[-1].drafted_tokens,
        "accepted_tokens": drafted[-1].accepted_tokens,
    }


def _gain(plain: Finished, drafted: Finished) -> float:
    """How many times as fast the same answer was with drafts; one token takes no time."""
    return max(plain.decode_seconds, 1e-9) / max(drafted.decode_seconds, 1e-9)
