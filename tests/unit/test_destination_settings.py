"""A destination whose keys do not go together, whose secret has the wrong form, or whose address is none."""

import base64
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from csi.adapters import registry
from csi.config.delivery_settings import DestinationSettings
from csi.config.destination_profiles import PRESETS, signing_key
from csi.config.loader import read_config, require_delivery
from csi.emitter.destination import destinations
from csi.errors import ConfigError

URL = "https://x.example/in"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"endpoint": URL}, "secret_env is required"),
        ({"secret_env": "S"}, "endpoint, or endpoint_env"),
        ({"endpoint": URL, "endpoint_env": "U", "secret_env": "S"}, "both set"),
        ({"preset": "slack", "endpoint": URL, "secret_env": "S"}, "uses no secret"),
        ({"preset": "slak", "endpoint": URL}, "n8n"),
        ({"type": "notify"}, "endpoint_env"),
        ({"type": "notify", "endpoint": URL}, "holds tokens"),
        ({"type": "notify", "endpoint_env": "U", "body": "event"}, "body does not apply"),
        ({"type": "notify", "endpoint_env": "U", "secret_env": "S"}, "secret_env does not apply"),
        ({"preset": "n8n", "endpoint": URL, "group_seconds": 60}, "set body: batch"),
        ({"preset": "cloudevents", "endpoint": URL, "template": "{}"}, "a template makes the body"),
        ({"preset": "n8n", "endpoint": URL, "headers": {"X-Api-Key": "abc"}}, "a secret does not belong in the file"),
        ({"preset": "n8n", "endpoint": URL, "headers": {"Host": "abc"}}, "CSI sets this header itself"),
        ({"preset": "n8n", "endpoint": URL, "headers": {"X": "a\nb"}}, "pattern"),
        ({"preset": "n8n", "endpoint": URL, "method": "GET"}, "POST"),
        ({"preset": "n8n", "endpoint": "http://other.example/"}, "plain http"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(given, words):
    with pytest.raises(ValidationError, match=words):
        DestinationSettings.model_validate(given)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_destination_of_a_preset_survives_its_way_through_json(preset):
    secret = {"secret_env": "S"} if preset == "hookdeck" else {}
    given = DestinationSettings.model_validate({"preset": preset, "endpoint": URL, **secret})
    assert DestinationSettings.model_validate_json(given.model_dump_json()) == given
    assert all(getattr(given, key) == value for key, value in PRESETS[preset].items())


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        ("plain-secret-of-some-length", "does not begin with whsec_"),
        ("whsec_!!!", "is not base64"),
        ("whsec_" + base64.b64encode(b"short").decode(), "has a key of 5 bytes"),
    ],
)
def test_a_secret_of_the_wrong_form_is_refused_without_showing_it(secret, words):
    with pytest.raises(ValueError, match=words) as refused:
        signing_key(secret, "whsec")
    assert secret.removeprefix("whsec_") not in str(refused.value)


def load(tmp_path: Path, env: dict[str, str], **block):
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"delivery": {"destinations": {"there": block}}}))
    return read_config(file, env=env, sources=registry.settings_models()).settings


def test_values_of_variables_are_checked_at_their_place(tmp_path):
    env = {"HOOK": "http://elsewhere.example/T0/secret-path", "KEY": "not-a-whsec-secret"}
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, env, preset="hookdeck", endpoint_env="HOOK", secret_env="KEY")
    text = str(refused.value)
    assert "delivery.destinations.there.endpoint_env: the value of HOOK cannot be used: plain http" in text
    assert "delivery.destinations.there.secret_env: the value of KEY cannot be used: does not begin with whsec_" in text
    assert "secret-path" not in text
    assert "not-a-whsec" not in text


def test_a_message_needs_a_url_that_apprise_understands(tmp_path):
    pytest.importorskip("apprise")
    settings = load(tmp_path, {"URL": "nonsense://token-1234"}, type="notify", endpoint_env="URL")
    with pytest.raises(ConfigError, match="there: URL is not a URL that apprise") as refused:
        require_delivery(settings)
    assert "token-1234" not in str(refused.value)


def test_the_secret_is_a_bearer_token_only_in_the_contract(tmp_path):
    env = {"KEY": "a-secret-of-some-length"}
    ours = destinations(load(tmp_path, env, endpoint=URL, secret_env="KEY"))["there"]
    github = destinations(load(tmp_path, env, endpoint=URL, secret_env="KEY", signature="github"))["there"]
    assert (ours.receiver.bearer, github.receiver.bearer) == ("a-secret-of-some-length", "")
    assert "a-secret" not in repr(ours)
