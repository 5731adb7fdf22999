"""Addresses of this computer in its networks; read from the system, without a connection."""

from __future__ import annotations

from PySide6.QtNetwork import QAbstractSocket, QHostAddress, QNetworkInterface


def own_addresses() -> list[str]:
    """The IPv4 addresses of this computer that other devices may reach, private ones first."""
    flags = QNetworkInterface.InterfaceFlag
    found: list[QHostAddress] = []
    for interface in QNetworkInterface.allInterfaces():
        is_up = interface.flags() & flags.IsUp and interface.flags() & flags.IsRunning
        if is_up and not interface.flags() & flags.IsLoopBack:
            found += [entry.ip() for entry in interface.addressEntries()]
    protocol = QAbstractSocket.NetworkLayerProtocol.IPv4Protocol
    usable = [each for each in found if each.protocol() == protocol and not each.isLinkLocal()]
    usable.sort(key=lambda each: not each.isPrivateUse())
    return [each.toString() for each in usable]
