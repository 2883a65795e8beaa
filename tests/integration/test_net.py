"""What a caller of csi.net gets: answers, reuse of connections, and refusals before anything is sent."""

import gzip
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pytest_httpx import HTTPXMock

from csi import __version__
from csi.emitter.verdict import EndpointFault, judge
from csi.errors import NetError
from csi.net import HttpHeaders, HttpLimits, HttpResponse, Net, is_loopback
from csi.net.address_guard import ConfiguredHosts
from tests.fakes.raw_server import Hang, RawRequest, RawServer, Script, Send, answer

TLS = Path(__file__).parents[1] / "data" / "tls"


@pytest.fixture
def net():
    with Net(limits=HttpLimits(total=5.0)) as client:
        yield client


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every host that a client tried to connect to."""
    hosts: list[str] = []
    real = socket.getaddrinfo

    def spy(host, *args, **kwargs):
        hosts.append(host)
        return real(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", spy)
    return hosts


def refuse(net: Net, url: str, **headers: str) -> NetError:
    with pytest.raises(NetError) as caught:
        net.get(url, headers=headers)
    return caught.value


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


def test_get_gives_status_headers_body_and_a_url_without_its_query(net: Net) -> None:
    said = answer(404, b"nope", [("ETag", '"1"'), ("Retry-After", "5"), ("retry-after", "9")])
    with RawServer([Send(said)]) as server:
        got = net.get(f"{server.url}/a/b?key=secret#part", headers={"X-Key": "v"})
    assert (got.status, got.body, got.url) == (404, b"nope", f"{server.url}/a/b")
    assert got.headers["etag"] == got.headers.get("ETAG") == '"1"'
    assert got.headers.get("Retry-After") == "5"
    assert got.headers.get_list("Retry-After") == ["5", "9"]
    assert "x-none" not in got.headers
    assert got.headers.get_list("x-none") == []
    assert 0 < got.elapsed < 5
    asked = server.requests[0]
    assert (asked.method, asked.target) == ("GET", "/a/b?key=secret")
    assert asked.headers["x-key"] == "v"
    assert asked.headers["accept-encoding"] == "gzip"
    assert asked.headers["user-agent"].startswith(f"csi/{__version__}")


def test_post_sends_exactly_these_bytes_and_follows_nothing(net: Net) -> None:
    body = '{"title":"Über 🚀"}'.encode()
    with RawServer([Send(answer(307, b"x", [("Location", "/other")]))]) as server:
        got = net.post(f"{server.url}/in", body=body, headers={"Content-Type": "application/json"})
    assert (got.status, len(server.requests)) == (307, 1)
    asked = server.requests[0]
    assert (asked.method, asked.body) == ("POST", body)
    assert asked.headers["content-length"] == str(len(body))


def test_an_early_refusal_of_a_large_body_is_read_as_an_answer(net: Net) -> None:
    with RawServer([Send(answer(413, b"too big")), Hang(0.2)], read_requests=False) as server:
        got = net.post(server.url, body=b"x" * 200_000, headers={})
    assert got.status == 413


def test_a_thousand_requests_use_one_connection(net: Net) -> None:
    with RawServer() as server:
        for _ in range(1000):
            assert net.get(server.url).status == 200
        assert server.connections == 1
        assert len(server.requests) == 1000


def test_threads_share_a_net(net: Net) -> None:
    def echo(asked: RawRequest) -> Script:
        return [Send(answer(200, asked.target.encode()))]

    with RawServer(echo) as server, ThreadPoolExecutor(8) as threads:
        paths = [f"/{number}" for number in range(200)]
        bodies = list(threads.map(lambda path: net.get(server.url + path).body.decode(), paths))
    assert bodies == paths
    assert server.connections <= 8


def test_when_all_connections_are_taken_it_is_busy() -> None:
    with Net(max_connections=1) as net, RawServer([Hang(1)]) as server:
        limits = HttpLimits(total=0.6)
        with ThreadPoolExecutor(1) as threads:
            taken = threads.submit(net.get, server.url, limits=limits)
            while not server.requests:
                time.sleep(0.005)
            with pytest.raises(NetError) as caught:
                net.get(server.url, limits=HttpLimits(total=0.1))
        assert isinstance(taken.exception(), NetError)
    assert caught.value.kind == "busy"


def test_a_closed_net_opens_again_and_a_forked_one_shares_no_socket(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer() as server:
        net.get(server.url)
        net.close()
        net.close()
        net.get(server.url)
        assert server.connections == 2
        monkeypatch.setattr("csi.net.client.os.getpid", lambda: 1)
        net.get(server.url)
        assert server.connections == 3


def test_a_net_costs_nothing_until_it_is_used() -> None:
    began = time.perf_counter()
    for _ in range(1000):
        Net()
    assert time.perf_counter() - began < 2.0


def test_cookies_are_forgotten(net: Net) -> None:
    with RawServer([Send(answer(200, b"", [("Set-Cookie", "a=b; Path=/")]))]) as server:
        net.get(server.url)
        net.get(server.url)
    assert "cookie" not in server.requests[1].headers


def test_proxy_variables_and_netrc_are_ignored(net: Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    with RawServer([Send(answer(200, b"direct"))]) as server, RawServer() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        assert net.get(server.url).body == b"direct"
    assert proxy.connections == 0
    assert "authorization" not in server.requests[0].headers


def test_pytest_httpx_can_stand_in(net: Net, httpx_mock: HTTPXMock) -> None:
    httpx_mock.add_response(url="https://example.com/a?b=1", json={"ok": True}, headers={"ETag": "x"})
    httpx_mock.add_response(
        url="https://example.com/z", content=gzip.compress(b"zipped", mtime=0), headers={"Content-Encoding": "gzip"}
    )
    assert net.get("https://example.com/a?b=1").body == b'{"ok":true}'
    assert net.get("https://example.com/z").body == b"zipped"


def test_headers_show_names_but_no_values() -> None:
    shown = repr(HttpResponse(200, HttpHeaders({"Set-Cookie": "secret"}), b"", "https://example.com/"))
    assert "set-cookie" in shown
    assert "secret" not in shown


# ── refusals before anything is sent ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("", "bad_url"),
        ("example.com/x", "bad_url"),
        ("ftp://example.com/x", "bad_url"),
        ("file:///etc/passwd", "bad_url"),
        ("https:///x", "bad_url"),
        ("https://user:pw@example.com/", "bad_url"),
        ("https://example.com:99999/", "bad_url"),
        ("https://example.com/a b", "bad_url"),
        ("https://example.com/\r\nX: y", "bad_url"),
        ("https://exa\u2028mple.com/", "bad_url"),
        ("https://[::1/", "bad_url"),
        ("http://example.com/x", "insecure"),
        ("http://127.0.0.1.example.com/x", "insecure"),
        ("http://localhost.example.com/x", "insecure"),
        ("http://169.254.169.254/latest", "insecure"),
    ],
)
def test_addresses_that_are_never_contacted(net: Net, looked_up: list[str], url: str, kind: str) -> None:
    error = refuse(net, url + "?key=kNvCanary7316" if url else url)
    assert error.kind == kind
    assert "Canary" not in str(error)
    assert "pw" not in str(error)
    assert looked_up == []


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "a\x00b", "a\x7fb", "a ", " a", "日本", "\ud800"])
def test_header_values_that_are_never_sent_nor_shown(net: Net, looked_up: list[str], value: str) -> None:
    error = refuse(net, "http://127.0.0.1:9/", **{"X-Goog-Api-Key": f"{value}Canary{value}"})
    assert error.kind == "protocol"
    assert "X-Goog-Api-Key" in str(error)
    assert "Canary" not in str(error)
    assert looked_up == []


def test_latin_1_header_values_and_odd_names(net: Net) -> None:
    with RawServer() as server:
        net.get(server.url, headers={"X-Name": "Zoë", "X-Empty": ""})
    assert server.requests[0].headers["x-name"] == "Zoë"
    assert server.requests[0].headers["x-empty"] == ""
    assert refuse(net, server.url, **{"X Bad:": "v"}).kind == "protocol"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1", "[::1]"])
def test_loopback_hosts(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "localhost.", "0.0.0.0", "10.0.0.1", "::", "example.com", "127.1"])
def test_other_hosts(host: str) -> None:
    assert not is_loopback(host)


def test_a_closed_port_and_an_unknown_name(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer() as server:
        pass
    error = refuse(net, f"{server.url}/x?key=1")
    assert error.kind == "connect"
    assert str(error) == f"127.0.0.1:{server.port}/x: cannot connect (Connection refused)"
    assert error.cause == "connection refused"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: (_ for _ in ()).throw(socket.gaierror(-2, "x")))
    error = refuse(net, "https://nowhere.invalid/x")
    assert (error.kind, str(error)) == ("connect", "nowhere.invalid/x: the host name does not resolve")
    assert error.cause == "name cannot be resolved"


@pytest.mark.parametrize(
    ("address", "url", "kind"),
    [
        ("10.0.0.5", "https://ua.example.com/x", "private"),
        ("127.0.0.1", "https://ua.example.com/x", "private"),
        ("93.184.216.34", "http://ua.example.com/x", "insecure"),
    ],
)
def test_a_configured_name_that_points_elsewhere_is_not_dialled(
    monkeypatch: pytest.MonkeyPatch, address: str, url: str, kind: str
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with Net(allow_insecure_http=True, guard=ConfiguredHosts()) as guarded:
        error = refuse(guarded, url)
    assert (error.kind, error.sent) == (kind, False)
    assert "net.allowed_private_hosts" in str(error)
    assert isinstance(judge(error, 1, 0.0), EndpointFault)  # its events wait, none becomes a dead letter


def test_a_second_address_is_tried_when_the_first_is_dead(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    dead_first = real("127.0.0.9", 0, type=socket.SOCK_STREAM) + real("127.0.0.1", 0, type=socket.SOCK_STREAM)
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *a, **k: dead_first if host == "localhost" else real(host, *a, **k),
    )
    with RawServer() as server:
        assert net.get(f"http://localhost:{server.port}/").status == 200


# ── redirects ─────────────────────────────────────────────────────────────────────────────────────


def moved(location: str, status: int = 302) -> Script:
    return [Send(answer(status, b"moved", [("Location", location)]))]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_on_the_same_host_is_followed_with_its_headers(net: Net, status: int) -> None:
    with RawServer(moved("/there?x=1", status), [Send(answer(200, b"here"))]) as server:
        got = net.get(f"{server.url}/from", headers={"X-Key": "v"})
    assert (got.body, got.url) == (b"here", f"{server.url}/there")
    assert (server.requests[1].target, server.requests[1].headers["x-key"]) == ("/there?x=1", "v")


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "https://169.254.169.254/latest/meta-data/",
        "https://metadata.google.internal/",
        "https://example.com/",
        "//example.com/",
        "http://localhost:{port}/",
        "http://127.0.0.2:{port}/",
        "http://[::1]:{port}/",
        "http://127.0.0.1:{canary}/",
        "http://me:pw@127.0.0.1:{port}/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:{port}/",
        "javascript:alert(1)",
        "http://",
        "http://127.0.0.1:99999/",
    ],
)
def test_a_redirect_elsewhere_is_refused_before_connecting(net: Net, looked_up: list[str], location: str) -> None:
    with RawServer() as canary:

        def script(_: RawRequest) -> Script:
            return moved(location.format(port=server.port, canary=canary.port))

        with RawServer(script) as server:
            error = refuse(net, server.url + "/?key=Canary")
    assert error.kind == "redirect"
    assert "Canary" not in str(error)
    assert (canary.connections, len(server.requests)) == (0, 1)
    assert set(looked_up) == {"127.0.0.1"}


def test_circles_long_ways_and_no_way(net: Net) -> None:
    with RawServer(moved("/b"), moved("/a")) as server:
        assert "circle" in str(refuse(net, server.url + "/a"))
        assert len(server.requests) == 2
    steps = [moved(f"/{number}") for number in range(9)]
    with RawServer(*steps) as server:
        assert "more than 3" in str(refuse(net, server.url))
        assert len(server.requests) == 4
    with RawServer([Send(answer(302))]) as server:
        assert refuse(net, server.url).kind == "redirect"
    two = [("Location", "/a"), ("Location", "/b")]
    with RawServer([Send(answer(302, b"", two))]) as server:
        assert refuse(net, server.url).kind == "redirect"


def test_a_304_is_not_a_redirect(net: Net) -> None:
    with RawServer([Send(answer(304, b"", [("Location", "/x")]))]) as server:
        assert net.get(server.url).status == 304


@pytest.mark.parametrize(
    "location", ["http://a.example/x", "https://a.example:8443/x", "https://b.example/x", "http://127.0.0.1/"]
)
def test_https_never_leads_to_http_another_port_or_this_machine(httpx_mock: HTTPXMock, location: str) -> None:
    httpx_mock.add_response(url="https://a.example/x", status_code=301, headers={"Location": location})
    net = Net(allow_insecure_http=True)
    assert refuse(net, "https://a.example/x").kind == "redirect"


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────────


def serving(name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / f"{name}.pem", TLS / f"{name}.key")
    return context


def trusting(name: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=TLS / f"{name}.pem")


def test_a_trusted_certificate_is_accepted() -> None:
    hello = [Send(answer(200, b"hello"))]
    with RawServer(hello, tls=serving("localhost")) as server, Net(verify=trusting("localhost")) as net:
        assert net.get(server.url).body == b"hello"
        assert net.get(server.url.replace("127.0.0.1", "localhost")).body == b"hello"
        assert net.get(server.url).certificate_expires_at == 4_733_510_400.0
    with RawServer(hello) as server, Net() as net:
        assert net.get(server.url).certificate_expires_at is None


@pytest.mark.parametrize(
    ("name", "verify", "words", "cause"),
    [
        ("localhost", None, "self-signed", "certificate is not signed by an authority that this machine trusts"),
        ("expired", "expired", "expired", "certificate expired on 2020-02-01"),
        ("other", "other", "not valid for '127.0.0.1'", "certificate is for another host name"),
    ],
)
def test_bad_certificates_are_refused_and_nothing_is_sent(
    name: str, verify: str | None, words: str, cause: str
) -> None:
    net = Net(verify=trusting(verify) if verify else None)
    with RawServer(tls=serving(name)) as server, pytest.raises(NetError) as caught:
        net.post(f"{server.url}/in?key=Canary", body=b"secret", headers={"Authorization": "Bearer x"})
    assert (caught.value.kind, caught.value.cause) == ("tls", cause)
    assert words.replace("-", " ") in str(caught.value).replace("-", " ")
    assert "Canary" not in str(caught.value)
    assert server.requests == []


def test_https_to_a_plain_http_port_is_a_tls_error(net: Net) -> None:
    with RawServer([Send(answer(400))], read_requests=False) as server:
        assert refuse(net, server.url.replace("http:", "https:")).kind == "tls"
