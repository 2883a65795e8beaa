"""Captured answers of the API become channels and videos, field by field."""

import json
from pathlib import Path
from typing import Any

import pytest

from csi import clock
from csi.catalog.api_response_fields import channel_facts, listed_video, video_facts


def rows_of(path: Path) -> list[dict[str, Any]]:
    body = json.loads(path.read_text())
    return body.get("items", []) if body.get("kind", "").endswith("ListResponse") else [body]


def number(text: str | None) -> int | None:
    return None if text is None else int(text)


@pytest.mark.parametrize(
    "name", ["channel_resource_full", "channels_1_statistics_2019", "channels_google_2023", "channels_handle_customUrl",
             "channels_1_snippet", "channels_2_snippet"],
)  # fmt: skip
def test_a_captured_channel_maps_field_by_field(corpus, name):
    rows = rows_of(corpus / "youtube_api" / f"{name}.json")
    assert rows
    for row in rows:
        facts, snippet, counted = channel_facts(row), row["snippet"], row.get("statistics", {})
        assert facts.id == row["id"]
        assert facts.title == snippet["title"]
        assert facts.description == (snippet["description"][:5_000] or None)
        assert facts.custom_url == snippet.get("customUrl")
        assert facts.country == snippet.get("country")
        assert facts.created_at == clock.parse(snippet["publishedAt"])
        hidden = counted.get("hiddenSubscriberCount")
        assert facts.subscriber_count == (None if hidden else number(counted.get("subscriberCount")))
        assert facts.view_count == number(counted.get("viewCount"))
        assert facts.video_count == number(counted.get("videoCount"))
        assert facts.thumbnail_url in {size["url"] for size in snippet["thumbnails"].values()}
        lists = row.get("contentDetails", {}).get("relatedPlaylists", {})
        assert facts.uploads_playlist_id == lists.get("uploads")


@pytest.mark.parametrize("name", ["video_resource_full", "videos_1", "videos_1_contentDetails_statistics_status"])
def test_a_captured_video_maps_field_by_field(corpus, name):
    for row in rows_of(corpus / "youtube_api" / f"{name}.json"):
        facts, snippet = video_facts(row), row.get("snippet")
        if snippet is None:
            assert facts is None, "without its snippet nobody knows whose it is"
            continue
        details, counted, status = (row.get(part, {}) for part in ("contentDetails", "statistics", "status"))
        assert (facts.id, facts.channel_id, facts.title) == (row["id"], snippet["channelId"], snippet["title"])
        assert facts.published_at == clock.parse(snippet["publishedAt"])
        assert facts.description == snippet["description"][:5_000]
        assert (facts.category_id, list(facts.tags)) == (snippet["categoryId"], snippet.get("tags", []))
        assert facts.language == snippet.get("defaultAudioLanguage", snippet.get("defaultLanguage"))
        assert facts.thumbnail_url == snippet["thumbnails"]["maxres"]["url"]
        for name_here, name_there in (("view", "viewCount"), ("like", "likeCount"), ("comment", "commentCount")):
            assert getattr(facts, f"{name_here}_count") == number(counted.get(name_there))
        assert facts.duration == {"PT21M7S": 1_267}.get(details.get("duration"))
        assert facts.caption_available == {"true": True, "false": False}.get(details.get("caption"))
        assert facts.definition == details.get("definition")
        assert (facts.privacy_status, facts.upload_status) == (status.get("privacyStatus"), status.get("uploadStatus"))


def test_captured_uploads_name_their_videos(corpus):
    rows = rows_of(corpus / "youtube_api" / "playlistItems_uploads_UU_2.json")
    found = [listed_video(row, row["snippet"]["channelId"]) for row in rows]
    assert found
    for row, facts in zip(rows, found, strict=True):
        assert facts.id == row["contentDetails"]["videoId"]
        assert facts.published_at == clock.parse(row["contentDetails"]["videoPublishedAt"])
        assert facts.title == row["snippet"]["title"]


@pytest.mark.parametrize("name", ["channels_none_found", "empty_list_response"])
def test_a_captured_answer_without_rows_gives_none(corpus, name):
    assert rows_of(corpus / "youtube_api" / f"{name}.json") == []
