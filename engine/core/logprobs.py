"""Log probabilities of generated tokens, and of the most likely ones in their places."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import Logprob, TokenLogprobs
from engine.sampling.candidates import Candidates


def token_logprobs(logits: Tensor, token: int, most: int, tokenizer: Tokenizer) -> TokenLogprobs:
    """The log probability of `token` and of the `most` likely tokens, from logits [V].

    They are the model's own: of the softmax at temperature 1, before any sampling parameter or
    constraint, as the servers of llama.cpp and OpenAI give them. The highest comes first, and of
    equal ones the lowest id.
    """
    row = torch.log_softmax(logits.detach().to("cpu", torch.float64), dim=0)
    text, raw = shown(tokenizer, token), _raw(tokenizer, token)
    if not most:
        return TokenLogprobs(token, text, float(row[token]), (), raw)
    least = torch.topk(row, min(most, len(row))).values[-1]
    ids = torch.nonzero(row >= least)[:, 0]  # more than `most` where some are equal
    values, order = torch.sort(row[ids], descending=True, stable=True)
    top = [
        Logprob(one, shown(tokenizer, one), value, _raw(tokenizer, one))
        for one, value in zip(ids[order][:most].tolist(), values[:most].tolist(), strict=True)
    ]
    return TokenLogprobs(token, text, float(row[token]), tuple(top), raw)


def sampled_logprobs(
    candidates: Candidates, token: int, most: int, tokenizer: Tokenizer
) -> TokenLogprobs:
    """The log probability of `token` among the candidates of a draw, and of the `most` likely ones.

    The highest comes first, and of equal ones the lowest id; a probability of 0 is left out.
    """
    weights = candidates.weights
    weights /= weights.sum()
    order = np.lexsort((candidates.ids, -weights))
    order = order[weights[order] > 0]
    found = dict(zip(candidates.ids.tolist(), weights.tolist(), strict=True))
    top = [
        Logprob(one, shown(tokenizer, one), math.log(found[one]), _raw(tokenizer, one))
        for one in candidates.ids[order][:most].tolist()
    ]
    chance = found.get(token, 1.0)
    value = math.log(chance) if chance > 0 else -math.inf
    text, raw = shown(tokenizer, token), _raw(tokenizer, token)
    return TokenLogprobs(token, text, value, tuple(top), raw)


def shown(tokenizer: Tokenizer, token: int) -> str:
    """The text of a token; bytes that are no characters alone become U+FFFD."""
    return tokenizer.piece(token).decode("utf-8", "replace")


def _raw(tokenizer: Tokenizer, token: int) -> str:
    """The bytes of a token, each as the character of that number."""
    return tokenizer.piece(token).decode("latin-1")
