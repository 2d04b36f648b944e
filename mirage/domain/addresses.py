"""Network addresses as bounds count them, and as URLs spell them."""

from __future__ import annotations

import ipaddress


def client_network(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or the /64 network that an IPv6 host has to itself.

    Other texts are returned as they are.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def host_in_url(host: str) -> str:
    """Return the host as URLs and ``Host`` headers have it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
