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


OURS = {name: one for name, one in COMPOSE["services"].items() if name not in ("postgres", "redis")}


def test_images_are_pinned_to_a_version():
    base = re.search(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)[1]
    others = [COMPOSE["services"][name]["image"] for name in ("postgres", "redis")]
    assert all(":" in image and not image.endswith(":latest") for image in [base, *others])
    assert {service["image"] for service in OURS.values()} == {f"creator-signals:{__version__}"}


def test_everything_that_is_copied_is_there():
    copied = [words for line in lines("COPY") if "--from" not in (words := shlex.split(line))[0]]
    names = {name for words in copied for name in words[:-1]}
    assert names >= {"csi", "tasks", "docs", "huey_config.py", "requirements.lock"}
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert not names & set((ROOT / ".dockerignore").read_text().split())


def test_it_does_not_run_as_root_and_holds_no_secret():
    assert lines("USER") == ["10001:10001"]
    assert DOCKERFILE.index("USER 10001") < DOCKERFILE.index("\nCMD")
    assert not re.search(r"SECRET|API_KEY|TOKEN", DOCKERFILE)
    assert json.loads(lines("VOLUME")[0]) == ["/var/lib/csi", "/var/backups/csi"]


def test_the_services_run_what_the_procfile_runs():
    commands = dict(re.findall(r"^(\w+): (.*)$", (ROOT / "Procfile").read_text(), re.MULTILINE))
    assert json.loads(lines("CMD")[-1]) == commands["worker"].split()
    assert "command" not in OURS["worker"]
    assert OURS["web"]["command"] == commands["web"].split()
    assert OURS["processing"]["command"] == commands["processing"].split()
    assert "csi receiver " in OURS["receiver"]["command"][-1]
    assert lines("STOPSIGNAL") == ["SIGTERM"]


def test_each_health_check_asks_its_own_process():
    asked = {name: " ".join(one["healthcheck"].get("test", ["none"])) for name, one in COMPOSE["services"].items()}
    assert asked["worker"] == asked["worker-2"] == "CMD csi health"
    assert asked["web"] == "CMD csi health --http"
    assert "8090/healthz" in asked["receiver"]
    assert (asked["setup"], asked["backup"]) == ("none", "none")
    assert 'CMD ["csi", "health"]' in lines("HEALTHCHECK")[0]


def test_the_services_share_state_and_configuration_and_may_do_little():
    profiles = {name: one.get("profiles", []) for name, one in COMPOSE["services"].items()}
    assert {name for name, one in profiles.items() if not one} == {"setup", "worker", "web", "backup"}
    assert {name for name, one in profiles.items() if one == ["scale"]} == {"worker-2", "postgres", "redis"}
    for name, service in OURS.items():
        assert (service["cap_drop"], service["read_only"]) == (["ALL"], True)
        assert service["restart"] == ("no" if name == "setup" else "always")
        assert int(service["stop_grace_period"].rstrip("s")) > 25
        assert not any("SECRET" in one or "KEY" in one for one in service["environment"])
        folder = [volume for volume in service["volumes"] if ":/etc/csi" in volume]
        assert len(folder) == 1, "a directory: a mounted file keeps its old content after an edit"
        assert folder[0].endswith(":ro") is (name != "setup")
    assert "backups:/var/backups/csi" in OURS["backup"]["volumes"]


def test_the_variables_of_scale_are_those_that_the_services_take():
    text = (ROOT / "config/compose.scale.env").read_text()
    names = set(re.findall(r"(?m)^(\w+)=", text))
    assert names <= set(re.findall(r"\$\{(\w+):-", (ROOT / "compose.yaml").read_text()))


def test_only_this_machine_reaches_the_sidecar():
    assert all(port.startswith("127.0.0.1:") for port in COMPOSE["services"]["web"]["ports"])
