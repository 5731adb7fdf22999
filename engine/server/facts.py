"""Facts of installed models for lists: read from the files once, also of models that are not loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.errors import FaultKind
from engine.loading.inspect import ModelFacts, inspect_model
from engine.server.bridge import in_thread
from engine.server.models import ModelCard


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model with what a list says about it."""

    card: ModelCard
    facts: ModelFacts

    @property
    def kind(self) -> str:
        """What the model is for: "chat", "embeddings" or "reranker"."""
        fault = self.facts.fault
        is_other = fault is not None and fault.kind is FaultKind.OTHER_TYPE
        return fault.about if fault is not None and is_other else "chat"

    @property
    def context(self) -> int:
        """The longest context in tokens that the model was made for."""
        return self.facts.context_model

    @property
    def loaded_context(self) -> int:
        """The context in tokens that it is loaded with; 0: it is not loaded."""
        return self.card.loaded.context if self.card.loaded is not None else 0

    @property
    def calls_tools(self) -> bool:
        """Whether it answers with tool calls."""
        return self.kind == "chat" and self.facts.has_template

    @property
    def sees(self) -> bool:
        """Whether it takes pictures: of a model that is not loaded, if an encoder is beside it."""
        if self.card.loaded is not None:
            return self.card.sees
        return self.kind == "chat" and self.facts.encoder is not None


class Facts:
    """Facts of models, kept until a file changes; used on the server's event loop."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, float, ModelFacts]] = {}  # with size and time of change

    async def of(self, card: ModelCard) -> KnownModel:
        """The facts of a model."""
        stamp, known = (card.size_bytes, card.changed), self._known.get(card.path)
        if known is None or known[:2] != stamp:
            known = *stamp, await in_thread(lambda: inspect_model(card.path))
            self._known[card.path] = known
        return KnownModel(card, known[2])

    async def listed(self, cards: list[ModelCard]) -> list[KnownModel]:
        """The models that can be used, of a list."""
        known = [await self.of(card) for card in cards]
        usable = ("chat", "embeddings", "reranker")
        return [one for one in known if one.kind in usable and one.facts.architecture]
