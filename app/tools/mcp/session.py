"""One run of a server of tools: its connection through the SDK, its lists, and calls of its tools.

Only this module and those it imports need the SDK, so that it is imported with the first start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from typing import Any, Literal, Protocol, TypeVar, cast

import pydantic
from mcp import MCPError, types
from mcp.client import Client, ClientRequestContext, IncomingMessage, Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from app import __version__
from app.domain.tools import ToolError, ToolOutcome, ToolSpec
from app.net.http import WebError, check_address
from app.system.secret_store import SecretStore
from app.system.translation import tr
from app.tools.mcp import results, specs
from app.tools.mcp.entry import MOST_SECONDS, ServerEntry
from app.tools.mcp.errors import SessionEnded, StartError
from app.tools.mcp.hooks import (
    Hooks,
    PromptArgument,
    ResourceContent,
    SamplingRequest,
    ServerPrompt,
    ServerResource,
)
from app.tools.mcp.http_transport import GateTransport, http_client
from app.tools.mcp.limits import HTTP_BYTES
from app.tools.mcp.log import ServerLog, visible
from app.tools.mcp.oauth import Login, provider_of
from app.tools.mcp.repair import repaired
from app.tools.mcp.stdio import StdioTransport

START_SECONDS = 120.0  # a program may first download its packages
_LIST_SECONDS = 30.0
_MOST_PAGES = 50
_MOST_ITEMS = 500  # resources or prompts
_LONGEST_URI = 8_000  # letters, also of a cursor
_MOST_TEXT = 2_000  # letters of a message for the user, or of a fault
_MOST_OUTPUTS = 1_000  # reports of progress of a call
_RELIST_SECONDS = 2.0  # between two looks at a list that changes
_SETTLE_SECONDS = 2.0
_PERSON_POLL_SECONDS = 1.0
_LISTEN_ATTEMPTS = 3

T = TypeVar("T")
Page = TypeVar("Page", bound=types.PaginatedResult, covariant=True)
Mode = Literal["auto", "legacy"]

# The SDK logs whole messages of servers, and whole addresses, which may have a key in them; what
# matters is in the server's own log.
for each in ("mcp", "client", "httpx2"):
    logging.getLogger(each).setLevel(logging.CRITICAL)


class _Fetch(Protocol[Page]):
    async def __call__(self, *, cursor: str | None) -> Page: ...


class Session:
    """A connection to one server; every method but `kill` is called on the tools' event loop."""

    def __init__(
        self,
        entry: ServerEntry,
        hooks: Hooks,
        secrets: SecretStore,
        log: ServerLog,
        changed: Callable[[], None],
        proxy: str = "",
        mode: Mode = "auto",
    ) -> None:
        """`changed` is called when the server changed its list of tools."""
        self.tools: tuple[ToolSpec, ...] = ()
        self.is_cut = False  # it lists more tools than are used
        self._entry, self._hooks, self._secrets, self._log = entry, hooks, secrets, log
        self._changed, self._proxy, self._mode = changed, proxy, mode
        self._client: Client | None = None
        self._stdio: StdioTransport | None = None
        self._http: GateTransport | None = None
        self._running: set[asyncio.Task[Any]] = set()
        self._deadlines: set[Deadline] = set()
        self._must_relist = asyncio.Event()
        self._was_ready = False

    @property
    def ended_early(self) -> bool:
        """Whether its program ended before it answered, as old ones do at an unknown question."""
        return self._stdio is not None and self._stdio.ended.is_set() and self._client is None

    @property
    def reason(self) -> str:
        """Why its program ended, one sentence."""
        return self._stdio.reason if self._stdio else ""

    @property
    def protocol(self) -> str:
        """The version of the protocol that both speak."""
        return self._client.protocol_version if self._client else ""

    @property
    def program(self) -> str:
        """What the server says it is: its name and version."""
        info = self._client.server_info if self._client else None
        return visible(f"{info.title or info.name} {info.version}", 100) if info else ""

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[asyncio.Event]:
        """Start the server and list its tools; gives an event of its end. Raises StartError."""
        transport = repaired(await self._transport())
        never = asyncio.Event()
        try:
            client = Client(
                cast("Transport", transport),
                mode=self._mode,
                cache=None,
                client_info=types.Implementation(
                    name="tokonoma", title="Tokonoma", version=__version__
                ),
                elicitation_callback=self._elicit if self._asks_user else None,
                sampling_callback=self._sample if self._hooks.ask_sampling else None,
                logging_callback=self._logged,
                message_handler=self._received,
            )
            async with contextlib.AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(START_SECONDS) as limit:
                        with self._person_waits_for(limit):
                            await stack.enter_async_context(client)
                            self._client = client
                            await self._list()
                except TimeoutError as error:
                    raise self._no_start(tr("it did not answer in time")) from error
                self._spawn(self._relist())
                if self._listens:
                    self._spawn(self._listen())
                self._was_ready = True
                try:
                    yield self._stdio.ended if self._stdio else never
                finally:
                    self._client = None
                    for task in list(self._running):
                        task.cancel()
        except StartError:
            raise
        except (Exception, BaseExceptionGroup) as error:
            raise self._no_start(self._why(error)) from error

    def kill(self) -> None:
        """End a program at once, from any thread."""
        if self._stdio is not None:
            self._stdio.kill()

    async def settle(self) -> None:
        """Wait a moment for the requests that are under way, which `opened` would cancel."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                while self._deadlines:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    async def call(
        self, name: str, arguments: Mapping[str, Any], output: Callable[[str], None]
    ) -> ToolOutcome:
        """Call a tool; raises ToolError, and SessionEnded if the server knows no connection."""
        deadline = Deadline(self._entry.seconds)
        reports = 0

        async def report(progress: float, total: float | None, message: str | None) -> None:
            nonlocal reports
            deadline.extend()
            reports += 1
            if reports <= _MOST_OUTPUTS:
                of = f" of {total:g}" if total else ""
                more = f": {visible(message, _MOST_TEXT)}" if message else ""
                output(f"{progress:g}{of}{more}\n")

        made = cast("dict[str, Any]", _writable(dict(arguments)))
        result = await self._bounded(
            self._open_client.call_tool(name, made, progress_callback=report), deadline
        )
        return results.outcome(result)

    async def resources(self) -> tuple[ServerResource, ...]:
        """Its resources and templates of resources; raises ToolError."""
        client = self._open_client
        if client.server_capabilities.resources is None:
            return ()
        found = [
            _resource(each.uri, each, each.size or 0, is_template=False)
            async for page in self._pages(client.list_resources)
            for each in page.resources
        ]
        with contextlib.suppress(ToolError):  # few servers have templates, and many no such list
            found += [
                _resource(each.uri_template, each, 0, is_template=True)
                async for page in self._pages(client.list_resource_templates)
                for each in page.resource_templates
            ]
        return tuple(each for each in found if len(each.uri) <= _LONGEST_URI)[:_MOST_ITEMS]

    async def read_resource(self, uri: str) -> tuple[ResourceContent, ...]:
        """The contents of a resource, a folder has several; raises ToolError."""
        deadline = Deadline(self._entry.seconds)
        result = await self._bounded(self._open_client.read_resource(uri), deadline)
        try:
            return results.contents(result)
        except ValueError as error:
            raise ToolError(f"{self._entry.name} sent damaged data.") from error

    async def prompts(self) -> tuple[ServerPrompt, ...]:
        """Its prompts; raises ToolError."""
        client = self._open_client
        if client.server_capabilities.prompts is None:
            return ()
        found = [
            _prompt(each)
            async for page in self._pages(client.list_prompts)
            for each in page.prompts
            if len(each.name) <= specs.MOST_NAME
        ]
        return tuple(found[:_MOST_ITEMS])

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        """The text of a prompt with its arguments filled in; raises ToolError."""
        deadline = Deadline(self._entry.seconds)
        made = cast("dict[str, str]", _writable(dict(arguments)))
        result = await self._bounded(self._open_client.get_prompt(name, made), deadline)
        texts = [results.parts([each.content])[0] for each in result.messages[:_MOST_ITEMS]]
        return "\n\n".join(texts)

    # --- the connection -------------------------------------------------------------------------

    @property
    def _asks_user(self) -> bool:
        return self._hooks.ask_form is not None or self._hooks.open_page is not None

    @property
    def _open_client(self) -> Client:
        if self._client is None:
            raise ToolError(f"{self._entry.name} is not running.")
        return self._client

    @property
    def _listens(self) -> bool:
        """Whether changes of its list come on a stream that has to be asked for."""
        client = self._open_client
        tools = client.server_capabilities.tools
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        return is_modern and tools is not None and bool(tools.list_changed)

    async def _transport(self) -> Transport:
        """How the server is reached; raises StartError."""
        entry = self._entry
        if not entry.is_http:
            self._stdio = StdioTransport(entry, self._log)
            return self._stdio
        self._http = GateTransport(entry, self._log.add)
        has_key = any(name.lower() == "authorization" for name, _ in entry.headers)
        auth = None
        if not has_key and self._hooks.open_page is not None:
            login = Login(entry, self._hooks.open_page, self._person)
            auth = await provider_of(entry, login, self._secrets, self._log.add)
        try:
            client = http_client(entry, self._proxy, auth, self._http)
        except WebError as error:
            raise StartError(str(error), error.remedy) from error
        return cast("Transport", _with_client(client, entry.address))

    async def _list(self) -> None:
        """Read the list of tools, as far as it is used."""
        client = self._open_client
        if client.server_capabilities.tools is None:
            return
        found = specs.Listing(self._entry, self._log)
        async for page in self._pages(client.list_tools, specs.MOST_TOOLS):
            found.add(page.tools)
        self.tools, self.is_cut = found.specs, found.is_cut

    async def _pages(self, fetch: _Fetch[Page], most: int = _MOST_ITEMS) -> AsyncGenerator[Page]:
        """The pages of a list, until there are enough items; raises ToolError.

        A page may be as large as a message, so that those before it are not held.
        """
        cursor: str | None = None
        seen: set[str] = set()
        count, deadline = 0, Deadline(_LIST_SECONDS)
        for _ in range(_MOST_PAGES):
            page = await self._bounded(fetch(cursor=cursor), deadline)
            cursor, count = page.next_cursor, count + _count(page)
            yield page
            del page
            if not cursor or len(cursor) > _LONGEST_URI or cursor in seen or count > most:
                break
            seen.add(cursor)

    async def _relist(self) -> None:
        """Read the list again when the server says that it changed."""
        while True:
            await self._must_relist.wait()
            self._must_relist.clear()
            try:
                await self._list()
            except ToolError as error:
                self._log.add(f"the list of tools could not be read again: {error}")
            else:
                self._changed()
            await asyncio.sleep(_RELIST_SECONDS)

    async def _listen(self) -> None:
        """Hear of changes of the list; without it, changes are seen at the next start."""
        for _ in range(_LISTEN_ATTEMPTS):
            try:
                async with self._open_client.listen(tools_list_changed=True) as events:
                    async for _event in events:
                        self._must_relist.set()
            except (MCPError, SubscriptionLost, TimeoutError, ListenNotSupportedError) as error:
                self._log.add(f"changes of the list are not reported: {error}")
            await asyncio.sleep(_RELIST_SECONDS)

    # --- calls ----------------------------------------------------------------------------------

    async def _bounded(self, request: Coroutine[Any, Any, T], deadline: Deadline) -> T:
        """The result of a request; raises ToolError, SessionEnded. Cancelled, it returns at once.

        The request is a task of its own, because it still tells the server of its cancellation.
        """
        task = self._spawn(request)
        self._deadlines.add(deadline)
        try:
            while not task.done() and (left := deadline.left()) > 0:
                await asyncio.wait({task}, timeout=left)
            if not task.done():
                seconds = f"{deadline.seconds:g}"
                raise ToolError(f"{self._entry.name} did not answer within {seconds} seconds.")
            return task.result()
        except ToolError:
            raise
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise ToolError(self._ended_sentence()) from None  # the server was stopped
        except (Exception, BaseExceptionGroup) as error:
            raise self._call_error(error) from error
        finally:
            self._deadlines.discard(deadline)
            task.cancel()

    def _call_error(self, error: BaseException) -> ToolError | SessionEnded:
        name = self._entry.name
        match error:
            case MCPError() if error.message == "Session terminated":
                return SessionEnded(name)
            case MCPError() if error.code == types.CONNECTION_CLOSED and not self._entry.is_http:
                return ToolError(self._ended_sentence())
            case MCPError():
                message = self._http_reason(error) or error.message
                return ToolError(f"{name}: {visible(message, _MOST_TEXT, lines=True)}")
            case pydantic.ValidationError():
                self._log.add(f"an answer in a form that is not of the protocol: {error}"[:2_000])
                return ToolError(f"{name} answered in a form that is not of the protocol.")
            case _:
                self._log.add(f"{type(error).__name__}: {error}"[:2_000])
                return ToolError(f"{name}: {visible(str(error), _MOST_TEXT)}")

    def _ended_sentence(self) -> str:
        return self.reason or f"{self._entry.name} ended in the middle of the call."

    def _http_reason(self, error: MCPError) -> str:
        """The sentence of the HTTP part for what the SDK only calls an error."""
        is_bare = error.message in ("Server returned an error response", "Not Found")
        return self._http.refusal if self._http and is_bare else ""

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # who awaits it has it; of others it is of no use

    # --- what the server asks -------------------------------------------------------------------

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        del context
        message = visible(params.message, _MOST_TEXT, lines=True)
        if isinstance(params, types.ElicitRequestURLParams):
            return await self._page(params.url, message)
        ask = self._hooks.ask_form
        schema = params.requested_schema
        if ask is None:
            return types.ElicitResult(action="decline")
        with self._person():
            answer = await ask(self._entry.name, message, schema)
        if answer is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content=dict(answer))

    async def _page(self, address: str, message: str) -> types.ElicitResult:
        try:
            check_address(address)
        except WebError as error:
            self._log.add(f"a page that it asked for was not opened: {error}")
            return types.ElicitResult(action="decline")
        opens = self._hooks.open_page
        with self._person():
            is_open = opens is not None and await opens(self._entry.name, address, message)
        return types.ElicitResult(action="accept" if is_open else "decline")

    async def _sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        del context
        ask = self._hooks.ask_sampling
        assert ask is not None  # else it is not offered
        warmth = params.temperature
        request = SamplingRequest(
            tuple((each.role, _sampling_text(each)) for each in params.messages[:_MOST_ITEMS]),
            params.system_prompt or "",
            params.max_tokens,
            warmth if warmth is not None and math.isfinite(warmth) else None,
            tuple(params.stop_sequences or ()),
        )
        with self._person():
            answer = await ask(self._entry.name, request)
        if answer is None:
            return types.ErrorData(code=-1, message="The user declined the request.")
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(text=answer),
            model="local",
            stop_reason="endTurn",
        )

    async def _logged(self, params: types.LoggingMessageNotificationParams) -> None:
        self._log.add(f"{params.level}: {str(params.data)[:4_000]}")

    async def _received(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._must_relist.set()
        elif isinstance(message, Exception):
            self._log.add(f"not a message: {message}"[:2_000])

    @contextlib.contextmanager
    def _person(self) -> Generator[None]:
        """Stop the clocks of the running requests, as they wait for the user."""
        paused = list(self._deadlines)
        for each in paused:
            each.pause()
        try:
            yield
        finally:
            for each in paused:
                each.resume()

    @contextlib.contextmanager
    def _person_waits_for(self, limit: asyncio.Timeout) -> Generator[None]:
        """The time limit of the start stands still while the user logs in."""
        deadline = _StartDeadline(limit)
        self._deadlines.add(deadline)
        try:
            yield
        finally:
            self._deadlines.discard(deadline)

    # --- why it failed --------------------------------------------------------------------------

    def _no_start(self, why: str) -> StartError:
        name = self._entry.name
        if self._stdio is not None and self._stdio.reason:
            return StartError(self._stdio.reason, tr("Its log says more."))
        if self._was_ready:
            return StartError(
                tr("The connection to {name} ended: {reason}.", name=name, reason=why),
                tr("Start it again."),
            )
        if self._http is not None and self._http.refusal:
            return StartError(self._http.refusal, tr("Check its address and headers."))
        return StartError(
            tr("{name} could not be started: {reason}.", name=name, reason=why),
            tr("Its log says more."),
        )

    def _why(self, error: BaseException) -> str:
        """The first reason in a group of errors."""
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        if isinstance(error, pydantic.ValidationError):
            self._log.add(str(error)[:2_000])
            return tr("its answer is not of the protocol")
        return visible(str(error), 300).rstrip(".") or type(error).__name__


class Deadline:
    """The time limit of a request: progress extends it, and it stands still while a person acts."""

    def __init__(self, seconds: float, most: float = MOST_SECONDS) -> None:
        self.seconds = seconds
        self._now = asyncio.get_running_loop().time
        self._end = self._now() + seconds
        self._last = self._now() + max(most, seconds)
        self._pauses, self._paused = 0, 0.0

    def left(self) -> float:
        """Seconds until it has to be looked at again; 0: the time is over."""
        return _PERSON_POLL_SECONDS if self._pauses else self._end - self._now()

    def extend(self) -> None:
        """There was progress."""
        self._end = min(self._now() + self.seconds, self._last)

    def pause(self) -> None:
        """A person is asked."""
        if not self._pauses:
            self._paused = self._now()
        self._pauses += 1

    def resume(self) -> None:
        """The person answered."""
        self._pauses -= 1
        if not self._pauses:
            waited = self._now() - self._paused
            self._end += waited
            self._last += waited


class _StartDeadline(Deadline):
    """That of a start, which is a timeout of asyncio."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        super().__init__(START_SECONDS)
        self._limit = limit

    def pause(self) -> None:
        super().pause()
        self._limit.reschedule(None)

    def resume(self) -> None:
        super().resume()
        if not self._pauses:
            self._limit.reschedule(self._end)


