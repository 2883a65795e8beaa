"""The checks of headers before the body is read."""

import pytest
from starlette.datastructures import Headers

from csi.receiver.request import RequestError, check_bearer, check_length, read_auth_headers

TOKENS = ["current-secret", "previous-secret"]
FULL = [
    (b"authorization", b"Bearer x"),
    (b"x-csi-signature", b"sha256=0"),
    (b"x-csi-timestamp", b"1"),
    (b"x-csi-request-id", b"req_1"),
]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER  "])
def test_either_secret_is_a_bearer_token(scheme: str, token: str) -> None:
    check_bearer(scheme + token, TOKENS)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        "current-secret",
        "Basic current-secret",
        "Bearer current-secre",
        "Bearer current-secret2",
        "Bearer Current-Secret",
        "Bearer ü€\U0001f680",
        "Bearer \udc80",
        "Bearer " + "x" * 10**6,
        "Bearer current-secret, Bearer current-secret",
        "Bearer\tcurrent-secret",
        "Bearer \x00",
    ],
)
def test_anything_else_is_401(value: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_bearer(value, TOKENS)
    assert (caught.value.status, caught.value.reason) == (401, "bad_credentials")


@pytest.mark.parametrize("index", range(4))
def test_each_header_must_be_there_once(index: int) -> None:
    with pytest.raises(RequestError, match="missing_header") as caught:
        read_auth_headers(Headers(raw=FULL[:index] + FULL[index + 1 :]))
    assert caught.value.status == 401
    with pytest.raises(RequestError, match="doubled_header") as caught:
        read_auth_headers(Headers(raw=[*FULL, FULL[index]]))
    assert caught.value.status == 401


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ([], None),
        (["0"], None),
        (["100"], None),
        (["000100"], None),
        (["101"], 413),
        (["9" * 5000], 413),
        (["-1"], 400),
        (["1e3"], 400),
        (["٣"], 400),
        ([""], 400),
        (["1", "1"], 400),
    ],
)
def test_length_is_judged_before_reading(values: list[str], status: int | None) -> None:
    headers = Headers(raw=[(b"content-length", value.encode()) for value in values])
    if status is None:
        check_length(headers, 100)
        return
    with pytest.raises(RequestError) as caught:
        check_length(headers, 100)
    assert caught.value.status == status
