"""Logins at HTTP servers (OAuth 2.1 with PKCE): the system's browser, and a listener for its answer.

The SDK finds the login's server, registers the app there and exchanges tokens. Tokens are kept in
the keyring. The listener is on this machine only, and only while a login is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, cast

from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel

from app.net.http import WebError, check_address
from app.system.json_file import JsonFileError
from app.system.secret_store import NoKeyring, SecretStore
from app.system.translation import tr
from app.tools.mcp.entry import ServerEntry

_log = logging.getLogger(__name__)
OpenPage = Callable[[str, str, str], Awaitable[bool]]  # `Hooks.open_page`
Person = Callable[[], AbstractContextManager[None]]

_LOGIN_SECONDS = 300.0  # for the user to log in
_MOST_REQUEST = 16_384  # bytes of the browser's request
_HOST, _PATH = "127.0.0.1", "/callback"
_PAGE = """HTTP/1.1 {status}\r
Content-Type: text/html; charset=utf-8\r
Content-Length: {length}\r
Cache-Control: no-store\r
Connection: close\r
\r
"""


class TokenStore:
    """Tokens and registration of one server, as the SDK asks for them."""

    def __init__(
        self, entry: ServerEntry, secrets: SecretStore, log: Callable[[str], None]
    ) -> None:
        self._entry = entry
        self._secrets, self._log = secrets, log
        self._values: dict[str, Any] | None = None
        self._context: OAuthContext | None = None

    @property
    def port(self) -> int:
        """Of the listener that the app is registered with; 0: it is not registered."""
        value = self._loaded.get("port")
        return value if type(value) is int and 1024 <= value <= 65_535 else 0

    @property
    def expires(self) -> float:
        """When the token expires, in Unix seconds; 0: not known."""
        value = self._loaded.get("expires")
        return float(value) if isinstance(value, int | float) else 0.0

    async def load(self) -> None:
        """Read what is kept; nothing, if that was for another address."""
        values: dict[str, Any] = {}
        try:
            text = await asyncio.to_thread(self._secrets.load, self._entry.login_id)
            found: object = json.loads(text or "{}")
        except NoKeyring as error:
            _log.info("the keyring does not give a login: %s", error)
        except ValueError:
            self._log("the stored login is damaged")
        else:
            if isinstance(found, dict):
                values = cast("dict[str, Any]", found)
        self._values = values if values.get("address") == self._entry.address else {}

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens; None without."""
        return self._model("tokens", OAuthToken)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep the tokens, with what is known of the server that gave them."""
        expires = time.time() + tokens.expires_in if tokens.expires_in else 0.0
        known, more = self._context, dict[str, object]()
        if known is not None:
            issuer, client = known.oauth_metadata, known.client_info
            more["issuer"] = _plain(issuer)
            more["resource"] = _plain(known.protected_resource_metadata)
            if issuer and client and client.client_id == self._entry.client_id:
                more["bound"] = str(issuer.issuer)
        await self._save(tokens=_plain(tokens), expires=expires, **more)

    def restore(self, context: OAuthContext) -> None:
        """Tell the SDK what was kept: else it would have the user log in again, or send the token
        that refreshes the others to the server of the tools in place of the one that gave it.
        """
        self._context = context
        context.token_expiry_time = self.expires or None
        context.oauth_metadata = self._model("issuer", OAuthMetadata)
        resource = self._model("resource", ProtectedResourceMetadata)
        if resource is not None:
            context.protected_resource_metadata = resource
            context.auth_server_url = str(resource.authorization_servers[0])

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The registration, that of the entry before one that was made; None without."""
        entry = self._entry
        if entry.client_id:
            return OAuthClientInformationFull(
                client_id=entry.client_id,
                client_secret=entry.client_secret or None,
                token_endpoint_auth_method="client_secret_basic" if entry.client_secret else "none",
                # Else the server of the tools could have the secret sent to any other one.
                issuer=self._loaded.get("bound"),
            )
        return self._model("client", OAuthClientInformationFull)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the registration, with the port that it names."""
        uris = client_info.redirect_uris or []
        port = next((each.port for each in uris if each.port), 0)
        await self._save(client=_plain(client_info), port=port or self.port)

    def forget(self) -> None:
        """Forget the registration and the tokens, as their port is taken."""
        self._values = {key: each for key, each in self._loaded.items() if key == "bound"}

    @property
    def _loaded(self) -> dict[str, Any]:
        return self._values or {}

    def _model(self, key: str, kind: Any) -> Any:
        try:
            return kind.model_validate(self._loaded[key])
        except (KeyError, ValueError):
            return None

    async def _save(self, **values: object) -> None:
        self._values = {**self._loaded, "address": self._entry.address, **values}
        try:
            await asyncio.to_thread(
                self._secrets.save, self._entry.login_id, json.dumps(self._values)
            )
        except JsonFileError as error:
            self._log(f"the login could not be kept: {error}")


class Login:
    """The part of the user in one login: the page in the browser, and where it leads back to."""

    def __init__(self, entry: ServerEntry, opens: OpenPage, person: Person) -> None:
        """`person` stops the clocks while the user acts."""
        self.port = 0
        self._entry, self._opens, self._person = entry, opens, person
        self._state = ""  # that the answer must carry, so that no other page can give one
        self._answer: asyncio.Future[AuthorizationCodeResult] | None = None
        self._server: asyncio.Server | None = None

    @property
    def redirect(self) -> str:
        """The address of the listener."""
        return f"http://{_HOST}:{self.port}{_PATH}"

    async def show(self, address: str) -> None:
        """Listen, and open the page of the login; raises OAuthFlowError."""
        try:
            check_address(address)
        except WebError as error:
            raise OAuthFlowError(
                tr(
                    "{name} named a page for the login that is not opened: {reason}",
                    name=self._entry.name,
                    reason=error,
                )
            ) from error
        self.close()
        self._state = _query(urllib.parse.urlsplit(address)).get("state", "")
        self._answer = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(
                self._handle, _HOST, self.port, limit=_MOST_REQUEST
            )
        except OSError as error:
            raise OAuthFlowError(
                tr("The answer of the browser cannot be received: {reason}.", reason=error)
            ) from error
        host = urllib.parse.urlsplit(address).netloc
        why = tr("{name} asks you to log in at {host}.", name=self._entry.name, host=host)
        is_open = False
        try:
            with self._person():
                is_open = await self._opens(self._entry.name, address, why)
        finally:
            if not is_open:
                self.close()
        if not is_open:
            raise OAuthFlowError(tr("The login was cancelled."))

    async def result(self) -> AuthorizationCodeResult:
        """What the browser brings; raises OAuthFlowError."""
        assert self._answer is not None
        try:
            with self._person():
                return await asyncio.wait_for(self._answer, _LOGIN_SECONDS)
        except TimeoutError as error:
            raise OAuthFlowError(tr("The login took too long.")) from error
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of the browser; others than that of the login are refused."""
        with contextlib.suppress(OSError, ValueError, asyncio.LimitOverrunError, EOFError):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10.0)
            is_known = self._take(head.split(b"\r\n", 1)[0].decode("latin-1"))
            text = tr("You can close this page and return to Tokonoma.")
            page = f"<!doctype html><title>Tokonoma</title><p>{text}</p>" if is_known else ""
            body = page.encode()
            status = "200 OK" if is_known else "404 Not Found"
            writer.write(_PAGE.format(status=status, length=len(body)).encode() + body)
            await writer.drain()
        writer.close()

    def _take(self, line: str) -> bool:
        """Take the answer of the login from the first line of a request."""
        method, _, rest = line.partition(" ")
        parts = urllib.parse.urlsplit(rest.partition(" ")[0])
        values = _query(parts)
        if method != "GET" or parts.path != _PATH or not values.keys() & {"code", "error"}:
            return False
        if not self._state or values.get("state") != self._state:
            return False
        if self._answer is None or self._answer.done():
            return False
        if "code" in values:
            self._answer.set_result(
                AuthorizationCodeResult(
                    code=values["code"], state=values.get("state"), iss=values.get("iss")
                )
            )
        else:
            reason = values.get("error_description") or values["error"]
            self._answer.set_exception(
                OAuthFlowError(tr("The login was refused: {reason}.", reason=reason[:200]))
            )
        return True


