"""Documents of a schema's grammar, by random walks through its masks, some of them hostile."""

from __future__ import annotations

import random
from functools import cached_property

import numpy as np

from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.matcher import Matcher
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import Constraint, ConstraintKind

MOST_TOKENS = 1_500
FREE_TOKENS = 40  # after which a walk seeks the end
# What a walk prefers: nothing, escapes, digits and signs, white space, or the names and texts of
# the schema.
TASTES = ("", '\\u"', "0123456789-+.eE", " \t\r\n", "schema")


class Walker:
    """Walks through the masks of schemas' grammars."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.grammars = Grammars(tokenizer, tokenizer.size)

    @cached_property
    def _pieces(self) -> list[bytes]:
        return [self.tokenizer.piece(token) for token in range(self.tokenizer.size)]

    @cached_property
    def _closing(self) -> np.ndarray:
        """Tokens that bring the end nearer."""
        return np.isin(np.arange(len(self._pieces)), self.tokens('"}],:'))

    def tokens(self, characters: str) -> list[int]:
        """The tokens of single characters."""
        return [self.tokenizer.encode_within(one)[0] for one in characters]

    def allows(self, schema: str, text: str) -> bool:
        """Whether a schema's grammar allows a text as a whole."""
        grammar = self.grammars.compile(Constraint(ConstraintKind.JSON_SCHEMA, schema))
        matcher, tokens = Matcher(grammar), self.tokenizer.encode_within(text)
        if matcher.allowed(tokens) < len(tokens):
            return False
        for token in tokens:
            matcher.accept(token)
        return matcher.is_complete

    def document(self, schema: str, chance: random.Random, taste: str = "") -> str | None:
        """A text that the grammar allows; None: it did not end. Raises RequestError."""
        grammar = self.grammars.compile(Constraint(ConstraintKind.JSON_SCHEMA, schema))
        matcher, made = Matcher(grammar), list[int]()
        wanted = np.zeros(len(self._pieces), bool)
        if taste == "schema":
            wanted[list(set(self.tokenizer.encode_within(schema)))] = True
        elif taste:
            wanted[self.tokens(taste)] = True
        ends = list(self.tokenizer.end_tokens)
        while not matcher.is_finished:
            if matcher.is_complete and (len(made) > FREE_TOKENS or chance.random() < 0.1):
                break
            bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
            allowed = bits[: len(wanted)].astype(bool)
            allowed[ends] = False
            is_late = len(made) > FREE_TOKENS and chance.random() < 0.9
            preferred = allowed & (self._closing if is_late else wanted)
            if not preferred.any() or (not is_late and chance.random() < 0.2):
                preferred = allowed
            token = int(chance.choice(np.flatnonzero(preferred)))
            matcher.accept(token)
            made.append(token)
            if len(made) > MOST_TOKENS:
                return None
        return b"".join(self._pieces[token] for token in made).decode("utf-8")
