"""What another poller has seen, out of whatever it left behind."""

import json

import pytest

from csi.admin.old_poller_log import Sighting, UnreadableLog, read_sightings

A, B, C = "dQw4w9WgXcQ", "9bZkp7q19f0", "kJQP7kiw5Fk"

SAMPLES = {
    "one id on a line": (f"{A}\n{B}\n\n", [(A, None), (B, None)]),
    "quoted, with commas": (f'"{A}",\n  - {B}\n', [(A, None), (B, None)]),
    "a log with names": (
        f"2026-02-22 12:00:01,123 INFO new video video_id={A} playlist_id=PLabc123\nINFO video: {B} sent\n",
        [(A, "PLabc123"), (B, None)],
    ),
    "watch URLs": (
        f"sent https://www.youtube.com/watch?v={A}&list=PLxyz9 ok\nhttps://youtu.be/{B}\n",
        [(A, "PLxyz9"), (B, None)],
    ),
    "shorts and keys": (f"/shorts/{A}\nyoutube:video:{B}:PLlist1\n", [(A, None), (B, "PLlist1")]),
    "JSON lines": (
        json.dumps({"video_id": A, "t": "2026-02-22T12:00:00Z"}) + "\n" + json.dumps({"videoId": B}) + "\n",
        [(A, None), (B, None)],
    ),
    "a state file": (
        json.dumps({"PLlist1": {"seen": [A, B]}, "PLlist2": {"seen": [C]}}),
        [(A, "PLlist1"), (B, "PLlist1"), (C, "PLlist2")],
    ),
    "ids as keys": (json.dumps({A: 1700000000, B: 1700000001}), [(A, None), (B, None)]),
    "each once": (f"{A}\n{A}\nvideo_id={A}\n", [(A, None)]),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_ids_are_found(name):
    text, expected = SAMPLES[name]
    found = read_sightings(text.encode())
    assert sorted((one.video, one.playlist or "") for one in found) == sorted((a, b or "") for a, b in expected)


def test_the_time_of_a_line_is_kept():
    text = f"2026-02-22T12:00:00Z video_id={A}\nFeb 22 12:00:00 host video_id={B}\n"
    assert read_sightings(text.encode()) == [Sighting(A, None, 1_771_761_600.0), Sighting(B, None, None)]


@pytest.mark.parametrize(
    "content",
    [b"", b"INFO information is everything here\n", b"\x00\xff\xfe" * 50, b"[" * 100_000, b'{"a": "b"}'],
    ids=["nothing", "words of eleven letters", "binary", "deep JSON", "other JSON"],
)
def test_a_file_without_ids_is_refused(content):
    with pytest.raises(UnreadableLog, match="contains no video id"):
        read_sightings(content)


def test_words_beside_an_id_are_no_ids():
    text = f"information distributed video_id={A} description\n"
    assert [one.video for one in read_sightings(text.encode())] == [A]
