"""Which network addresses a request may reach, where users or feeds choose the URL.

The address is checked after the name is resolved and before the connection is made, at every redirect: a name that
points into a private network, or that points there at the second lookup only, reaches nothing.
"""

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_UNICAST = ipaddress.ip_network("2000::/3")
"""What IPv6 assigns on the public internet. Outside are site-local addresses and forms that carry an IPv4 address."""
_TUNNELS = (ipaddress.ip_network("2002::/16"), ipaddress.ip_network("2001::/32"))
_OTHER_CARRIERS = (ipaddress.ip_network("::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
"""IPv4-compatible addresses, and NAT64 of a local network: the last 32 bits are an IPv4 address."""

_METADATA = frozenset(
    {"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"}
)
"""Services of Amazon, Google, Alibaba, Azure and Oracle that hand out a machine's credentials and are not in the
link-local range."""


_LOCAL_DOMAINS = frozenset(
    {"localhost", "local", "localdomain", "internal", "intranet", "lan", "home", "corp", "private", "test"}
)


class AddressGuard:
    """Refuses private, loopback, link-local, metadata and other addresses that are not on the public internet.

    `allowed`: hosts that may be reached all the same, as `name`, `address`, `name:port` or `address:port`.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.allow(allowed)

    def allow(self, allowed: Iterable[str]) -> None:
        """Replace the allowed hosts: a reload may change them."""
        self._allowed = frozenset(host.lower() for host in allowed)

    def public(self, host: str, port: int, addresses: Iterable[str]) -> list[str]:
        """Those of the resolved addresses that may be connected to."""
        return [address for address in addresses if is_public(address) or self._is_allowed(host, address, port)]

    def _is_allowed(self, host: str, address: str, port: int) -> bool:
        names = (host.strip("[]").lower(), address.lower())
        return any(name in self._allowed or f"{name}:{port}" in self._allowed for name in names)


class ConfiguredHosts(AddressGuard):
    """For hosts that the operator configured. An address in the configuration is reached as it is. A name of the
    public DNS reaches public addresses only, a local name (`receiver`, `ua.internal`, `localhost`) private ones, too.
    Plain http reaches private and loopback addresses only. `allowed` lifts these rules for a host."""

    def reachable(self, host: str, port: int, addresses: Iterable[str], *, plain_http: bool) -> list[str]:
        """Those of the resolved addresses that may be connected to."""
        is_near = _is_address(host) or is_local_name(host)
        return [
            address
            for address in without_metadata(host, addresses)
            if self._is_allowed(host, address, port) or (not plain_http if is_public(address) else is_near)
        ]


def is_local_name(host: str) -> bool:
    """Whether the public DNS has no such name: one without a dot, or under a domain for private use."""
    labels = host.lower().rstrip(".").split(".")
    return len(labels) == 1 or labels[-1] in _LOCAL_DOMAINS or labels[-2:] == ["home", "arpa"]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def without_metadata(host: str, addresses: Iterable[str]) -> list[str]:
    """For hosts that the operator configured, which may be private: a name that suddenly points to the services of a
    cloud's host reaches nothing. Such an address is reached only where it is configured as an address."""
    return [address for address in addresses if not is_metadata(address) or host.strip("[]") == address]


def is_metadata(address: str) -> bool:
    """Whether this is an address of a cloud's host services: link-local, multicast, unspecified. False for a name."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = _carried(found) or found
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.sixtofour or inner
        if any(found in network for network in _OTHER_CARRIERS):
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    return inner.is_link_local or inner.is_multicast or inner.is_unspecified or str(inner) in _METADATA


def is_public(address: str) -> bool:
    """Whether this address is on the public internet. One that carries an IPv4 address is judged by that."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = _carried(found)
    if inner is not None:
        return is_public(str(inner))
    if found.version == 6 and (found not in _UNICAST or any(found in tunnel for tunnel in _TUNNELS)):
        return False
    return found.is_global and not found.is_multicast and str(found) not in _METADATA


def _carried(found: Address) -> ipaddress.IPv4Address | None:
    if found.version == 4:
        return None
    if found in _NAT64:
        return ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    return found.ipv4_mapped