@contextlib.asynccontextmanager
async def _with_client(client: Any, address: str) -> AsyncGenerator[Any]:
    async with (
        client,
        streamable_http_client(
            address, http_client=client, max_sse_event_size=HTTP_BYTES
        ) as streams,
    ):
        yield streams


def _count(page: types.PaginatedResult) -> int:
    for key in ("tools", "resources", "resource_templates", "prompts"):
        if (items := getattr(page, key, None)) is not None:
            return len(items)
    return 0


def _writable(value: Any) -> Any:
    """A value of JSON without halves of letters (surrogates), which no server can read."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            found = cast("dict[str, Any]", value)
            return {_writable(key): _writable(each) for key, each in found.items()}
        case list() | tuple():
            return [_writable(each) for each in cast("list[Any]", value)]
        case _:
            return value


def _resource(
    uri: object, found: types.Resource | types.ResourceTemplate, size: int, *, is_template: bool
) -> ServerResource:
    return ServerResource(
        str(uri),
        visible(found.name, 200),
        visible(found.title or found.name, 200),
        visible(found.description or "", _MOST_TEXT, lines=True),
        visible(found.mime_type or "", 100),
        max(size, 0),
        is_template,
    )


def _prompt(found: types.Prompt) -> ServerPrompt:
    return ServerPrompt(
        found.name,
        visible(found.title or found.name, 200),
        visible(found.description or "", _MOST_TEXT, lines=True),
        tuple(
            PromptArgument(
                each.name, visible(each.description or "", _MOST_TEXT), bool(each.required)
            )
            for each in (found.arguments or ())[:100]
        ),
    )


def _sampling_text(message: types.SamplingMessage) -> str:
    blocks = message.content if isinstance(message.content, list) else [message.content]
    return "\n".join(
        each.text if isinstance(each, types.TextContent) else f"[{each.type}]" for each in blocks
    )
