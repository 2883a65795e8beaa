"""The image and the services of compose.yaml, built and run with podman: `make live`. No registry is contacted.

The base is a Debian with Python that debootstrap makes from this machine's own package source, unless CSI_LIVE_BASE
names an image that podman has already.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.fakes.pages import ROOT
from tests.live import machine as rig
from tests.rigs.processes import wait_until

TOOLS = ("podman", "debootstrap")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        bool(MISSING), reason=f"needs {', '.join(MISSING)} (Debian: apt-get install podman debootstrap)"
    ),
]
LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=1000:1000")
"""podman's own limits are higher than some machines allow."""
PODMAN = ["podman", *(["--runtime", "runc"] if shutil.which("runc") else [])]
RUN = ("run", "--rm", *LIMITS, "--no-healthcheck", "--network", "none")
IMAGE, BASE, POD = "localhost/creator-signals:test", "localhost/csi-base:test", f"csi-test-{os.getpid()}"
VARIABLES = re.compile(r"(?<!\$)\$\{\w+:-([^}]*)\}")
MAX_MEGABYTES = 150


def podman(*line: object, timeout: float = 600, check: bool = True) -> str:
    done = subprocess.run([*PODMAN, *map(str, line)], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0 or not check, f"{line}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


def make_base(folder: Path) -> str:
    if given := os.environ.get("CSI_LIVE_BASE"):
        return given
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    found = re.search(r"(?m)^URIs: *(\S+)", sources.read_text()) if sources.exists() else None
    if found is None:
        pytest.skip("this machine's own Debian package source is not known")
    root = folder / "base"
    packages = "--include=python3,python3-venv"
    line = ["debootstrap", "--variant=minbase", packages, "bookworm", str(root), found[1]]
    subprocess.run(line, check=True, capture_output=True, timeout=600)
    rig.fetch_wheels(root / "opt/wheels")
    (root / "etc/pip.conf").write_text("[global]\nno-index = true\nfind-links = /opt/wheels\n")
    subprocess.run(f"tar -C {root} -c . | podman import - {BASE}", shell=True, check=True, capture_output=True)
    return BASE


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    # The pod's own container takes its limits from here only.
    settings = tmp_path_factory.mktemp("podman") / "containers.conf"
    settings.write_text(f"[containers]\ndefault_ulimits = {json.dumps(LIMITS[1::2])}\n")
    os.environ["CONTAINERS_CONF"] = str(settings)
    base = make_base(tmp_path_factory.mktemp("base"))
    podman("build", "--isolation", "chroot", "--format", "docker", "--build-arg", f"BASE={base}", "-t", IMAGE, ROOT)
    return IMAGE


@pytest.fixture
def pod(image):
    """All services share one loopback, and reach nothing else."""
    podman("pod", "create", "--name", POD, "--network", "none", "--share", "net")
    yield Pod()
    podman("pod", "rm", "-f", "-t", 5, POD, check=False)
    podman("volume", "rm", "-f", *(f"{POD}-{name}" for name in ("config", "state", "backups")), check=False)


class Pod:
    """Starts services of compose.yaml as `docker compose` would, one container each."""

    services = yaml.safe_load(VARIABLES.sub(r"\1", (ROOT / "compose.yaml").read_text()))["services"]

    def name(self, service: str) -> str:
        return f"{POD}-{service}"

    def start(self, service: str, *, wait: bool = False) -> str:
        wanted = self.services[service]
        line: list[object] = ["run", "--pod", POD, "--name", self.name(service), "--read-only", "--cap-drop", "ALL"]
        line += [*LIMITS, "--tmpfs", "/tmp", "--security-opt", "no-new-privileges"]
        line += ["--rm"] if wait else ["-d", "--restart", wanted["restart"]]
        for volume in wanted["volumes"]:
            line += ["-v", f"{POD}-{volume}"]
        # In the pod the receiver has no name of its own.
        endpoint = {"CSI_UA_ENDPOINT": "http://127.0.0.1:8090/api/v1/signals/ingest"}
        for name, value in {**wanted["environment"], **endpoint}.items():
            line += ["-e", f"{name}={'' if value is None else value}"]
        test = (wanted.get("healthcheck") or {}).get("test")
        if test:
            line += ["--health-cmd", json.dumps(test[1:]), "--health-interval", "disable"]
        if "entrypoint" in wanted:
            line += ["--entrypoint", json.dumps(wanted["entrypoint"])]
        command = [word.replace("$$", "$") for word in wanted.get("command", [])]
        return podman(*line, IMAGE, *command)

    def run(self, service: str, *line: str, check: bool = True) -> str:
        return podman("exec", self.name(service), *line, check=check)

    def process(self, service: str) -> int:
        return int(podman("inspect", "--format", "{{.State.Pid}}", self.name(service)))

    def is_healthy(self, service: str) -> bool:
        done = subprocess.run([*PODMAN, "healthcheck", "run", self.name(service)], capture_output=True, timeout=120)
        return done.returncode == 0

    def logs(self, service: str) -> str:
        done = subprocess.run([*PODMAN, "logs", "--tail", "40", self.name(service)], capture_output=True, text=True)
        return done.stdout + done.stderr


def test_without_edits_all_services_run_and_answer_their_health_checks(pod):
    pod.start("setup", wait=True)
    assert "skip" not in pod.start("setup", wait=True), "a second start changes nothing"
    for service in ("worker", "web", "receiver"):
        pod.start(service)
    for service in ("worker", "web", "receiver"):
        assert wait_until(lambda name=service: pod.is_healthy(name), 120), f"{service}: {pod.logs(service)}"
    pod.run("worker", "csi", "delivery", "test")

    old = pod.process("worker")
    os.kill(old, 9)  # a worker whose threads hang ends itself, too
    assert wait_until(lambda: pod.process("worker") not in (old, 0), 60)
    assert wait_until(lambda: pod.is_healthy("worker"), 120), pod.logs("worker")

    pod.services["backup"]["environment"] = {**pod.services["backup"]["environment"], "CSI_BACKUP_SECONDS": "1"}
    pod.start("backup")
    assert wait_until(lambda: "csi-" in pod.run("backup", "ls", "/var/backups/csi"), 60), pod.logs("backup")
    assert pod.run("worker", "stat", "-c", "%u:%g", "/var/lib/csi/csi.db").strip() == "10001:10001"

    podman("stop", "-t", 0, pod.name("worker"))
    assert not pod.is_healthy("worker"), "the check asks the worker"
    assert pod.is_healthy("receiver")


def test_what_is_installed_is_small_and_runs_without_pip(image):
    size = podman(*RUN, "--entrypoint", "du", IMAGE, "-sm", "/opt/csi/venv")
    print(f"\ninstalled: {size.split()[0]} MB")
    assert int(size.split()[0]) <= MAX_MEGABYTES
    listed = podman(*RUN, "--entrypoint", "ls", IMAGE, "/opt/csi/venv/bin").split()
    assert "csi" in listed
    assert "pip" not in listed


def test_a_missing_file_of_variables_is_one_sentence(image):
    done = subprocess.run([*PODMAN, *RUN, IMAGE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    assert "/etc/csi/env: cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