async def provider_of(
    entry: ServerEntry, login: Login, secrets: SecretStore, log: Callable[[str], None]
) -> OAuthClientProvider:
    """What adds tokens to the requests of a server, and has the user log in where it must."""
    store = TokenStore(entry, secrets, log)
    await store.load()
    login.port = await _free_port(store.port)
    if store.port not in (0, login.port):
        store.forget()  # it was registered with that port, which another program now has
    provider = OAuthClientProvider(
        entry.address,
        OAuthClientMetadata(
            client_name="Tokonoma",
            redirect_uris=[AnyUrl(login.redirect)],
            grant_types=["authorization_code", "refresh_token"],
        ),
        store,
        redirect_handler=login.show,
        callback_handler=login.result,
    )
    store.restore(provider.context)
    return provider


def _plain(model: BaseModel | None) -> dict[str, Any] | None:
    """A model as JSON, without what it does not say: a keyring may take 1,280 letters only."""
    return model and model.model_dump(mode="json", exclude_none=True)


def _query(parts: urllib.parse.SplitResult) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(parts.query))


async def _free_port(wanted: int) -> int:
    """A port that can be listened at: the one that is wanted, if it is free."""
    for port in (wanted, 0):
        with contextlib.suppress(OSError):
            tried = await asyncio.start_server(lambda _reader, writer: writer.close(), _HOST, port)
            found = int(tried.sockets[0].getsockname()[1])
            tried.close()
            return found
    raise OAuthFlowError(
        tr("The answer of the browser cannot be received: {reason}.", reason=_HOST)
    )
