"""Faults of engines elsewhere as sentences for the window: what failed, and what to do."""

from __future__ import annotations

from app.domain.connection import short_name
from app.domain.remote_fault import RemoteFault, RemoteFaultKind
from app.system.translation import number, tr, trn


def remote_words(fault: RemoteFault) -> tuple[str, str]:
    """Sentence and remedy."""
    words = _connection_words(fault) or _network_words(fault) or _server_words(fault)
    return words or _model_words(fault)


def _connection_words(fault: RemoteFault) -> tuple[str, str] | None:
    """Of a connection that is not tried at all."""
    server, about = fault.server, fault.about
    match fault.kind:
        case RemoteFaultKind.NO_CONNECTION:
            text = tr("{name}, the model of this chat, is on a server that is not set up here.",
                      name=short_name(fault.model) or about)  # fmt: skip
            return text, tr("Choose another model for this chat.")
        case RemoteFaultKind.OFFLINE:
            return (
                tr("Tokonoma is offline, so {server} is not asked.", server=server),
                tr("Switch “Offline” off in Connections, or choose a model on this computer."),
            )
        case RemoteFaultKind.CONSENT:
            text = tr("What you write would travel to {server} unencrypted.", server=server)
            return text, tr("Use an address that begins with https://, or allow it in Connections.")
        case RemoteFaultKind.ADDRESS if not server:
            return about, tr("Write it as http://computer:8080 or https://server/v1.")
        case RemoteFaultKind.ADDRESS:
            text = tr("The header or address “{name}” cannot be sent.", name=about)
            return text, tr("Correct it in Connections.")
        case RemoteFaultKind.KEYRING:
            text = tr("The keyring of this system does not give the key: {reason}.",
                      reason=about.rstrip("."))  # fmt: skip
            return text, tr("Unlock it, or enter the key again in Connections.")
        case _:
            return None


def _network_words(fault: RemoteFault) -> tuple[str, str] | None:
    """Of a server that was not reached, or whose answer ended early."""
    server, about = fault.server, fault.about
    running = tr("Check that the server is running and that the address is right.")
    match fault.kind:
        case RemoteFaultKind.NO_HOST:
            text = tr("There is no computer with the name {server}.", server=server)
            return text, tr("Check the address, and your network.")
        case RemoteFaultKind.UNREACHABLE:
            text = tr("{server} cannot be reached: {reason}.", server=server, reason=about)
            return text, running
        case RemoteFaultKind.TIMEOUT:
            return tr("{server} does not answer.", server=server), running
        case RemoteFaultKind.TLS:
            text = tr("The certificate of {server} could not be verified: {reason}.",
                      server=server, reason=about)  # fmt: skip
            return text, tr(
                "Check the clock of this computer, and whether a proxy intercepts the connection. "
                "If its certificate is self-signed, install it in this system."
            )
        case RemoteFaultKind.NOT_TLS:
            text = tr("{server} does not use encryption.", server=server)
            return text, tr("Begin its address with http://.")
        case RemoteFaultKind.NEEDS_TLS:
            text = tr("{server} only accepts encrypted connections.", server=server)
            return text, tr("Begin its address with https://.")
        case RemoteFaultKind.PROXY:
            text = tr("The proxy refused the connection: {reason}.", reason=about or fault.status)
            return text, tr("Check the proxy in the settings.")
        case RemoteFaultKind.REDIRECT:
            text = tr(
                "{server} redirects to another address: {address}.", server=server, address=about
            )
            return text, tr("Use that address in Connections if you trust it.")
        case RemoteFaultKind.WEB_PAGE:
            text = tr("{server} answered with a web page.", server=server)
            if about:
                text = tr(
                    "{server} answered with a web page: “{title}”.", server=server, title=about
                )
            return text, tr("Check the address, and whether the network asks you to sign in.")
        case RemoteFaultKind.INVALID:
            text = tr("{server} did not answer like a model server.", server=server)
            return text, tr("Check that this is the address of a model server.")
        case RemoteFaultKind.CLOSED:
            text = tr("{server} closed the connection before it answered.", server=server)
            return text, tr("Try again. If it fails again, check the messages of the server.")
        case RemoteFaultKind.CUT:
            text = tr("The connection to {server} was cut in the middle of the answer.",
                      server=server)  # fmt: skip
            return text, tr("What has arrived is kept; you can continue it.")
        case RemoteFaultKind.SILENT if fault.partial:
            text = tr("{server} stopped sending in the middle of the answer.", server=server)
            return text, tr("What has arrived is kept; you can continue it.")
        case RemoteFaultKind.SILENT:
            return tr("{server} accepted the message, but never answered.", server=server), running
        case _:
            return None


