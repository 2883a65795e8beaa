"""Settings of sources and their watches: intervals, first poll, filters, push."""

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    field_validator,
    model_validator,
)

from csi.config.durations import Seconds
from csi.config.setting_types import Interval, Model, PublicUrl, SourceUrl, TierName, check_interval
from csi.patterns import check_pattern


class FirstPollLast(Model):
    """`first_poll: {last: N}`: emit the newest N and mark the rest as seen."""

    last: int = Field(ge=0, le=1000)


def _first_poll(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """One message instead of one per member of the union."""
    try:
        return check(value)
    except ValueError as error:
        raise ValueError("expected mark_seen, all, or last: N with N from 0 to 1000") from error


FirstPoll = Annotated[Literal["mark_seen", "all"] | FirstPollLast, WrapValidator(_first_poll)]


ItemKind = Literal["video", "short", "live", "upcoming"]
KINDS: tuple[ItemKind, ...] = ("video", "short", "live", "upcoming")
"""The kinds of an item (`subject.kind`). All are included by default."""


def _some_kind(kinds: tuple[ItemKind, ...]) -> tuple[ItemKind, ...]:
    if not kinds:
        raise ValueError(f"expected at least one of {', '.join(KINDS)}")
    return tuple(dict.fromkeys(kinds))


ItemKinds = Annotated[tuple[ItemKind, ...], AfterValidator(_some_kind)]
Pattern = Annotated[str, AfterValidator(check_pattern)]
Length = Annotated[Seconds, Field(ge=0)]

# Created by a call because `not`, one of its keys, is a keyword of Python.
TitleFilter = create_model(
    "TitleFilter",
    __base__=Model,
    __doc__="Regular expressions that a title must match, and must not match; (?i) ignores case.",
    **{  # type: ignore[call-overload]
        "match": (Pattern | None, Field(None, description="Only items whose title matches")),
        "not": (Pattern | None, Field(None, description="No items whose title matches")),
    },
)

FILTERS = ("include", "title", "min_duration_seconds", "max_duration_seconds")
"""The keys that filter items. A watch's own value wins over that of its source."""


W = TypeVar("W", "WatchSettings", "SourceSettings")


def _check_lengths(settings: W) -> W:
    low, high = settings.min_duration_seconds, settings.max_duration_seconds
    if low is not None and high is not None and low > high:
        raise ValueError("min_duration_seconds is more than max_duration_seconds, so no item would be included")
    return settings


class WatchSettings(Model):
    """One watch. Subclasses add the field that identifies it."""

    name: str | None = Field(None, max_length=200, description="A name that is shown beside the id")
    route_profile: str | None = Field(None, description="A key of route_profiles")
    tags: tuple[str, ...] = Field((), description="Added to the route profile's tags")
    poll_interval_seconds: Interval | None = Field(None, description="Overrides the source's interval")
    first_poll: FirstPoll | None = Field(None, description="Overrides the source's first_poll")
    include: ItemKinds | None = Field(None, description="Overrides the source's include")
    title: TitleFilter | None = Field(None, description="Overrides the source's title")
    min_duration_seconds: Length | None = Field(None, description="Overrides the source's")
    max_duration_seconds: Length | None = Field(None, description="Overrides the source's")

    _lengths_fit = model_validator(mode="after")(_check_lengths)

    @property
    def label(self) -> str | None:
        """The name that is shown beside the ref."""
        return self.name

    @property
    def ref_fault(self) -> str | None:
        """Why nothing can have this ref, and how to find the right one. None: it has the right form."""
        return None

    @property
    def ref(self) -> str:
        """What identifies this watch within its source."""
        raise NotImplementedError(f"{type(self).__name__} must define what identifies a watch")


class AdaptivePolling(Model):
    """Two polling intervals (FR-1.3): a short one while new items appear, a long one otherwise."""

    enabled: bool = Field(True, description="Poll at the idle interval while nothing new appears, if that saves quota")
    active_interval_seconds: Seconds | None = Field(
        None, gt=0, description="Interval while active; default: poll_interval_seconds"
    )
    idle_interval_seconds: Seconds = Field(300, gt=0, description="Interval while idle")
    activity_threshold_minutes: float = Field(15, ge=0, description="Idle after this long without a new item")
    min_quota_buffer: int = Field(1000, ge=0, description="API units kept back for other work")


class SourceSettings(Model):
    """The keys of every source. Each adapter's module has a subclass with its own."""

    enabled: bool = Field(True, description="Poll this source")
    poll_interval_seconds: Seconds = Field(300, description="Time between two polls of one watch")
    priority: TierName = Field("standard", description="Delivery tier of this source's events")
    first_poll: FirstPoll = Field("mark_seen", description="What the first successful read of a watch emits")
    include: ItemKinds = Field(KINDS, description="Kinds of items that become events")
    title: TitleFilter = Field(TitleFilter(), description="Titles of items that become events")
    min_duration_seconds: Length | None = Field(None, description="Drop shorter items, if their length is known")
    max_duration_seconds: Length | None = Field(None, description="Drop longer items, if their length is known")

    streaming_mode: bool = Field(False, description="Send each event at once and alone, several in parallel, unordered")
    max_concurrent_events: int = Field(10, ge=1, le=64, description="With streaming_mode: events in flight at once")

    watch_key: ClassVar[str | None] = None
    """The key of the list of watches. None: the source has no such list and is one watch."""

    @property
    def adaptive(self) -> AdaptivePolling | None:
        """The two intervals of a source that polls adaptively."""
        return getattr(self, "adaptive_polling", None)

    @property
    def budget_units(self) -> int | None:
        """Units of the YouTube Data API that this source may use in a day. None: it uses none."""
        return getattr(self, "quota_limit", None)

    @property
    def websub(self) -> "PushSettings | None":
        """The `push` block of a source that has one."""
        return getattr(self, "push", None)

    @property
    def waits_for_caches(self) -> bool:
        """Whether a watch is read when the source's cached response expires, and not at its interval."""
        return bool(getattr(self, "respect_cache_headers", False))

    @property
    def watches(self) -> tuple[WatchSettings, ...]:
        return getattr(self, self.watch_key) if self.watch_key else ()

    def filters_of(self, watch: WatchSettings | None = None) -> dict[str, Any]:
        """The filters that exclude items, as plain JSON; the watch's own keys win."""
        own, plain = watch or WatchSettings(), dict[str, Any]()
        for key in FILTERS:
            value = getattr(self if getattr(own, key) is None else own, key)
            if isinstance(value, BaseModel):
                value = value.model_dump(exclude_none=True)
            elif isinstance(value, tuple):
                value = [kind for kind in KINDS if kind in value]
            if value and value != list(KINDS):
                plain[key] = value
        return plain

    _lengths_fit = model_validator(mode="after")(_check_lengths)
    # Not in the annotation: subclasses redeclare the field with another default.
    _interval_is_sane = field_validator("poll_interval_seconds")(check_interval)


class UnusableSource(SourceSettings):
    """The block of a plugin that cannot be used: whatever the block says, the source is not polled."""

    model_config = ConfigDict(extra="ignore")
    fault: ClassVar[str] = ""
    wanted: bool = Field(True, exclude=True, description="The configuration enables it")

    @model_validator(mode="before")
    @classmethod
    def _never_polled(cls, data: Any) -> Any:
        return {"enabled": False, "wanted": not isinstance(data, dict) or data.get("enabled") is not False}


def unusable_source(name: str, fault: str) -> type[UnusableSource]:
    members = {"__doc__": f"sources.{name}", "__module__": __name__, "fault": fault}
    return type(f"Unusable_{name}", (UnusableSource,), members)


class PushSettings(Model):
    """WebSub: a hub announces changes of feeds, and each announcement is confirmed by a read."""

    callback_url: PublicUrl = Field(description="Where the hub reaches this sidecar: https://csi.example.org")
    hub_url: SourceUrl | None = Field(None, description="The hub; default: the one that the source or feed names")
    lease_seconds: Seconds = Field(432_000, ge=3600, le=2_592_000, description="The lease that the hub is asked for")
    stretch: bool = Field(
        True, description="Poll less often while pushes are complete: 4 times the interval, 1 h at most"
    )
    removed_events: bool = Field(False, description="Emit video_removed when the hub announces that a video is gone")

    @property
    def callback_base(self) -> str:
        """The address in front of `/hooks`, whatever follows it."""
        return self.callback_url.partition("/hooks")[0]
