"""Dockerfile and compose file, as far as they can be checked without an engine."""

import json
import re
import shlex

import yaml

from csi import __version__
from tests.fakes.pages import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())


def lines(word):
    whole = DOCKERFILE.replace("\\\n", " ")
    return [line.removeprefix(f"{word} ") for line in whole.splitlines() if line.startswith(f"{word} ")]


def test_images_are_pinned_to_a_version():
    images = [line.split()[0] for line in lines("FROM")] + [
        service["image"] for service in COMPOSE["services"].values()
    ]
    assert all(":" in image and not image.endswith(":latest") for image in images)
    assert {service["image"] for service in COMPOSE["services"].values()} == {f"csi:{__version__}"}


def test_everything_that_is_copied_is_there():
    copied = [words for line in lines("COPY") if "--from" not in (words := shlex.split(line))[0]]
    missing = [name for words in copied for name in words[:-1] if not (ROOT / name).exists()]
    assert (len(copied), missing) == (5, [])
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not {name for words in copied for name in words[:-1]} & set(ignored)


def test_it_does_not_run_as_root_and_holds_no_secret():
    assert lines("USER") == ["csi"]
    assert DOCKERFILE.index("USER csi") < DOCKERFILE.index("\nCMD")
    assert not re.search(r"SECRET|API_KEY|TOKEN", DOCKERFILE)


def test_it_runs_what_the_procfile_runs_and_asks_its_own_health():
    worker = re.search(r"^worker: (.*)$", (ROOT / "Procfile").read_text(), re.MULTILINE)[1]
    assert json.loads(lines("CMD")[-1]) == worker.split()
    assert 'CMD ["csi", "health"]' in lines("HEALTHCHECK")[0]
    assert lines("STOPSIGNAL") == ["SIGTERM"]


def test_the_services_share_state_and_configuration_and_may_do_little():
    assert set(COMPOSE["services"]) == {"worker", "web"}
    for service in COMPOSE["services"].values():
        assert "state:/var/lib/csi" in service["volumes"]
        assert (service["restart"], service["cap_drop"], service["read_only"]) == ("always", ["ALL"], True)
        assert int(service["stop_grace_period"].rstrip("s")) >= 15
        assert not any("SECRET" in name or "KEY" in name for name in service["environment"])
    assert set(COMPOSE["volumes"]) == {"state"}


def test_only_this_machine_reaches_the_sidecar():
    assert all(port.startswith("127.0.0.1:") for port in COMPOSE["services"]["web"]["ports"])
