"""The connections to engines elsewhere, as the page of connections edits and tests them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.chat.servers.connections import EngineFault
from app.domain.connection import SERVER_NAMES, Connection, ServerKind
from app.domain.parts import ImagePart
from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote import addresses
from app.engines.remote.connections import ConnectionStore, shown_headers
from app.engines.remote.engines import RemoteEngines
from app.engines.remote.errors import RemoteError
from app.engines.remote.keys import KeyStore
from app.net.offline import gate
from app.settings.table import Settings
from app.state.connections import EngineEdit, EngineRow, FoundRow
from app.state.remote_faults import remote_words
from app.store.blobs import Blobs
from app.store.schema import StoreError
from app.system import paths
from app.system.json_file import JsonFileError
from app.system.translation import sentences, tr

if TYPE_CHECKING:
    from app.engines.remote.exchange import Allow


class RemoteDirectory:
    """`EngineDirectory` of the stored connections; its calls may block."""

    def __init__(
        self,
        store: ConnectionStore,
        allow: Allow,
        settings: Callable[[], Settings],
        ports: Mapping[int, ServerKind] | None = None,
    ) -> None:
        """`ports` are those of this machine that `find` asks; None: the usual ones."""
        self._store, self._allow, self._settings = store, allow, settings
        self._ports = ports

    def rows(self) -> Sequence[EngineRow]:
        """All connections, as they are stored."""
        return [
            EngineRow(
                each.id,
                each.name,
                each.address,
                addresses.server_name(each.address),
                shown_headers(each),
                each.has_key,
                models=tuple(model.label for model in each.chat_models),
                named=each.named,
            )
            for each in self._store.all()
        ]

    def check(self, edit: EngineEdit) -> EngineEdit:
        """The edit with its address made whole; raises EngineFault."""
        try:
            return replace(edit, address=addresses.normalized(edit.address))
        except RemoteError as error:
            raise _fault(error) from error

    def needs_consent(self, address: str) -> bool:
        """Whether words would go unencrypted over the public network."""
        return addresses.needs_consent(address)

    def save(self, edit: EngineEdit) -> str:
        """Store a connection and return its id; raises EngineFault."""
        known = {each.id: each for each in self._store.all()}.get(edit.id)
        name = edit.name.strip()
        if not name or (known and name == addresses.server_name(known.address)):
            name = addresses.server_name(edit.address)
        connection = replace(
            known or Connection(edit.id, name, edit.address),
            name=name,
            address=edit.address,
            named=edit.named,
            consent=edit.address if edit.allow_http else "",
        )
        try:
            return self._store.save(connection, edit.key, edit.headers).id
        except RemoteError as error:
            raise _fault(error) from error
        except JsonFileError as error:
            raise EngineFault(str(error), error.remedy) from error

    def delete(self, id: str) -> None:
        """Delete a connection: `restore` takes it back until `purge`; raises EngineFault."""
        _change(lambda: self._store.delete(id))

    def restore(self, id: str) -> None:
        """Take back a deleted connection, with its key; raises EngineFault."""
        _change(lambda: self._store.restore(id))

    def purge(self) -> None:
        """Forget the deleted connections and their keys; raises EngineFault."""
        _change(self._store.purge)

    def models(self, id: str) -> Sequence[str]:
        """The names of its models; raises EngineFault.

        What was found out on the way is kept: where its API is, and which program it is.
        """
        from app.engines.remote.engine import RemoteEngine

        try:
            connection = self._store.get(id)
            credentials = self._store.credentials(connection)
            proxy = self._settings().proxy
            engine = RemoteEngine(connection, self._allow, credentials, proxy=proxy)
            found = asyncio.run(engine.look())
            known_as = addresses.server_name(connection.address)
            name = SERVER_NAMES.get(found.kind, connection.name)
            made = self._store.update(
                id,
                address=found.address,
                kind=found.kind,
                models=found.models,
                name=name if connection.name == known_as else connection.name,
            )
        except RemoteError as error:
            fault = _fault(error)
            if error.fault.kind is RemoteFaultKind.NO_API:
                more = tr("If it does not list its models, enter a name under Edit.")
                fault.remedy = sentences(fault.remedy, more)
            raise fault from error
        except JsonFileError as error:
            raise EngineFault(str(error), error.remedy) from error
        return [model.label for model in made.chat_models]

    def find(self) -> Sequence[FoundRow]:
        """The engines that answer on this machine."""
        from app.engines.remote.discovery import PORTS, discover

        settings = self._settings()
        ports = dict(PORTS if self._ports is None else self._ports)
        if settings.serve:
            ports.pop(settings.serve_port, None)  # the server of this window
        found = asyncio.run(discover(self._allow, ports))
        return [
            FoundRow(each.name, each.found.address, len(each.found.models), each.needs_key)
            for each in found
        ]


def engines_elsewhere(
    settings: Callable[[], Settings],
) -> tuple[RemoteDirectory, RemoteEngines]:
    """The engines elsewhere of this installation."""
    keys = KeyStore(paths.config() / "keys.json")
    store = ConnectionStore(paths.config() / "connections.json", keys)
    engines = RemoteEngines(store, gate.allow, lambda: settings().proxy, _image)
    return RemoteDirectory(store, gate.allow, settings), engines


def _image(part: ImagePart) -> bytes:
    """The bytes of an attached image; raises OSError."""
    if not part.sha256:
        return Path(part.path).read_bytes()
    try:
        return Blobs(paths.database(), writable=False).read(part.sha256)
    except (StoreError, ValueError) as error:
        raise OSError(str(error)) from error


def _change(call: Callable[[], None]) -> None:
    """Change what is stored; raises EngineFault."""
    try:
        call()
    except JsonFileError as error:
        raise EngineFault(str(error), error.remedy) from error


def _fault(error: RemoteError) -> EngineFault:
    return EngineFault(*remote_words(error.fault))
