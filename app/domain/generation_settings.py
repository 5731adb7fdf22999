"""Generation settings: what one answer is written with, where it may differ from its chat."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.domain.model_ref import ModelRef
from engine import Sampling


@dataclass(frozen=True, slots=True)
class UsedAdapter:
    """An adapter that is offered for an answer, or that wrote one."""

    name: str  # displayed
    strength: float = 1.0
    path: Path | None = None  # None: not known, of a stored answer
    on: bool = True

    @property
    def acts(self) -> bool:
        """Whether it changes the answer: on, with a strength other than 0."""
        return self.on and self.strength != 0


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """What an answer is written with; None: as in its chat or, of a stored answer, not known."""

    adapters: tuple[UsedAdapter, ...] | None = None  # (): none
    sampling: Sampling | None = None
    thinking: bool | None = None  # None: also the default of the model's chat template
    model: ModelRef | None = None
    model_name: str = ""  # displayed; "": not known
    model_format: str = ""  # such as "Q4_K_M"; "": not known

    @property
    def acting(self) -> tuple[UsedAdapter, ...] | None:
        """The adapters that change the answer."""
        return None if self.adapters is None else tuple(each for each in self.adapters if each.acts)
