"""Draft model: a small model that proposes the next tokens of a large one.

Its keys and values of a text are cached as those of the large model are, and a long prompt is
processed in parts, one before each step of the answer, so that no words of others are held up.

Source: Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from engine.core.prefix_match import common_length
from engine.core.runner import Runner
from engine.core.session import Session
from engine.sampling import Sampler
from engine.speculative.drafter import Draft
from engine.speculative.vocabulary import VocabularyMap
from engine.state.pages import OutOfPages, bytes_for
from engine.state.prefix_tree import PrefixTree

_LEAST_PROBABILITY = 0.3  # of a drafted token: a less likely one ends the draft
_AT_ONCE = 64  # tokens of a prompt that are processed before a step of the answer
_STACK = ""  # of the prefix tree: drafts are made without adapters


class DraftModel:
    """A loaded draft model of one target; used by the engine's thread alone."""

    def __init__(self, runner: Runner, context: int, vocabulary: VocabularyMap) -> None:
        """`runner` runs the draft model, on texts of at most `context` tokens."""
        self.runner = runner
        self.context = context
        self.vocabulary = vocabulary
        budget = bytes_for(runner.layout, context) + 2 * runner.layout.bytes_per_page
        self.pool = runner.new_pool(budget)
        self.tree = PrefixTree(self.pool)

    def drafter(self, sampler: Sampler) -> ModelDrafter:
        """The drafter of one answer, which `sampler` draws."""
        return ModelDrafter(self, sampler)


class DraftSequence:
    """The draft model's keys and values of one text, in its own vocabulary."""

    def __init__(self, draft_model: DraftModel, sampler: Sampler) -> None:
        """`sampler` draws the answer that is drafted."""
        self._model = draft_model
        self._sampler = sampler
        self._session = Session(draft_model.runner, draft_model.pool, draft_model.context)
        self._ids: list[int] = []  # of the text
        self._ends: list[int] = []  # of each token of the text in `_ids`

    def append(self, text: Sequence[int]) -> None:
        """Follow the text, which goes on since the last call."""
        for at in range(len(self._ends), len(text)):
            self._ids += self._model.vocabulary.to_draft([text[at]])
            self._ends.append(len(self._ids))

    def cut(self, length: int) -> None:
        """Forget the tokens from position `length` on."""
        del self._ends[length:]
        del self._ids[self._ends[-1] if self._ends else 0 :]

    def process(self, more: int) -> Tensor | int:
        """The logits [V] after the text; or so many of its tokens are not processed yet.

        A long text is processed a part in each call. -1: there is no room for it and `more` tokens.
        """
        session, ids = self._session, self._ids
        if not ids or len(ids) + more > session.context:
            return -1
        self._adopt_cached()
        # The last token is processed again: its logits give the first token of the draft.
        kept = session.rewind(min(common_length(session.tokens, ids), len(ids) - 1))
        left = ids[kept:]
        if len(left) > _AT_ONCE:
            if not self._reserve(_AT_ONCE):
                return -1
            session.read(left[:_AT_ONCE])
            return len(left) - _AT_ONCE
        return session.read(left) if self._reserve(len(left) + more) else -1

    def step(self, token: int) -> Tensor:
        """The logits [V] after one more token of the target, for which `process` made room."""
        (own,) = self._model.vocabulary.to_draft([token])
        return self._session.step(own)

    def likely(self, logits: Tensor, text: Sequence[int]) -> int | None:
        """The target's token that is drawn from the draft model's logits [V]; None: not likely."""
        row = self._model.vocabulary.to_target_logits(logits)
        if not math.isfinite(float(row.max())):
            return None
        candidates = self._sampler.distribution(row, text)
        token = self._sampler.pick(candidates, len(text))
        return token if candidates.probability(token) >= _LEAST_PROBABILITY else None

    def close(self) -> None:
        """Keep what is cached for the next answer in this conversation."""
        session = self._session
        session.rewind(common_length(session.tokens, self._ids))
        self._model.tree.insert(_STACK, session.sequence)
        session.sequence.release()

    def _adopt_cached(self) -> None:
        """Begin with the longest cached prefix of the text."""
        session = self._session
        if not session.tokens:
            match = self._model.tree.match(_STACK, self._ids, len(self._ids) - 1)
            session.sequence.adopt(self._ids[: match.length], match.pages)

    def _reserve(self, tokens: int) -> bool:
        """Whether there are pages for so many more tokens; what is cached is evicted for them."""
        sequence = self._session.sequence
        if not self._model.tree.evict(sequence.missing_bytes(tokens)):
            return False
        try:
            sequence.reserve(tokens)
        except OutOfPages:
            return False
        return True


class ModelDrafter:
    """Proposes what the answer's sampler draws from the draft model, until that is not likely."""

    costs_nothing = False
    priors = (0.7,)

    def __init__(self, draft_model: DraftModel, sampler: Sampler) -> None:
        self._model = draft_model
        self._sequence = DraftSequence(draft_model, sampler)

    def draft(self, text: Sequence[int], most: int) -> Draft:
        """The next tokens; none while the text before is still being processed."""
        sequence = self._sequence
        sequence.append(text)
        logits = sequence.process(most)
        if isinstance(logits, int):
            return Draft(is_behind=logits > 0)
        drafted = list(text)
        while (token := sequence.likely(logits, drafted)) is not None:
            drafted.append(token)
            if len(drafted) == len(text) + most or self._model.vocabulary.ends(token):
                break
            logits = sequence.step(token)
        return Draft(drafted[len(text) :])

    def rewind(self, length: int) -> None:
        """Forget the tokens from position `length` on."""
        self._sequence.cut(length)

    def close(self) -> None:
        """Keep what is cached for the next answer in this conversation."""
        self._sequence.close()
