"""docs/receiver-guide.md: its receivers in other languages verify every scheme, where their runtime is installed."""

import base64
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from csi import clock
from csi.body_template.sample import SAMPLE_EVENT
from csi.config.destination_profiles import signing_key
from csi.emitter import http
from csi.emitter.http import Receiver
from csi.emitter.profile import Profile
from csi.emitter.verdict import Delivered, EndpointFault, judge
from csi.net import Net
from tests.fakes.pages import ROOT, blocks
from tests.fakes.profile_receiver import WHSEC
from tests.rigs.processes import wait_until

PAGE = ROOT / "docs" / "receiver-guide.md"
RUNTIMES = {
    "py": ("receiver.py", [sys.executable, "receiver.py"], ""),
    "js": ("receiver.js", ["node", "receiver.js"], "nodejs"),
    "go": ("receiver.go", ["go", "run", "receiver.go"], "golang-go"),
    "php": ("receiver.php", ["php", "-S", "127.0.0.1:{port}", "receiver.php"], "php-cli"),
}
SCHEMES = {
    "contract": Profile(),
    "both": Profile(),  # with delivery.standard_webhooks
    "standard_webhooks": Profile(answers="status", body="event", signature="standard_webhooks"),
    "github": Profile(answers="status", body="event", signature="github"),
}


@contextmanager
def running(language: str, folder: Path, secret: str) -> Iterator[str | None]:
    """The URL of this receiver as printed; None: it ended by itself."""
    name, command, package = RUNTIMES[language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed; to run it: apt-get install {package}")
    (block,) = blocks(PAGE, language)
    (folder / name).write_text(block.text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GOCACHE": "/tmp/csi-go-cache", "GO111MODULE": "off"}
    process = subprocess.Popen(
        [part.format(port=port) for part in command],
        cwd=folder,
        env=env | {"SECRET": secret, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert wait_until(lambda: _answers(port) or process.poll() is not None, 90)
        yield None if process.poll() is not None else f"http://127.0.0.1:{port}/"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def _answers(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def deliver(net, receiver, *, now=None):
    now = clock.now() if now is None else now
    event = SAMPLE_EVENT | {"subject": {"title": "Über 🚀"}}
    answer = http.send_events(
        net, receiver, [event], instance_id="csi-1", batch_id="b1", request_id="req_1", form="ascii", now=now
    )
    return judge(answer, 1, clock.now(), receiver.profile.answers)


@pytest.mark.parametrize("language", RUNTIMES)
def test_the_receiver_verifies_each_scheme_and_refuses_what_is_forged_or_old(language, tmp_path):
    other = base64.b64encode(b"another key of thirty-two bytes!").decode()
    with Net() as net, running(language, tmp_path, WHSEC) as url:
        assert url is not None
        for name, profile in SCHEMES.items():
            receiver = Receiver(url, signing_key(WHSEC, "whsec"), "", 30.0, name == "both", profile)
            assert deliver(net, receiver) == Delivered(), name
            assert deliver(net, receiver) == Delivered(), "a repeated event is accepted"
            forged = replace(receiver, key=signing_key(f"whsec_{other}", "whsec"))
            assert isinstance(deliver(net, forged), EndpointFault), name
            if profile.signature != "github":
                assert not isinstance(deliver(net, receiver, now=clock.now() - 400), Delivered), name


@pytest.mark.parametrize("language", RUNTIMES)
def test_without_a_secret_the_receiver_accepts_nothing(language, tmp_path):
    """Anyone can sign with an empty key."""
    with Net() as net, running(language, tmp_path, "whsec_") as url:
        for name, profile in SCHEMES.items():
            receiver = Receiver(url or "", b"", "", 30.0, name == "both", profile)
            assert url is None or not isinstance(deliver(net, receiver), Delivered), name
