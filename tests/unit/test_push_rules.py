"""Leases, ladders and checks of push; signatures of others."""

import random

import pytest

from csi.ingester.webhook_signature import InboundKeys, SignedMessage, check_hub, check_webhook, sign_hub, sign_webhook
from csi.scheduling import push_rules

NOW = 1_771_761_600.0


@pytest.mark.parametrize(
    ("granted", "lease"),
    [(None, 500.0), ("", 500.0), ("86400", 86400.0), ("999999999999", 2_592_000.0), ("0", None), ("-5", None),
     ("299", None), ("1e9", None), ("٣٠٠٠", None), ("9" * 40, None)],
)  # fmt: skip
def test_a_hub_may_grant_what_can_be_renewed(granted, lease):
    assert push_rules.granted_lease(granted, 500.0) == lease


@pytest.mark.parametrize(
    ("text", "usable"),
    [("abc", True), (None, False), ("", False), ("x" * 1001, False), ("a\nb", False), ("é", False)],
)
def test_a_challenge_is_short_printable_text(text, usable):
    assert push_rules.is_challenge(text) is usable


def test_a_retry_waits_at_least_as_long_as_the_hub_asks_and_an_hour_at_most():
    draw = random.Random(1)
    assert push_rules.retry(NOW, 1, draw, 600.0) == NOW + 600
    assert push_rules.retry(NOW, 1, draw, 1e9) == NOW + 3600
    assert push_rules.retry(NOW, 99, draw) <= NOW + 4320


def test_polling_is_four_times_rarer_and_never_rarer_than_an_hour_or_more_frequent():
    assert push_rules.stretched(NOW, NOW + 300) == NOW + 1200
    assert push_rules.stretched(NOW, NOW + 1800) == NOW + 3600
    assert push_rules.stretched(NOW, NOW + 7200) == NOW + 7200


@pytest.mark.parametrize("method", ["sha1", "sha256", "sha384", "sha512"])
def test_a_hub_signs_with_any_method_of_the_standard(method):
    header = sign_hub("secret", b"body", method)
    assert check_hub(["other", "secret"], header, b"body") is None
    assert check_hub(["secret"], header, b"body2") == "bad_signature"
    assert check_hub(["secret"], "md5=00", b"body") == "bad_signature"
    assert check_hub(["secret"], "", b"body") == "no_signature"


def test_one_of_several_signatures_and_one_of_several_keys_is_enough():
    headers = sign_webhook(b"new", "m", int(NOW), b"{}")
    several = headers | {"webhook-signature": f"v1,AAAA v2,x {headers['webhook-signature']}"}
    assert check_webhook([b"old", b"new"], SignedMessage.of(several), b"{}", NOW) is None
    assert check_webhook([b"old"], SignedMessage.of(several), b"{}", NOW) == "bad_signature"
    assert check_webhook([b"new"], SignedMessage.of(headers), b"{}", NOW + 301) == "stale_timestamp"


def test_tokens_and_secrets_differ_by_key_name_and_generation():
    keys, other = InboundKeys("a" * 32), InboundKeys("b" * 32)
    found = [keys.token("x", 1), keys.token("x", 2), keys.token("y", 1), other.token("x", 1), keys.secret("x", 1).hex()]
    assert len(set(found)) == 5
