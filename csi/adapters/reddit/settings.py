"""sources.reddit_subreddit: the keys, and which filters need OAuth."""

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from csi import __version__
from csi.config.durations import Seconds
from csi.config.setting_types import SourceUrl, TierName, VariableName
from csi.config.source_settings import SourceSettings, WatchSettings

NEEDS_OAUTH = ("flairs", "exclude_flairs", "min_score", "nsfw", "stickied")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{1,20}|u_[A-Za-z0-9_-]{3,20}")


def subreddit_name(text: str) -> str:
    """The bare name in `python`, `r/python` or `/r/python/`. ValueError: it cannot be a subreddit's name."""
    name = re.sub(r"^/?r/", "", text.strip(), flags=re.I).rstrip("/")
    if not _NAME.fullmatch(name):
        raise ValueError("expected a subreddit's name: 2 to 21 letters, digits and underscores, as in r/python")
    return name


SubredditName = Annotated[str, AfterValidator(subreddit_name)]
Words = Annotated[tuple[str, ...], Field(max_length=200)]
Presence = Literal["include", "exclude", "only"]
PostKind = Literal["self", "link"]


class SubredditWatch(WatchSettings):
    """One subreddit."""

    name: SubredditName = Field(description="The subreddit: python, or r/python")
    authors: Words | None = Field(None, description="Overrides the source's")
    exclude_authors: Words | None = Field(None, description="Overrides the source's")
    domains: Words | None = Field(None, description="Overrides the source's")
    exclude_domains: Words | None = Field(None, description="Overrides the source's")
    posts: tuple[PostKind, ...] | None = Field(None, description="Overrides the source's")
    flairs: Words | None = Field(None, description="Overrides the source's")
    exclude_flairs: Words | None = Field(None, description="Overrides the source's")
    min_score: int | None = Field(None, description="Overrides the source's")
    nsfw: Presence | None = Field(None, description="Overrides the source's")
    stickied: Presence | None = Field(None, description="Overrides the source's")

    @property
    def label(self) -> str:
        return f"r/{self.name}"

    @property
    def ref(self) -> str:
        return self.name.lower()


class RedditSettings(SourceSettings):
    """sources.reddit_subreddit"""

    watch_key: ClassVar[str | None] = "subreddits"

    poll_interval_seconds: Seconds = 180
    priority: TierName = "high_volume"
    feed_base_url: SourceUrl = Field("https://www.reddit.com", description="Where the feeds are")
    api_base_url: SourceUrl = Field("https://oauth.reddit.com", description="Where the API is, with OAuth")
    token_url: SourceUrl = Field(
        "https://www.reddit.com/api/v1/access_token", description="Where OAuth access tokens come from"
    )
    user_agent: str = Field(
        f"linux:csi:{__version__}",
        max_length=200,
        description="Reddit wants <platform>:<app id>:<version> (by /u/<your name>)",
    )
    client_id_env: VariableName | None = Field(
        None, description="Variable with the id of a Reddit app; with its secret, the API is read instead of the feed"
    )
    client_secret_env: VariableName | None = Field(None, description="Variable with the secret of the Reddit app")
    username_env: VariableName | None = Field(None, description="Variable with the account of a script app; optional")
    password_env: VariableName | None = Field(None, description="Variable with the password of that account")
    authors: Words = Field((), description="Only posts of these authors")
    exclude_authors: Words = Field((), description="No posts of these authors")
    domains: Words = Field((), description="Only posts that link to these domains")
    exclude_domains: Words = Field((), description="No posts that link to these domains")
    posts: tuple[PostKind, ...] = Field(("self", "link"), description="Kinds of posts: self (text), link")
    flairs: Words = Field((), description="Only posts with these flairs; needs OAuth")
    exclude_flairs: Words = Field((), description="No posts with these flairs; needs OAuth")
    min_score: int | None = Field(None, description="Only posts that reach this score while listed; needs OAuth")
    nsfw: Presence = Field("include", description="Posts marked as not safe for work; needs OAuth")
    stickied: Presence = Field("include", description="Posts that moderators pinned; needs OAuth")
    subreddits: tuple[SubredditWatch, ...] = ()

    @property
    def has_oauth(self) -> bool:
        return bool(self.client_id_env and self.client_secret_env)

    @model_validator(mode="after")
    def _credentials_are_complete(self) -> Self:
        if bool(self.client_id_env) != bool(self.client_secret_env):
            raise ValueError("client_id_env and client_secret_env belong together: set both, or none")
        if bool(self.username_env) != bool(self.password_env):
            raise ValueError("username_env and password_env belong together: set both, or none")
        return self

    @model_validator(mode="after")
    def _filters_have_facts(self) -> Self:
        if self.has_oauth:
            return self
        blocks: list[tuple[str, SourceSettings | WatchSettings]] = [("", self)]
        blocks += [(f"{watch.label}: ", watch) for watch in self.subreddits]
        for place, block in blocks:
            for key in NEEDS_OAUTH:
                if getattr(block, key) != type(block).model_fields[key].default:
                    raise ValueError(
                        f"{place}{key} needs OAuth: Reddit's feed does not tell it; set client_id_env and "
                        "client_secret_env, or remove it"
                    )
        return self

    def filters_of(self, watch: WatchSettings | None = None) -> dict[str, Any]:
        plain, own = super().filters_of(watch), watch if isinstance(watch, SubredditWatch) else None

        def value(key: str) -> Any:
            mine = getattr(own, key) if own is not None else None
            return getattr(self, key) if mine is None else mine

        kinds = value("posts")
        fields: dict[str, dict[str, Any]] = {
            "author": _lists(value("authors"), value("exclude_authors")),
            "domain": _lists(value("domains"), value("exclude_domains")),
            "flair": _lists(value("flairs"), value("exclude_flairs")),
            "is_self": {"only": [kinds[0] == "self"]} if len(set(kinds)) == 1 else {},
            "nsfw": _presence(value("nsfw")),
            "stickied": _presence(value("stickied")),
            "score": {} if value("min_score") is None else {"least": value("min_score")},
        }
        fields = {name: rule for name, rule in fields.items() if rule}
        return plain | ({"fields": fields} if fields else {})


def _lists(only: tuple[str, ...], never: tuple[str, ...]) -> dict[str, Any]:
    rule = {"only": sorted(_plain(word) for word in only), "never": sorted(_plain(word) for word in never)}
    return {key: words for key, words in rule.items() if words}


def _plain(word: str) -> str:
    return re.sub(r"^/?u/", "", word.strip(), flags=re.I).lower()


def _presence(word: Presence) -> dict[str, Any]:
    return {"include": {}, "exclude": {"never": [True]}, "only": {"only": [True]}}[word]
