"""The simulated Reddit over HTTP."""

import base64

import pytest
from starlette.testclient import TestClient

from csi.simulator.reddit.app import TOKEN_PATH, reddit_app
from csi.simulator.reddit.site import RedditSite


def test_feed_api_and_tokens_are_on_one_port_with_the_limits_of_reddit(clock):
    site = RedditSite(now=clock)
    site.add("aa", "bb", "hidden")
    site.private.add("hidden")
    site.renamed["old"] = "aa"
    first, second = site.publish("aa", at=clock() - 20), site.publish("bb", at=clock() - 10)
    client = TestClient(reddit_app(site), follow_redirects=False)

    feed = client.get("/r/aa+bb+hidden/new/.rss?limit=100")
    assert feed.status_code == 200
    assert feed.headers["content-type"].startswith("application/atom+xml")
    assert feed.text.index(f"t3_{second.id}") < feed.text.index(f"t3_{first.id}")
    refused = client.get("/r/aa/new/.rss")
    assert (refused.status_code, refused.headers["content-type"]) == (429, "text/html")
    assert float(refused.headers["x-ratelimit-reset"]) == 60
    clock.move(61)
    assert client.get("/r/hidden/new/.rss").status_code == 403
    assert client.get("/r/old/new/.rss").headers["location"] == "/r/aa/new/.rss"
    assert client.get("/r/nowhere/new/.rss").status_code == 404

    assert client.get("/r/aa/new").status_code == 403
    assert client.post(TOKEN_PATH, data={"grant_type": "client_credentials"}).status_code == 401
    basic = {"Authorization": f"Basic {base64.b64encode(b'id:secret').decode()}"}
    token = client.post(TOKEN_PATH, data={"grant_type": "client_credentials"}, headers=basic).json()["access_token"]
    page = client.get("/r/aa+bb/new?limit=1", headers={"Authorization": f"Bearer {token}"}).json()["data"]
    assert [child["data"]["id"] for child in page["children"]] == [second.id]
    assert page["after"] == f"t3_{second.id}"
    site.accepts_key = False
    assert client.get("/r/aa/new", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_members_posts_and_access_are_changed_from_outside(clock):
    site = RedditSite(now=clock, per_minute=None)
    site.add("aa", "bb", "old")
    client = TestClient(reddit_app(site), follow_redirects=False)
    late = client.post("/sim/posts", json={"subreddit": "aa", "title": "Approved late", "late": 30}).json()["posts"][0]
    assert client.post("/sim/posts", json={"subreddit": "bb", "count": 3}).status_code == 201
    assert late not in client.get("/r/aa+bb/new/.rss").text
    clock.move(31)
    assert client.get("/r/aa+bb/new/.rss").text.index(late) > 0

    for state, status in (("banned", 404), ("private", 403), ("", 200)):
        assert client.post("/sim/subreddits", json={"name": "aa", "state": state}).status_code == 201
        assert client.get("/r/aa/new/.rss").status_code == status
    renamed = {"name": "old", "state": "renamed", "renamed_to": "fresh"}
    assert client.post("/sim/subreddits", json=renamed).status_code == 201
    assert client.get("/r/old/new/.rss").headers["location"] == "/r/fresh/new/.rss"
    assert client.get("/r/old+aa/new/.rss").status_code == 200

    assert client.post("/sim/access", json={"blocked": True, "accepts_key": False}).status_code == 201
    assert client.get("/r/aa/new/.rss").status_code == 403
    assert client.post(TOKEN_PATH, data={"grant_type": "client_credentials"}).status_code == 401
    shown = client.get("/sim/state").json()
    assert (shown["blocked"], shown["accepts_key"], shown["subreddits"]["old"]["state"]) == (True, False, "renamed")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("posts", {"subreddit": "nowhere"}),
        ("posts", {"subreddit": "aa", "count": 0}),
        ("posts", {"subreddit": "aa", "late": []}),
        ("subreddits", {"name": "aa", "state": "gone"}),
        ("subreddits", {"name": "aa", "state": "renamed"}),
        ("subreddits", {"name": "a+b", "state": ""}),
        ("access", {"open": True}),
        ("access", []),
    ],
)
def test_a_change_that_is_not_possible_is_refused(clock, path, body):
    site = RedditSite(now=clock)
    site.add("aa")
    assert TestClient(reddit_app(site)).post(f"/sim/{path}", json=body).status_code == 400
