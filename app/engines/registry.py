"""Engine registry: which engine serves a model, and what it can do with it."""

from __future__ import annotations

from app.domain.model_ref import Local, ModelRef, Remote
from app.engines.capabilities import Capabilities
from app.engines.client import EngineClient
from app.engines.remote.addresses import server_name
from app.engines.remote.engines import RemoteEngines


class EngineRegistry:
    """Has the engines of the app by the models that they serve."""

    def __init__(self, local: EngineClient, remote: RemoteEngines | None = None) -> None:
        """`local` serves the model files of this machine, `remote` the models of servers."""
        self._local, self._remote = local, remote

    def for_model(self, model: ModelRef | None) -> EngineClient | RemoteEngines | None:
        """The engine of a model, of None: the usual one; None if there is none for it."""
        match model:
            case None | Local():
                return self._local
            case Remote():
                known = self._remote is not None and self._remote.model(model) is not None
                return self._remote if known else None

    def local(self, model: ModelRef | None) -> EngineClient | None:
        """The engine in this process, if it serves this model."""
        found = self.for_model(model)
        return None if isinstance(found, RemoteEngines) else found

    def served(self) -> list[tuple[Remote, str, str, str, int]]:
        """The models of servers: each with its name, its connection's, its host, its context."""
        if self._remote is None:
            return []
        return [
            (
                Remote(connection.id, model.id),
                model.label,
                connection.name,
                server_name(connection.address),
                model.context,
            )
            for connection, model in self._remote.models()
        ]

    def lists(self, model: Remote) -> bool:
        """Whether the server of a model still lists it, or never listed any."""
        return self._remote is not None and self._remote.lists(model)

    def capabilities(self, model: ModelRef | None) -> Capabilities:
        """What can be done with a model beyond answering; nothing without an engine for it."""
        found = self.for_model(model)
        if found is None:
            return Capabilities()
        if not isinstance(found, RemoteEngines) or not isinstance(model, Remote):
            return self._local.capabilities
        # Not needed to show the window.
        from app.engines.remote.wire import can_switch_thinking, formats_of, samplers_of

        connection = found.store.get(model.connection)
        known = connection.model(model.id)
        return Capabilities(
            tools=known.tools is not False,
            images=known.images is not False,
            formats=formats_of(connection.kind),
            samplers=samplers_of(connection.kind),
            thinking=can_switch_thinking(connection.kind),
            server=server_name(connection.address),
        )
