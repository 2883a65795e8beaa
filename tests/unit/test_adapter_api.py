"""The Data API's client: booked calls, key or token in a header, refusals decided by their reason."""

import json
import threading
from urllib.parse import parse_qsl

import pytest

from csi.adapters.youtube.api import ApiSettings, DataApi, VideoDetails
from csi.adapters.youtube.api_errors import REASONS, api_json
from csi.config.durations import duration_seconds
from csi.errors import SourceError
from csi.simulator.youtube.api_errors import REASONS as SIMULATED
from csi.simulator.youtube.api_errors import error_body
from tests.fakes.stub_net import Ledger, StubNet, refusal, reply, tools

NOW = 1_771_761_600.0
OAUTH = {
    "YOUTUBE_OAUTH_CLIENT_ID": "the-client",
    "YOUTUBE_OAUTH_CLIENT_SECRET": "the-client-secret",
    "YOUTUBE_OAUTH_REFRESH_TOKEN": "the-refresh-token",
}
EMPTY = {"items": []}


def client(answer, *, ledger=None, **more):
    net = StubNet(answer)
    ledger = ledger or Ledger()
    return DataApi(ApiSettings(), tools(net, charge=ledger.charge, exhaust=ledger.exhaust, **more)), net, ledger


def failure(api, *args, **kwargs) -> SourceError:
    with pytest.raises(SourceError) as caught:
        api.items("PL1", *args, **kwargs)
    return caught.value


# ── what is asked ───────────────────────────────────────────────────────────────────────────────────────


def test_the_key_travels_in_a_header_and_never_in_the_url():
    api, net, _ = client([reply(EMPTY)])
    api.items("PL1")
    assert net.asked[0].headers == {"X-Goog-Api-Key": "the-key"}
    assert "the-key" not in json.dumps(net.asked[0].query)


def test_a_unit_is_booked_before_the_call_even_when_it_fails():
    api, _, ledger = client([reply(b"<html>", 500)])
    failure(api)
    assert ledger.used == 1


def test_a_call_that_the_budget_does_not_allow_is_not_made():
    api, net, _ = client([], ledger=Ledger(left=0))
    assert failure(api).kind == "budget"
    assert net.asked == []


def test_without_a_key_nothing_is_asked_and_the_variable_is_named():
    api, net, ledger = client([], key=None)
    error = failure(api)
    assert (error.kind, ledger.used, net.asked, api.usable) == ("auth", 0, [], False)
    assert "YOUTUBE_API_KEY" in str(error)


def test_a_304_costs_a_unit_and_is_nothing_without_a_condition():
    api, net, ledger = client([reply(b"", 304), reply(b"", 304)])
    assert api.items("PL1", etag="abc") is None
    assert net.asked[0].headers["If-None-Match"] == "abc"
    assert ledger.used == 1
    assert failure(api).kind == "malformed"


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────

KINDS = {
    "quotaExceeded": "quota",
    "dailyLimitExceeded": "quota",
    "rateLimitExceeded": "throttled",
    "userRateLimitExceeded": "throttled",
    "keyInvalid": "auth",
    "API_KEY_INVALID": "auth",
    "accessNotConfigured": "auth",
    "ipRefererBlocked": "auth",
    "forbidden": "auth",
    "authError": "auth",
    "playlistItemsNotAccessible": "denied",
    "watchHistoryNotAccessible": "denied",
    "watchLaterNotAccessible": "denied",
    "playlistNotFound": "missing",
    "invalidPageToken": "transient",
    "badRequest": "bug",
    "unknownPart": "bug",
    "required": "bug",
    "missingRequiredParameter": "bug",
    "notFound": "transient",
    "backendError": "transient",
    "unavailable": "transient",
}


def test_the_simulators_reasons_are_all_in_the_table():
    assert set(KINDS) == set(SIMULATED)


@pytest.mark.parametrize("reason", KINDS)
def test_every_refusal_of_the_simulator_is_decided_by_its_reason(reason):
    status, body = error_body(reason)
    error = failure(client([reply(body, status)])[0])
    assert error.kind == KINDS[reason]
    assert "<" not in str(error)


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_the_reason_counts_whatever_the_status_and_no_html_is_shown(reason, status):
    error = failure(client([refusal(reason, status)])[0])
    kind = REASONS[reason][0]
    # A used-up quota stops every read until midnight: it is believed with its own status only.
    assert error.kind == ("transient" if kind == "quota" and status != 403 else kind)
    assert "<" not in str(error)
    assert "{" not in str(error)


def test_quota_exceeded_corrects_the_ledger_and_nothing_else_does():
    for reason, times in (("quotaExceeded", 1), ("dailyLimitExceeded", 1), ("rateLimitExceeded", 0)):
        api, _, ledger = client([refusal(reason)])
        failure(api)
        assert ledger.exhausted == times


