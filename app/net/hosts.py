"""Which hosts are on a private network, by their names."""

from __future__ import annotations

import ipaddress

_CGNAT = ipaddress.ip_network("100.64.0.0/10")  # between a provider and its customers; Tailscale
# Names that are never of the public network: RFC 6762, RFC 8375, ICANN's .internal, routers.
_PRIVATE_ENDS = (".local", ".localhost", ".home.arpa", ".internal", ".lan", ".home", ".intranet")


def is_private(host: str) -> bool:
    """Whether a host is this machine, or on a network that is not the public one, by its name."""
    number = host_number(host)
    if number is not None:
        private = number.is_private or number.is_link_local or number.is_loopback
        return private or (number.version == 4 and number in _CGNAT)
    name = host.lower().rstrip(".")
    return "." not in name or name.endswith(_PRIVATE_ENDS)


def host_number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address of a host that is one; the IPv4 address inside an IPv6 one; None for a name."""
    try:
        number = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = number.ipv4_mapped if number.version == 6 else None
    return mapped or number
