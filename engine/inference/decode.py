"""Autoregressive decoding: sample a token, append it to the session, repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from engine.inference.sampling import Sampler
from engine.inference.session import Session


def decode(
    session: Session,
    logits: Tensor,
    sampler: Sampler,
    checkpoint: Callable[[], None] = lambda: None,
) -> Iterator[int]:
    """Yield sampled tokens, starting from the logits [V] after the session's last token.

    A token is yielded before it is appended to the session, so no forward pass is spent on the
    last one. `checkpoint` may raise `Cancelled` between tokens and between layers.
    """
    while True:
        checkpoint()
        token = sampler.draw(logits, session.tokens)
        yield token
        if len(session.tokens) == session.context:
            return
        logits = session.step(token, checkpoint)
