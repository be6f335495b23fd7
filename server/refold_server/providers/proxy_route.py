"""The way to an address: directly, or through the proxy that the configuration or the environment names.

Variables are read as people set them: in small or capital letters, with or without a scheme, in quotes, empty for none.
`NO_PROXY` holds names, suffixes, addresses, networks and ports, divided by commas or blanks. This machine is never reached
through a proxy of the environment: no proxy knows the way to it. Opens no connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from refold_protocol.errors import ProviderError

DIRECT: Final = "none"
"""What a configuration says for: through no proxy, whatever the environment names."""

_SCHEMES: Final = ("http", "https", "socks5", "socks5h")


class ProxyRoute(Struct, frozen=True):
    """How an address is reached. `proxy` is the proxy's whole address, None for directly; `named_by` is what names it."""

    proxy: str | None = None
    named_by: str = ""

    @property
    def shown(self) -> str:
        """The proxy's address without user and password, and what names it."""
        parts = urlsplit(self.proxy or "")
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]} ({self.named_by})"


def route_to(url: str, configured: str | None, setting: str, environment: Mapping[str, str]) -> ProxyRoute:
    """Find the way to `url`. `configured` is the proxy of the configuration, in the setting `setting`, or DIRECT.

    Raises ProviderError `provider.unreachable` when what is named is no proxy's address.
    """
    if configured is not None:
        return ProxyRoute() if configured == DIRECT else ProxyRoute(_proxy_address(configured, setting), setting)
    parts = urlsplit(url)
    if _is_this_machine(parts.hostname or "") or _is_exempt(parts, _variable(environment, "no_proxy")[0]):
        return ProxyRoute()
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        value, named_by = _variable(environment, name)
        if value:
            return ProxyRoute(_proxy_address(value, named_by), named_by)
    return ProxyRoute()


def _variable(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """Give a variable and its name as it is spelled; small letters go first, also where they say: none."""
    for spelled in (name, name.upper()):
        if spelled in environment and not (spelled == "HTTP_PROXY" and "REQUEST_METHOD" in environment):  # a CGI's header
            return environment[spelled].strip().strip("\"'").strip(), spelled
    return "", name


def _proxy_address(text: str, named_by: str) -> str:
    address = text if "://" in text else f"http://{text}"
    address = re.sub(r"^socks(4a?)?://", lambda found: found[0] if found[1] else "socks5://", address, flags=re.IGNORECASE)
    try:
        parts = urlsplit(address)
        usable = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # urllib's word for a broken host or port
        usable = False
    if not usable:
        raise ProviderError(
            "provider.unreachable",
            f"the proxy that {named_by} names cannot be used; write it as http://HOST:PORT (also https, socks5)",
            lasting=True,
        )
    return address


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:  # a name
        return False
    return address.is_loopback or address.is_unspecified


def _is_exempt(parts: SplitResult, listed: str) -> bool:
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return any(_matches(entry, host, port) for entry in re.split(r"[\s,;]+", listed.lower()) if entry)


def _matches(entry: str, host: str, port: int) -> bool:
    """Tell whether an entry of NO_PROXY names a host: itself, or a domain that it belongs to, or a network."""
    if entry == "*":
        return True
    entry = entry.rpartition("://")[2].rstrip("/") if "://" in entry else entry
    found = re.fullmatch(r"(\[[^]]*\]|[^:]*):(\d+)", entry)
    if found is not None:
        entry = found[1]
        if int(found[2]) != port:
            return False
    entry = entry.strip("[]")
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except (ValueError, TypeError):  # one of them is a name, or they are of two versions
        pass
    domain = entry.removeprefix("*").strip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))
