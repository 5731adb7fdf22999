"""Capabilities: what an engine can do with a model beyond answering, and why not."""

from __future__ import annotations

from dataclasses import dataclass

from app.system.translation import tr
from engine import ConstraintKind


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do with a model beyond answering; decides what the window offers."""

    adapters: bool = False  # LoRA adapters: SetAdapters
    snapshots: bool = False  # cached contexts on this disk: Save and Restore
    logits: bool = False  # the probabilities of tokens
    tools: bool = False  # calls of tools
    images: bool = False  # pictures in messages
    metrics: bool = False  # what it measures: Metrics
    counts: bool = False  # the tokens of a text before it is sent
    forgetting: bool = False  # the oldest messages, where a chat is longer than the context
    budgets: bool = False  # of tokens for thoughts
    formats: frozenset[ConstraintKind] = frozenset()  # that an answer can be held to
    samplers: frozenset[str] | None = None  # that it reads, by name; None: all
    thinking: bool = True  # it can be told whether the model thinks first
    server: str = ""  # host and port of the model; "": it is on this machine

    def shows(self, name: str) -> bool:
        """Whether the window shows a capability: usable, or greyed with the reason."""
        return getattr(self, name) or bool(self.reason(name))

    def sampler_reason(self, name: str) -> str:
        """Why a sampler cannot be set; "" for one that can."""
        if self.samplers is None or name in self.samplers:
            return ""
        return tr("{server} does not use this value.", server=self.server)

    def format_reason(self, kind: ConstraintKind | None) -> str:
        """Why an answer cannot be held to a format, None: free text; "" where it can."""
        if kind is None or kind in self.formats or not self.server:
            return ""
        return tr("{server} does not support this answer format.", server=self.server)

    def reason(self, name: str) -> str:
        """Why a capability is missing, for what is greyed; "" where it is there."""
        if getattr(self, name):
            return ""
        match name:
            case "images":
                return tr("This model cannot read images.")
            case "tools":
                return tr("This model cannot use tools.")
            case _ if not self.server:
                return ""
            case "adapters":
                return tr("Adapters need a model on this computer; this one runs on {server}.",
                          server=self.server)  # fmt: skip
            case "snapshots":
                return tr("{server} reads the whole chat for each answer; nothing is kept here.",
                          server=self.server)  # fmt: skip
            case "counts":
                return tr("Tokens are only counted for models on this computer.")
            case "forgetting":
                return tr("{server} refuses a chat that is longer than it takes.",
                          server=self.server)  # fmt: skip
            case "thinking":
                return tr("{server} decides itself whether the model thinks first.",
                          server=self.server)  # fmt: skip
            case "budgets":
                return tr("{server} knows no budget of thoughts.", server=self.server)
            case "formats":
                return tr("{server} does not support every answer format.", server=self.server)
            case _:
                return tr("This needs a model on this computer; this one runs on {server}.",
                          server=self.server)  # fmt: skip
