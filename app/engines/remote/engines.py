"""The remote engines of the stored connections, made when their models are asked.

What speaks to a server is imported then, so that the window opens sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from app.domain.answer_request import AnswerRequest
from app.domain.connection import Connection, RemoteModel
from app.domain.deltas import Delta
from app.domain.model_ref import Remote
from app.domain.parts import ImagePart
from app.engines.remote.addresses import server_name
from app.engines.remote.connections import ConnectionStore
from app.engines.remote.errors import RemoteError
from engine import ConstraintKind

if TYPE_CHECKING:
    from app.engines.remote.engine import RemoteEngine
    from app.engines.remote.exchange import Allow
    from app.engines.remote.keys import Credentials


class RemoteEngines:
    """Has the engine of each connection; used on one event loop."""

    def __init__(
        self,
        store: ConnectionStore,
        allow: Allow,
        proxy: Callable[[], str] = str,
        read_image: Callable[[ImagePart], bytes] | None = None,
    ) -> None:
        """`proxy` is the setting; `read_image` may block, and raises OSError; None: there are none."""
        self.store = store
        self._allow, self._proxy, self._read_image = allow, proxy, read_image
        # The engines made, with what they were made with.
        self._engines: dict[str, tuple[Connection, Credentials, str, RemoteEngine]] = {}

    def model(self, ref: Remote) -> RemoteModel | None:
        """What is known of a model; None if its connection was deleted."""
        try:
            return self.store.get(ref.connection).model(ref.id)
        except RemoteError:
            return None

    def lists(self, ref: Remote) -> bool:
        """Whether a model's server lists it, or the user named it; False without its connection."""
        try:
            connection = self.store.get(ref.connection)
        except RemoteError:
            return False
        listed = {each.id for each in connection.models}
        return not listed or ref.id in listed or ref.id in connection.named

    def place(self, ref: Remote) -> tuple[str, str]:
        """The name of a model's connection, and its host and port; "" if it was deleted."""
        try:
            connection = self.store.get(ref.connection)
        except RemoteError:
            return "", ""
        return connection.name, server_name(connection.address)

    def formats(self, ref: Remote) -> frozenset[ConstraintKind]:
        """The formats that answers of a model can be held to; none if its connection was deleted."""
        from app.engines.remote.wire import formats_of

        try:
            return formats_of(self.store.get(ref.connection).kind)
        except RemoteError:
            return frozenset()

    def models(self) -> tuple[tuple[Connection, RemoteModel], ...]:
        """The models that chat, as the connections last listed or the user named them."""
        stored = self.store.all()
        return tuple((each, model) for each in stored for model in each.chat_models)

    async def engine(self, ref: Remote) -> RemoteEngine:
        """The engine of a model; raises RemoteError if its connection or its key is not there."""
        from app.engines.remote.engine import RemoteEngine, no_image

        connection, proxy = self.store.get(ref.connection), self._proxy()
        credentials = await asyncio.to_thread(self.store.credentials, connection)
        known = self._engines.get(connection.id)
        if known is None or known[:3] != (connection, credentials, proxy):
            made = RemoteEngine(
                connection,
                self._allow,
                credentials,
                proxy=proxy,
                read_image=self._read_image or no_image,
            )
            known = self._engines[connection.id] = connection, credentials, proxy, made
        return known[3]

    async def generate(self, ref: Remote, request: AnswerRequest) -> AsyncGenerator[Delta]:
        """Answer by a model, of which the request gets its id, its context and whether it sees.

        Raises RemoteError, after the deltas that came before it; see `RemoteEngine.generate`.
        """
        engine = await self.engine(ref)
        known = engine.connection.model(ref.id)
        images = known.images is not False
        asked = replace(request, model=ref.id, context=known.context, images=images)
        async with contextlib.aclosing(engine.generate(asked)) as deltas:
            async for delta in deltas:
                yield delta
