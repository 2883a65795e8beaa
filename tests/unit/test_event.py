"""The contract: the PRD's own tests (§10.1, §10.2) as they are written there, and what decision 0042, 4–7 add."""

import pytest
from pydantic import ValidationError

from csi.ingester.event import CreatorSignalEvent, CSIIngestRequest

SAMPLE_EVENT = CreatorSignalEvent.model_config["json_schema_extra"]["example"]


def test_creator_signal_event_validation():
    """Valid event should parse correctly."""
    event = CreatorSignalEvent(
        event_id="test:123",
        dedupe_key="youtube:video:abc123",
        source="youtube_playlist",
        event_type="video_added_to_playlist",
        occurred_at="2026-02-22T12:00:00Z",
        received_at="2026-02-22T12:05:00Z",
        subject={"platform": "youtube", "video_id": "abc123"},
        routing={"pipeline": "test", "priority": "normal", "tags": []},
    )
    assert event.source == "youtube_playlist"


def test_dedupe_key_generation():
    """Dedupe keys should be consistent."""
    from csi.adapters.youtube_playlist import YouTubePlaylistAdapter

    adapter = YouTubePlaylistAdapter(config={})
    event = CreatorSignalEvent(
        event_id="test",
        dedupe_key="youtube:video:abc123:PLxyz",
        source="youtube_playlist",
        event_type="video_added_to_playlist",
        occurred_at="2026-02-22T12:00:00Z",
        received_at="2026-02-22T12:05:00Z",
        subject={"platform": "youtube", "video_id": "abc123"},
        routing={"pipeline": "test", "priority": "normal", "tags": []},
    )
    assert adapter.get_dedupe_key(event) == "youtube:video:abc123:PLxyz"


def test_csi_to_ua_contract():
    """CSI events should match UA's expected schema."""
    event = CreatorSignalEvent(**SAMPLE_EVENT)
    payload = CSIIngestRequest(csi_version="1.0.0", csi_instance_id="test", batch_id="test-batch", events=[event])
    assert payload.events[0].event_id is not None
    assert payload.events[0].dedupe_key is not None
    assert payload.events[0].subject.get("platform") == "youtube"


def test_contract_version_is_there_by_default_and_optional():
    without = {key: value for key, value in SAMPLE_EVENT.items() if key != "contract_version"}
    assert CreatorSignalEvent(**without).contract_version == "1.0"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("2026-02-22T12:00:00.123Z", "2026-02-22T12:00:00Z"),
        ("2026-02-22T13:00:00+01:00", "2026-02-22T12:00:00Z"),
        ("2017-06-01T10:20:30.123456789+00:00", "2017-06-01T10:20:30Z"),
    ],
)
def test_times_are_written_anew(given, written):
    assert CreatorSignalEvent(**(SAMPLE_EVENT | {"occurred_at": given})).occurred_at == written


@pytest.mark.parametrize("given", ["yesterday", "", "2026-13-01T00:00:00Z", "2026-02-22"])
def test_what_is_not_a_time_is_refused(given):
    with pytest.raises(ValidationError):
        CreatorSignalEvent(**(SAMPLE_EVENT | {"occurred_at": given}))


def test_a_request_carries_at_most_a_hundred():
    with pytest.raises(ValidationError):
        CSIIngestRequest(csi_version="1", csi_instance_id="i", batch_id="b", events=[SAMPLE_EVENT] * 101)
    full = CSIIngestRequest(csi_version="1", csi_instance_id="i", batch_id="b", events=[SAMPLE_EVENT] * 100)
    assert len(full.events) == 100
