"""Which addresses are public, and which hosts are allowed all the same."""

import pytest

from csi.net import AddressGuard
from csi.net.address_guard import ConfiguredHosts, is_metadata, is_public


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822"])
def test_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.9.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "192.0.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"),
        *("::1", "::", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *(
            "168.63.129.16",
            "::ffff:168.63.129.16",
            "fd20:ce::254",
            "fec0::1",
            "::7f00:1",
            "::ffff:0:7f00:1",
            "64:ff9b:1::7f00:1",
            "5f00::1",
        ),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:0:4136:e378::", "localhost", "", "1.2.3"),
    ],
)
def test_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "0.0.0.0", "::"),
        *("fd00:ec2::254", "fd20:ce::254", "fe80::a9fe:a9fe%eth0", "::ffff:169.254.169.254", "::ffff:168.63.129.16"),
        *("64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::", "::a9fe:a9fe"),
    ],
)
def test_services_of_a_clouds_host_in_every_form(address):
    assert is_metadata(address)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.5", "fd00::1", "93.184.216.34", "64:ff9b:1::a00:5"])
def test_other_addresses_are_no_services_of_a_clouds_host(address):
    assert not is_metadata(address)


@pytest.mark.parametrize(
    ("allowed", "passes"),
    [
        ([], False),
        (["127.0.0.1"], True),
        (["127.0.0.1:8100"], True),
        (["127.0.0.1:8101"], False),
        (["intranet.example.org"], True),
        (["Intranet.example.org:8100"], True),
        (["other.example.org"], False),
    ],
)
def test_a_private_host_is_allowed_by_name_or_address_with_or_without_port(allowed, passes):
    found = AddressGuard(allowed).public("intranet.example.org", 8100, ["127.0.0.1"])
    assert bool(found) is passes


def test_of_several_addresses_the_public_ones_stay():
    assert AddressGuard().public("x.example.org", 443, ["10.0.0.1", "93.184.216.34"]) == ["93.184.216.34"]


@pytest.mark.parametrize(
    ("host", "address", "plain_http", "reached"),
    [
        ("ua.example.com", "93.184.216.34", False, True),
        ("ua.example.com", "10.0.0.5", False, False),
        ("ua.example.com", "127.0.0.1", False, False),
        ("ua.example.com", "169.254.169.254", False, False),
        ("ua.example.com", "93.184.216.34", True, False),
        ("receiver", "172.18.0.3", True, True),
        ("ua.internal", "10.0.0.5", True, True),
        ("ua.internal", "93.184.216.34", True, False),
        ("ua.internal", "169.254.169.254", True, False),
        ("localhost", "127.0.0.1", True, True),
        ("10.0.0.5", "10.0.0.5", True, True),
        ("93.184.216.34", "93.184.216.34", True, False),
        ("split.example.com", "10.0.0.5", True, True),
    ],
)
def test_a_configured_name_reaches_only_what_it_may(host, address, plain_http, reached):
    guard = ConfiguredHosts(["split.example.com"])
    assert guard.reachable(host, 443, [address], plain_http=plain_http) == ([address] if reached else [])
