"""Which hosts are on a private network, by their names or numbers."""

from __future__ import annotations

import ipaddress

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
# Names that are never of the public network: RFC 6762, RFC 8375, ICANN's .internal, routers.
_PRIVATE_ENDS = (".local", ".localhost", ".home.arpa", ".internal", ".lan", ".home", ".intranet")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Not public, which Python does not know: sites (RFC 3879), examples (RFC 9637), SRv6 (RFC 9602).
_MORE_PRIVATE = tuple(map(ipaddress.ip_network, ("fec0::/10", "3fff::/20", "5f00::/16")))


def is_private(host: str) -> bool:
    """Whether a host is this machine, or on a network that is not the public one.

    A name is judged by its form: what it leads to is not looked up.
    """
    if host_number(host) is not None:
        return not is_public(host)
    name = host.lower().rstrip(".")
    return "." not in name or name.endswith(_PRIVATE_ENDS)


def is_public(address: str) -> bool:
    """Whether an IP address is on the public internet, also if it stands for another one."""
    number = host_number(address.partition("%")[0])
    if number is None:
        return False
    if isinstance(number, ipaddress.IPv6Address):
        if any(number in network for network in _MORE_PRIVATE):
            return False
        number = _inner(number) or number
    return number.is_global and not (number.is_multicast or number.is_reserved)


def _inner(number: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for: of 6to4, Teredo, NAT64, or its old form."""
    if number in _NAT64 or int(number) >> 32 == 0:
        return ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)
    return number.sixtofour or (number.teredo or (None, None))[1]


def host_number(host: str) -> IPAddress | None:
    """The IP address of a host that is one; the IPv4 address inside an IPv6 one; None for a name."""
    try:
        number = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = number.ipv4_mapped if number.version == 6 else None
    return mapped or number
