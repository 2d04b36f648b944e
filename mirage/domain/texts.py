"""Texts that others wrote, made fit to be stored and shown: characters, lengths, network addresses, secrets."""

from __future__ import annotations

import ipaddress
import re


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


_PASSWORD = re.compile(r"(://[^:@/]*):.*@")
_PARAMETER = re.compile(r"([?&](?:password|sslpassword|token|key)=)[^&#]*", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """``text`` with ``***`` for a password within a URL and for parameters that are one."""
    return _PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))


def storable(text: str) -> str:
    """Return the text as every database and every encoder takes it: a NUL or a stray byte becomes a mark."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def printable(text: str) -> str:
    """Return the text with a question mark for each control character, line break and mark of direction."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)


def one_line(text: str, longest: int) -> str:
    """Return the text as one printable line of at most ``longest`` characters."""
    return printable(" ".join(text[: 2 * longest].split()))[:longest]