def _server_words(fault: RemoteFault) -> tuple[str, str] | None:
    """Of a server that refuses everything, or for now."""
    server, about = fault.server, fault.about
    seconds = round(fault.wait_seconds)
    later = tr("Try again later.")
    if seconds:
        later = trn("Try again in {count} second.", "Try again in {count} seconds.", seconds)
    match fault.kind:
        case RemoteFaultKind.KEY:
            text = tr("{server} does not accept the key.", server=server)
            return text, tr("Enter it again in Connections.")
        case RemoteFaultKind.NEEDS_KEY:
            text = tr("{server} asks for a key.", server=server)
            return text, tr("Enter it in Connections.")
        case RemoteFaultKind.FORBIDDEN:
            text = tr("{server} does not allow it (403).", server=server)
            if about:
                text = tr(
                    "{server} does not allow it: {reason}", server=server, reason=_ended(about)
                )
            return text, tr("Choose another model, or a key that may use this one.")
        case RemoteFaultKind.CREDIT:
            text = tr("The account at {server} has no credit left.", server=server)
            return text, tr("Add credit there, or choose another model.")
        case RemoteFaultKind.NO_API:
            text = tr("{server} has no chat at this address ({status}).",
                      server=server, status=fault.status or 404)  # fmt: skip
            return text, tr("Check the path of the address; most end with /v1.")
        case RemoteFaultKind.LIMIT:
            return tr("{server} limits the number of requests.", server=server), later
        case RemoteFaultKind.BUSY:
            return tr("{server} is busy.", server=server), later
        case RemoteFaultKind.LOADING:
            return tr("{server} is still loading the model.", server=server), later
        case _:
            return None


def _model_words(fault: RemoteFault) -> tuple[str, str]:
    """Of a model, or of what was asked of it."""
    server, model = fault.server, short_name(fault.model)
    named = model or tr("The model")
    match fault.kind:
        case RemoteFaultKind.NO_MODEL:
            text = tr("{server} does not have the model {model}.", server=server, model=model)
            return text, tr("Choose another model.")
        case RemoteFaultKind.CONTEXT:
            return _context_words(fault), tr(
                "Start a new chat, or set a longer context on the server."
            )
        case RemoteFaultKind.IMAGES:
            text = tr("{model} cannot read images.", model=named)
            return text, tr("Remove them, or choose a model that can.")
        case RemoteFaultKind.TOOLS:
            text = tr("{model} cannot use tools on {server}.", model=named, server=server)
            return text, tr("Switch them off, or choose another model.")
        case RemoteFaultKind.FORMAT:
            text = tr("{server} does not support this answer format.", server=server)
            return text, tr("Choose JSON or free text, or a model on this computer.")
        case RemoteFaultKind.REFUSED if fault.about:
            text = tr("{server} refused the message: {reason}",
                      server=server, reason=_ended(fault.about))  # fmt: skip
            return text, ""
        case RemoteFaultKind.REFUSED:
            return tr("{server} refused the message ({status}).",
                      server=server, status=fault.status), ""  # fmt: skip
        case _ if fault.about:
            text = tr("{server} reports an error: {reason}",
                      server=server, reason=_ended(fault.about))  # fmt: skip
        case _:
            text = tr("{server} reports an error ({status}).", server=server, status=fault.status)
    if fault.partial:
        return text, tr("What has arrived is kept; you can continue it.")
    return text, tr("Try again later.")


def _context_words(fault: RemoteFault) -> str:
    wanted, most = number(fault.tokens), number(fault.most_tokens)
    if fault.tokens and fault.most_tokens:
        return tr("This chat has {count} tokens, and the model can read {most} at once.",
                  count=wanted, most=most)  # fmt: skip
    if fault.most_tokens:
        return tr("This chat is longer than the {most} tokens that the model can read.", most=most)
    return tr("This chat is longer than the model's context.")


def _ended(text: str) -> str:
    """A server's text as the end of a sentence."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
