"""Bounded HTTP: one deadline for a whole exchange and a cap on the size of a response."""

from csi.net.address_guard import AddressGuard
from csi.net.client import Net, is_loopback, local_url
from csi.net.response import HttpHeaders, HttpLimits, HttpResponse

__all__ = ["AddressGuard", "HttpHeaders", "HttpLimits", "HttpResponse", "Net", "is_loopback", "local_url"]
