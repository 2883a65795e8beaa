"""The dashboard's session cookie, form tokens and notes: only what we sealed opens, and only while the tokens stand."""

import pytest

from csi.web import session
from csi.web.auth import Rule
from csi.web.session import Note, Session

RULE = Rule(True, frozenset({"test"}), "canary-admin-token-0123", "canary-reader-token-0123")
KEY = session.key_of(RULE)
NOW = 1_771_761_600.0
SITTING = Session("admin", "0123456789ab", NOW + session.SESSION_SECONDS)
SEALED = session.seal(SITTING, KEY)


def test_what_was_sealed_opens_until_its_time() -> None:
    assert session.unseal(SEALED, KEY, NOW) == SITTING
    assert session.unseal(SEALED, KEY, NOW + session.SESSION_SECONDS - 1) == SITTING
    assert session.unseal(SEALED, KEY, NOW + session.SESSION_SECONDS) is None


def test_a_clock_that_was_wrong_does_not_make_a_session_for_ever() -> None:
    assert session.unseal(session.seal(Session("admin", "x", NOW + 10**9), KEY), KEY, NOW) is None


@pytest.mark.parametrize("place", range(0, len(SEALED), 7))
def test_any_change_closes_it(place: int) -> None:
    changed = SEALED[:place] + ("x" if SEALED[place] != "x" else "y") + SEALED[place + 1 :]
    assert session.unseal(changed, KEY, NOW) is None


@pytest.mark.parametrize(
    "cookie", ["", ".", "...", "admin.x.1", "reader" + SEALED[5:], "ü" * 50, "\udcff.x", "a" * 100_000, SEALED + "0"]
)
def test_nonsense_is_nobody(cookie: str) -> None:
    assert session.unseal(cookie, KEY, NOW) is None


@pytest.mark.parametrize(
    "rule", [Rule(True, RULE.hosts, "another-token", RULE.read_token), Rule(True, RULE.hosts, RULE.token, None)]
)
def test_a_changed_token_ends_every_session(rule: Rule) -> None:
    assert session.unseal(SEALED, session.key_of(rule), NOW) is None


def test_a_form_token_belongs_to_its_session() -> None:
    token = session.form_token(SITTING, KEY)
    other = Session("admin", "other", SITTING.until)
    assert session.is_form_token(token, SITTING, KEY)
    assert not session.is_form_token(token, other, KEY)
    assert not session.is_form_token("", SITTING, KEY)
    assert not session.is_form_token("\udcff", SITTING, KEY)
    assert RULE.token not in token + SEALED  # type: ignore[operator]


def test_a_note_comes_back_and_a_forged_one_does_not() -> None:
    note = Note("bad", "Ünwell </script>")
    sealed = session.seal_note(note, KEY)
    assert session.unseal_note(sealed, KEY) == note
    assert session.unseal_note("x" + sealed, KEY) is None
    assert session.unseal_note(sealed.replace(".", "=."), KEY) is None
    assert session.unseal_note("", KEY) is None
    assert len(session.seal_note(Note("good", "x" * 9_000), KEY)) < 1_100
