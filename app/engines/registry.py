"""Engine registry: which engine serves a model, and what it can do with it."""

from __future__ import annotations

from app.domain.model_ref import Local, ModelRef, Remote
from app.engines.client import Capabilities
from app.engines.requests import RequestRouter


class EngineRegistry:
    """Has the engines of the app by the models that they serve."""

    def __init__(self, local: RequestRouter) -> None:
        """`local` serves the model files of this machine."""
        self._local = local

    def router(self, model: ModelRef | None) -> RequestRouter | None:
        """The engine of a model, of None: the usual one; None if there is none for it."""
        match model:
            case None | Local():
                return self._local
            case Remote():
                return None

    def capabilities(self, model: ModelRef | None) -> Capabilities:
        """What can be done with a model beyond answering; nothing without an engine for it."""
        router = self.router(model)
        return Capabilities() if router is None else router.capabilities
