"""The tools of a chat: which of those that there are its model may call, and why it cannot."""

from __future__ import annotations

from collections.abc import Callable

from app.domain.model_ref import ModelRef
from app.domain.tools import ToolSource, ToolSpec
from app.engines.capabilities import Capabilities
from app.state.chat import State


class OfferedTools:
    """Finds tools; the source is made when the first chat with tools asks for it."""

    def __init__(
        self,
        state: State,
        source: Callable[[], ToolSource],
        capabilities: Callable[[ModelRef | None], Capabilities],
    ) -> None:
        self._state, self._make, self._capabilities = state, source, capabilities
        self._made: ToolSource | None = None

    @property
    def source(self) -> ToolSource:
        """What carries out their calls."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def of(self, conversation: int | None) -> tuple[ToolSpec, ...]:
        """The tools that the model of a chat may call: none while its answers have a format."""
        chat = self._state.settings(conversation)
        if not chat.tools or chat.constraint is not None or self.reason(conversation):
            return ()
        return tuple(
            tool for tool in self.source.tools() if tool.id in chat.tools and not tool.problem
        )

    def reason(self, conversation: int | None) -> str:
        """Why the model of a chat cannot call tools; "": it can, or that is not known yet."""
        model = self._state.settings(conversation).model
        found = self._capabilities(model)
        if not found.server:
            loaded = self._state.model.loaded
            if loaded is None or not self._state.has_in_use(model) or loaded.can_call:
                return ""
        return found.reason("tools")

    def find(self, conversation: int, name: str) -> ToolSpec | None:
        """The tool of a chat that a model calls by this name."""
        offered = self.of(conversation)
        same = [tool for tool in offered if tool.name == name]
        near = [tool for tool in offered if tool.name.casefold() == name.strip().casefold()]
        return (same or near or [None])[0]
