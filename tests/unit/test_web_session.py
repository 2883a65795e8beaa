"""Session cookie, form tokens and flash messages: only what was signed with the present tokens is valid."""

import pytest

from csi.web import auth
from csi.web.auth import AccessRules, FlashMessage, Session

RULE = AccessRules(True, frozenset({"test"}), "canary-admin-token-0123", "canary-reader-token-0123")
KEY = auth.signing_key(RULE)
NOW = 1_771_761_600.0
SITTING = Session("admin", "0123456789ab", NOW + auth.SESSION_SECONDS)
SEALED = auth.cookie_of(SITTING, KEY)


def test_what_was_sealed_opens_until_its_time() -> None:
    assert auth.read_cookie(SEALED, KEY, NOW) == SITTING
    assert auth.read_cookie(SEALED, KEY, NOW + auth.SESSION_SECONDS - 1) == SITTING
    assert auth.read_cookie(SEALED, KEY, NOW + auth.SESSION_SECONDS) is None


def test_a_clock_that_was_wrong_does_not_make_a_session_for_ever() -> None:
    assert auth.read_cookie(auth.cookie_of(Session("admin", "x", NOW + 10**9), KEY), KEY, NOW) is None


@pytest.mark.parametrize("place", range(0, len(SEALED), 7))
def test_any_change_closes_it(place: int) -> None:
    changed = SEALED[:place] + ("x" if SEALED[place] != "x" else "y") + SEALED[place + 1 :]
    assert auth.read_cookie(changed, KEY, NOW) is None


@pytest.mark.parametrize(
    "cookie", ["", ".", "...", "admin.x.1", "reader" + SEALED[5:], "ü" * 50, "\udcff.x", "a" * 100_000, SEALED + "0"]
)
def test_an_invalid_cookie_is_no_session(cookie: str) -> None:
    assert auth.read_cookie(cookie, KEY, NOW) is None


@pytest.mark.parametrize(
    "rule",
    [AccessRules(True, RULE.hosts, "another-token", RULE.read_token), AccessRules(True, RULE.hosts, RULE.token, None)],
)
def test_a_changed_token_ends_every_session(rule: AccessRules) -> None:
    assert auth.read_cookie(SEALED, auth.signing_key(rule), NOW) is None


def test_a_form_token_belongs_to_its_session() -> None:
    token = auth.form_token(SITTING, KEY)
    other = Session("admin", "other", SITTING.until)
    assert auth.is_form_token(token, SITTING, KEY)
    assert not auth.is_form_token(token, other, KEY)
    assert not auth.is_form_token("", SITTING, KEY)
    assert not auth.is_form_token("\udcff", SITTING, KEY)
    assert RULE.token not in token + SEALED  # type: ignore[operator]


def test_a_note_comes_back_and_a_forged_one_does_not() -> None:
    note = FlashMessage("bad", "Ünwell </script>")
    sealed = auth.message_cookie(note, KEY)
    assert auth.read_message(sealed, KEY) == note
    assert auth.read_message("x" + sealed, KEY) is None
    assert auth.read_message(sealed.replace(".", "=."), KEY) is None
    assert auth.read_message("", KEY) is None
    assert len(auth.message_cookie(FlashMessage("good", "x" * 9_000), KEY)) < 1_100
