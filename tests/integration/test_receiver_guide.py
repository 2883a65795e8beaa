"""docs/receiver-guide.md: its receiver, as printed, accepts what CSI sends and nothing else."""

import base64
import http.client
import json
import threading
import time
from http.server import ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from csi.body_template.sample import SAMPLE_EVENT
from csi.config.destination_profiles import signing_key
from csi.emitter.http import Receiver, envelope, send_events
from csi.emitter.profile import Profile
from csi.emitter.verdict import Delivered, judge
from csi.ingester.signature import canonical, headers
from csi.net import HttpHeaders, HttpResponse
from csi.store import db
from tests.fakes.pages import ROOT, blocks
from tests.fakes.profile_receiver import WHSEC
from tests.fakes.scripted_receiver import SECRET
from tests.fakes.youtube import simulated_youtube
from tests.rigs.in_process import InProcessPipeline

PAGE = ROOT / "docs" / "receiver-guide.md"


@pytest.fixture
def receiver(monkeypatch):
    """The receiver of the page on a port of its own: its URL, and what it has seen."""
    monkeypatch.setenv("UA_SIGNALS_INGEST_SHARED_SECRET", SECRET)
    block, *_ = blocks(PAGE, "python")
    page: dict = {"__name__": "page"}
    exec(compile(block.text, block.place, "exec"), page)
    page["Receiver"].log_message = lambda *_: None
    page["Receiver"].protocol_version = "HTTP/1.1"
    server = ThreadingHTTPServer(("127.0.0.1", 0), page["Receiver"])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/api/v1/signals/ingest", page["seen"]
    server.shutdown()
    server.server_close()
    thread.join(5)


def post(url, body, sent):
    there = urlsplit(url)
    connection = http.client.HTTPConnection(there.hostname, there.port, timeout=10)
    connection.request("POST", there.path, body, sent)
    answer = connection.getresponse()
    status, content = answer.status, json.loads(answer.read())
    connection.close()
    return status, content


def test_the_verifier_is_short():
    block, *_ = blocks(PAGE, "python")
    verifier = block.text[block.text.index("def is_from_csi") : block.text.index("class Receiver")]
    assert len(verifier.strip().splitlines()) <= 30
    assert len(block.text.strip().splitlines()) <= 50


def test_it_takes_what_csi_delivers(receiver, tmp_path):
    url, seen = receiver
    with simulated_youtube(playlists=1) as yt, db.connection():
        video = yt.add(yt.playlists[0], "Über 🚀 “quotes”")
        source = {"api_base_url": yt.api_base_url, "playlists": [{"id": yt.playlists[0]}], "first_poll": "all"}
        line = InProcessPipeline(tmp_path, yt.site.options.now, url, sources={"youtube_playlist": source})
        line.run()
        assert db.fetch("SELECT state FROM events") == [("delivered",)]
    assert [event["subject"]["video_id"] for event in seen.values()] == [video]


def signed(body, secret=SECRET, now=None):
    return {"Authorization": f"Bearer {secret}", **headers(secret, body, now=time.time() if now is None else now)}


def test_what_is_forged_stale_or_repeated(receiver):
    url, seen = receiver
    body = canonical(envelope("csi-vps-01", "b1", [{"event_id": "one"}]))
    assert post(url, body, signed(body))[0] == 200
    status, content = post(url, body, signed(body))
    assert (status, content["errors"]) == (207, [{"index": 0, "error": "duplicate_event"}])
    other = canonical(envelope("csi-vps-01", "b2", [{"event_id": "two"}]))
    good = signed(other)
    wrong = [
        signed(other, "not-the-secret"),
        signed(other, now=1_000_000_000.0),
        signed(body),
        good | {"Authorization": "Bearer other"},
        {name: value for name, value in good.items() if name != "X-CSI-Signature"},
        good | {"X-CSI-Timestamp": "soon"},
        good | {"X-CSI-Timestamp": "9" * 5000},
    ]
    assert [post(url, other, sent)[0] for sent in wrong] == [401] * len(wrong)
    assert list(seen) == ["one"]
    empty = canonical(envelope("csi-vps-01", "b3", []))
    assert post(url, empty, signed(empty))[0] == 200


def test_the_serverless_function_accepts_what_csi_signs_and_nothing_else(monkeypatch):
    monkeypatch.setenv("FUNCTION_SECRET", WHSEC)
    _, block = blocks(PAGE, "python")
    page: dict = {}
    exec(compile(block.text, block.place, "exec"), page)
    stored = {}
    page["store"] = stored.__setitem__

    class FunctionUrl:
        def post(self, url, *, body, headers, **more):
            sent = {name.lower(): value for name, value in headers.items()}
            plain = {"headers": sent, "body": body.decode()}
            coded = plain | {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
            first, second = page["handler"](plain, None), page["handler"](coded, None)
            assert first == second
            for wrong in (plain | {"body": body.decode() + " "}, coded | {"body": "!"}, {"headers": {}}):
                assert page["handler"](wrong, None) == {"statusCode": 401}
            return HttpResponse(first["statusCode"], HttpHeaders(), b"", url)

    def deliver(secret, now):
        profile = Profile(answers="status", body="event", signature="standard_webhooks")
        receiver = Receiver("https://function.example", signing_key(secret, "whsec"), "", 30.0, profile=profile)
        sent = {"instance_id": "csi-1", "batch_id": "b1", "request_id": "req_1", "form": "ascii", "now": now}
        answer = send_events(FunctionUrl(), receiver, [SAMPLE_EVENT], **sent)
        return judge(answer, 1, now, profile.answers)

    assert deliver(WHSEC, time.time()) == Delivered()
    assert list(stored) == [SAMPLE_EVENT["event_id"]]
    forged = f"whsec_{base64.b64encode(b'another key of thirty-two bytes!').decode()}"
    assert not isinstance(deliver(forged, time.time()), Delivered)
    assert not isinstance(deliver(WHSEC, time.time() - 400), Delivered)