def test_a_rate_limit_of_a_whole_day_is_the_quota():
    details = [{"reason": "RATE_LIMIT_EXCEEDED", "metadata": {"quota_limit": "defaultPerDayPerProject"}}]
    assert failure(client([refusal("rateLimitExceeded", 429, details=details)])[0]).kind == "quota"
    details[0]["metadata"]["quota_limit"] = "defaultPerMinutePerProject"
    assert failure(client([refusal("rateLimitExceeded", 429, details=details)])[0]).kind == "throttled"


def test_a_vague_reason_gives_way_to_a_clear_one():
    details = [{"reason": "API_KEY_INVALID"}]
    assert "not valid" in str(failure(client([refusal("badRequest", 400, details=details)])[0]))
    details = [{"reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}]
    assert "youtube.readonly" in str(failure(client([refusal("forbidden", 403, details=details)])[0]))


def test_the_operators_own_variable_is_named():
    settings = ApiSettings(api_key_env="MY_KEY")
    net = StubNet([refusal("keyInvalid", 400)])
    with pytest.raises(SourceError, match="MY_KEY"):
        DataApi(settings, tools(net, secrets={"MY_KEY": "k"})).items("PL1")


def test_a_throttling_api_says_how_long():
    status, body = error_body("rateLimitExceeded")
    assert failure(client([reply(body, status, retry_after="90")])[0]).retry_after == 90.0
    assert failure(client([reply(b"busy", 503, retry_after="30")])[0]).retry_after == 30.0


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"", "malformed"),
        (200, b"<html>", "malformed"),
        (200, b"[]", "malformed"),
        (200, b"[" * 100_000, "malformed"),
        (200, b'{"items": 7}', "malformed"),
        (200, b'{"items": [], "nextPageToken": 7}', "malformed"),
        (200, b'{"items": [], "nextPageToken": "' + b"x" * 2_000 + b'"}', "malformed"),
        (200, b'{"items": [' + b"{}," * 5_000 + b"{}]}", "malformed"),
        (200, b'{"error": "no"}', "malformed"),
        (200, b'{"n": ' + b"9" * 100_000 + b"}", "malformed"),
        (500, b'{"error": {"errors": "x", "details": {"reason": 1}}}', "transient"),
        (502, b"<html>Bad gateway</html>", "transient"),
        (503, b"", "throttled"),
        (429, b"{}", "throttled"),
        (404, b"<html>", "transient"),
        (403, b'{"error": {"errors": [{"reason": "<b>odd</b>"}]}}', "transient"),
        (401, b'{"error": {"errors": [{"reason": "new_word"}]}}', "auth"),
    ],
)
def test_an_answer_that_is_not_a_page_is_an_error_in_words(status, body, kind):
    error = failure(client([reply(body, status)])[0])
    assert error.kind == kind
    assert "<" not in str(error)
    assert len(str(error)) < 200


def test_a_good_answer_is_given_as_it_is():
    assert api_json(reply({"items": []})) == {"items": []}


# ── OAuth ───────────────────────────────────────────────────────────────────────────────────────────────


class Google:
    """A token server and an API that takes its newest token."""

    def __init__(self, **token) -> None:
        self.tokens = 0
        self.good: set[str] = set()
        self.answer = token or None

    def __call__(self, asked):
        if asked.path == "/token":
            self.form = dict(parse_qsl(asked.body.decode()))
            if self.answer is not None:
                status = self.answer.pop("status", 200)
                return reply(self.answer, status)
            self.tokens += 1
            self.good = {f"token-{self.tokens}"}
            return reply({"access_token": f"token-{self.tokens}", "expires_in": 3600})
        token = asked.headers.get("Authorization", "").removeprefix("Bearer ")
        return reply(EMPTY) if token in self.good else reply(error_body("authError")[1], 401)


def test_a_refresh_token_is_used_instead_of_the_key():
    google = Google()
    api, net, _ = client(google, secrets={**OAUTH, "YOUTUBE_API_KEY": "the-key"})
    api.items("PL1")
    assert google.form == {
        "grant_type": "refresh_token",
        "client_id": "the-client",
        "client_secret": "the-client-secret",
        "refresh_token": "the-refresh-token",
    }
    assert net.asked[-1].headers == {"Authorization": "Bearer token-1"}


def test_an_access_token_is_held_until_just_before_it_ends():
    google, time = Google(), [NOW]
    api, _, _ = client(google, secrets=OAUTH, clock=lambda: time[0])
    api.items("PL1")
    time[0] += 3_539
    api.items("PL1")
    assert google.tokens == 1
    time[0] += 2
    api.items("PL1")
    assert google.tokens == 2


