"""Which requests the admin API authorizes: the rules alone."""

import pytest
from starlette.datastructures import Headers

from csi.web.auth import AccessRules, authorize_api_request, host_of
from csi.web.responses import HttpProblem

TOKEN, READ_TOKEN = "canary-admin-token-0123", "canary-reader-token-0123"
OPEN = AccessRules(True, frozenset({"localhost", "127.0.0.1", "[::1]"}), TOKEN, READ_TOKEN)
BEARER = ("authorization", f"Bearer {TOKEN}")
READER = ("authorization", f"Bearer {READ_TOKEN}")


def headers(*pairs: tuple[str, str], host: str | None = "localhost:8091") -> Headers:
    named = [("host", host), *pairs] if host is not None else list(pairs)
    return Headers(raw=[(name.encode(), value.encode("latin-1")) for name, value in named])


def status(rules: AccessRules, method: str, given: Headers) -> int:
    try:
        authorize_api_request(rules, method, given)
    except HttpProblem as error:
        return error.status
    return 200


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([BEARER], 200),
        ([("authorization", f"bearer  {TOKEN}")], 200),
        ([READER], 200),
        ([], 401),
        ([("authorization", "")], 401),
        ([("authorization", "Bearer")], 401),
        ([("authorization", "Bearer ")], 401),
        ([("authorization", TOKEN)], 401),
        ([("authorization", f"Basic {TOKEN}")], 401),
        ([("authorization", f"Bearer {TOKEN}x")], 401),
        ([("authorization", f"Bearer {TOKEN[:-1]}")], 401),
        ([("authorization", f"Bearer {TOKEN.upper()}")], 401),
        ([("authorization", f"Bearer {TOKEN} {TOKEN}")], 401),
        ([("authorization", f"Bearer {TOKEN}, Bearer {TOKEN}")], 401),
        ([BEARER, BEARER], 401),
        ([("authorization", "Bearer " + "a" * 1_000_000)], 401),
        ([("authorization", "Bearer \xfc\xff\x00")], 401),
        ([("cookie", f"token={TOKEN}")], 401),
        ([("x-csi-admin-token", TOKEN)], 401),
    ],
)
def test_only_one_right_bearer_token_opens(pairs: list[tuple[str, str]], expected: int) -> None:
    assert status(OPEN, "GET", headers(*pairs)) == expected


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "FOO"])
def test_the_read_token_only_reads(method: str) -> None:
    assert status(OPEN, method, headers(READER)) == 403
    assert status(OPEN, method, headers(BEARER)) == 200
    assert status(OPEN, "HEAD", headers(READER)) == 200


def test_without_tokens_it_is_closed_even_to_an_empty_one() -> None:
    closed = AccessRules(True, OPEN.hosts, None, None)
    assert status(closed, "GET", headers(("authorization", "Bearer "))) == 403
    only_reader = AccessRules(True, OPEN.hosts, None, READ_TOKEN)
    assert status(only_reader, "GET", headers(("authorization", "Bearer "))) == 401
    assert status(only_reader, "GET", headers(READER)) == 200
    assert status(only_reader, "POST", headers(READER)) == 403


def test_switched_off_is_not_there() -> None:
    assert status(AccessRules(False, OPEN.hosts, TOKEN, None), "GET", headers(BEARER)) == 404


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200),
        ("LOCALHOST:80", 200),
        ("127.0.0.1:8091", 200),
        ("[::1]", 200),
        ("[::1]:8091", 200),
        (None, 421),
        ("", 421),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("localhost:8091:8091", 421),
        ("localhost:", 421),
        ("localhost:port", 421),
        ("user@localhost", 421),
        ("localhost/evil", 421),
        ("localhost, evil.example", 421),
        ("localhost\x00", 421),
        ("::1", 421),
        ("[::1", 421),
        ("l\xf6calhost", 421),
        ("a" * 100_000, 421),
    ],
)
def test_the_host_must_be_ours(host: str | None, expected: int) -> None:
    assert status(OPEN, "GET", headers(BEARER, host=host)) == expected


def test_two_hosts_are_none() -> None:
    assert host_of(headers(("host", "localhost"))) is None


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("origin", "http://localhost:8091")], 200),
        ([("origin", "https://127.0.0.1")], 200),
        ([("origin", "http://[::1]:8091")], 200),
        ([("sec-fetch-site", "same-origin")], 200),
        ([("sec-fetch-site", "none")], 200),
        ([("origin", "null")], 403),
        ([("origin", "")], 403),
        ([("origin", "https://evil.example")], 403),
        ([("origin", "https://localhost.evil.example")], 403),
        ([("origin", "file://localhost")], 403),
        ([("origin", "http://[::1")], 403),
        ([("origin", "http://localhost"), ("origin", "https://evil.example")], 403),
        ([("sec-fetch-site", "cross-site")], 403),
        ([("sec-fetch-site", "Cross-Site ")], 403),
    ],
)
def test_a_post_from_another_site_is_refused_whatever_its_token(pairs: list[tuple[str, str]], expected: int) -> None:
    assert status(OPEN, "POST", headers(BEARER, *pairs)) == expected
    assert status(OPEN, "GET", headers(BEARER, *pairs)) == 200
