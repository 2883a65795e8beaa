"""The simulated Reddit over HTTP."""

import base64

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