def test_a_refused_token_is_renewed_once_and_both_calls_are_booked():
    google = Google()
    api, _, ledger = client(google, secrets=OAUTH)
    api.items("PL1")
    google.good = set()
    api.items("PL1")
    assert (google.tokens, ledger.used) == (2, 3)


def test_a_token_that_is_refused_twice_is_an_error_of_kind_auth():
    google = Google(access_token="revoked", expires_in=3600)
    api, net, _ = client(google, secrets=OAUTH)
    assert failure(api).kind == "auth"
    assert net.count("/playlistItems") == 2


def test_many_threads_renew_a_token_once():
    google = Google()
    api, _, _ = client(google, secrets=OAUTH)
    threads = [threading.Thread(target=api.items, args=("PL1",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert google.tokens == 1


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ({"status": 400, "error": "invalid_grant"}, "auth", "YOUTUBE_OAUTH_REFRESH_TOKEN"),
        ({"status": 401, "error": "invalid_client"}, "auth", "YOUTUBE_OAUTH_CLIENT_ID"),
        ({"status": 400, "error": "invalid_scope"}, "auth", "youtube.readonly"),
        ({"status": 400, "error": "<b>new</b>", "error_description": "the-refresh-token"}, "auth", "answered 400"),
        ({"status": 500}, "transient", "answered 500"),
        ({"status": 503}, "throttled", "rate-limited"),
        ({"status": 200, "access_token": "with blank"}, "transient", "no access token"),
        ({"status": 200, "access_token": 7}, "transient", "no access token"),
        ({"status": 200, "access_token": "x" * 5_000}, "transient", "no access token"),
    ],
)
def test_a_token_server_that_says_no_is_said_in_words_without_a_secret(answer, kind, words):
    api, _, ledger = client(Google(**answer), secrets=OAUTH)
    error = failure(api)
    assert error.kind == kind
    assert words in str(error)
    assert not any(secret in str(error) for secret in OAUTH.values())
    assert ledger.used == 0


def test_half_an_oauth_configuration_names_what_is_missing_instead_of_using_the_key():
    secrets = {"YOUTUBE_API_KEY": "the-key", "YOUTUBE_OAUTH_CLIENT_ID": "the-client"}
    api, net, _ = client([], secrets=secrets)
    error = failure(api)
    assert error.kind == "auth"
    assert "YOUTUBE_OAUTH_CLIENT_SECRET, YOUTUBE_OAUTH_REFRESH_TOKEN" in str(error)
    assert net.asked == []


def test_an_odd_lifetime_means_a_token_for_one_call():
    for lifetime in (None, "3600", -1, True, 10**9):
        google = Google(access_token="t", expires_in=lifetime)
        google.good = {"t"}
        api, net, _ = client(google, secrets=OAUTH)
        api.items("PL1")
        google.answer = {"access_token": "t", "expires_in": lifetime}
        api.items("PL1")
        assert net.count("/token") == 2


# ── what it tells ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT21M7S", 1267),
        ("PT1H2M", 3720),
        ("P1DT2H", 93_600),
        ("P1W", 604_800),
        ("PT0.5S", None),
        ("PT12.7S", 12),
        ("P0D", None),
        ("PT0S", None),
        ("", None),
        ("21:07", None),
        (None, None),
        (7, None),
        ("PT99999999999S", None),
    ],
)
def test_durations(text, seconds):
    assert duration_seconds(text) == seconds


def test_facts_of_videos_and_those_that_are_silently_missing():
    rows = [
        {"id": "a", "snippet": {"liveBroadcastContent": "none"}, "contentDetails": {"duration": "PT1M"}},
        {"id": "b", "snippet": {"liveBroadcastContent": "upcoming"}, "contentDetails": {"duration": "P0D"}},
        {"id": "c", "snippet": {"liveBroadcastContent": "odd"}, "contentDetails": 7},
    ]
    api, net, ledger = client([reply({"items": rows})])
    found = api.videos(["a", "b", "c", "d"])
    assert found == {"a": VideoDetails(60, None), "b": VideoDetails(None, "upcoming"), "c": VideoDetails()}
    assert (net.asked[0].query["id"], ledger.used) == ("a,b,c,d", 1)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply({"items": [{"id": "UC1"}]}), "exists"),
        (reply({"items": []}), "missing"),
        (reply({"pageInfo": {"totalResults": 0}}), "missing"),
        (reply({"items": [{"id": "UC2"}]}), "missing"),
        (refusal("quotaExceeded"), "unknown"),
        (reply(b"<html>", 502), "unknown"),
    ],
)
def test_whether_a_channel_exists(answer, expected):
    assert client([answer])[0].exists("channels", "UC1") == expected


def test_what_is_not_an_id_is_never_asked():
    api, net, _ = client([])
    assert api.exists("channels", "UC1&id=UC2") == "unknown"
    assert list(api.rows("playlists", "id", ["a b", "../x"])) == []
    assert net.asked == []
