"""The tables of the ingester as Peewee models. Only modules of `csi.store` write to them."""

from peewee import (
    AutoField,
    BooleanField,
    CompositeKey,
    DatabaseProxy,
    DoubleField,
    IntegerField,
    Model,
    TextField,
)

database = DatabaseProxy()


class TableModel(Model):
    """The base of all tables."""

    class Meta:
        database = database
        legacy_table_names = False


class Watch(TableModel):
    """One configured feed, playlist or subreddit, and when it is polled next."""

    id = AutoField()
    source = TextField()
    ref = TextField()
    name = TextField(null=True)
    route_profile = TextField(null=True)
    tags_json = TextField(default="[]")
    tier = TextField()
    interval_seconds = DoubleField()
    first_poll = TextField(default='"mark_seen"')
    origin = TextField(default="config")
    state = TextField(default="active")
    next_poll_at = DoubleField()
    wake_at = DoubleField()
    lease_token = TextField(null=True)
    lease_until = DoubleField(null=True)
    first_read_at = DoubleField(null=True)
    last_poll_at = DoubleField(null=True)
    last_success_at = DoubleField(null=True)
    last_new_at = DoubleField(null=True)
    errors = IntegerField(default=0)
    last_error = TextField(null=True)
    etag = TextField(null=True)
    last_modified = TextField(null=True)
    created_at = TextField()
    health = TextField(default="healthy")
    health_since = DoubleField(null=True)
    error_kind = TextField(null=True)
    note = TextField(null=True)
    filters_json = TextField(default="{}")
    via = TextField(default="feed")
    pages = IntegerField(default=1)
    planned_interval = DoubleField(null=True)
    fresh_until = DoubleField(null=True)
    probe_json = TextField(null=True)
    walked_at = DoubleField(null=True)
    missing_since = DoubleField(null=True)
    host = TextField(null=True)
    gap_json = TextField(null=True)
    feed_url = TextField(null=True)
    last_video_published_at = DoubleField(null=True)

    class Meta:
        table_name = "watches"


class Host(TableModel):
    """A host that watches are polled from: rate limiting (`paused_until`) and outages."""

    host = TextField(primary_key=True)
    paused_until = DoubleField(null=True)
    pause_reason = TextField(null=True)
    pauses = IntegerField(default=0)
    outage_since = DoubleField(null=True)
    outage_reason = TextField(null=True)
    outage_watches = IntegerField(default=0)
    recovering_at = DoubleField(null=True)
    last_ok_at = DoubleField(null=True)
    last_error_at = DoubleField(null=True)

    class Meta:
        table_name = "hosts"


class InboxItem(TableModel):
    """One item that a poll stored and that is not yet an event. Deleted when it becomes one."""

    id = AutoField()
    watch_id = IntegerField()
    item_key = TextField(unique=True)
    event_type = TextField()
    occurred_at = TextField()
    payload_json = TextField()
    seen_at = DoubleField()
    state = TextField(default="new")
    claims = IntegerField(default=0)
    wake_at = DoubleField()
    lease_token = TextField(null=True)
    lease_until = DoubleField(null=True)
    letter_id = IntegerField(null=True)

    class Meta:
        table_name = "inbox"


class BatchModel(TableModel):
    """Events that are sent together. The set does not change after it was claimed."""

    id = AutoField()
    batch_id = TextField(unique=True)
    destination = TextField()
    tier = TextField()
    size = IntegerField()
    probe = BooleanField(default=False)
    sibling = IntegerField(null=True)
    rest = IntegerField(null=True)
    proof = TextField(null=True)
    letter_id = IntegerField(null=True)
    state = TextField(default="ready")
    attempts = IntegerField(default=0)
    crashes = IntegerField(default=0)
    next_attempt_at = DoubleField()
    wake_at = DoubleField()
    lease_token = TextField(null=True)
    lease_until = DoubleField(null=True)
    created_at = DoubleField()
    settled_at = DoubleField(null=True)

    class Meta:
        table_name = "batches"


class Event(TableModel):
    """One CreatorSignalEvent and its delivery state."""

    id = AutoField()
    event_id = TextField(unique=True)
    dedupe_key = TextField()
    source = TextField()
    event_type = TextField()
    occurred_at = TextField()
    received_at = TextField()
    emitted_at = TextField(null=True)
    subject_json = TextField()
    routing_json = TextField()
    metadata_json = TextField()
    delivered = BooleanField(default=False)
    created_at = TextField(null=True)
    raw_ref = TextField(null=True)
    contract_version = TextField()
    watch_id = IntegerField(null=True)
    seq = IntegerField()
    tier = TextField()
    state = TextField(default="pending")
    first_seen_at = DoubleField()
    delivered_at = DoubleField(null=True)

    class Meta:
        table_name = "events"


class OutboxEntry(TableModel):
    """One event to deliver to one destination. Deleted when it was delivered or given up."""

    id = AutoField()
    event_pk = IntegerField()
    destination = TextField()
    tier = TextField()
    watch_id = IntegerField(null=True)
    seq = IntegerField()
    state = TextField(default="pending")
    due_at = DoubleField()
    batch_id = IntegerField(null=True)
    alone = BooleanField(default=False)

    class Meta:
        table_name = "outbox"


class DedupeKey(TableModel):
    """The key of a known item, and the reason: emitted, first_poll, filtered, malformed."""

    key = TextField(primary_key=True)
    expires_at = TextField()
    reason = TextField(default="emitted")
    first_seen_at = DoubleField(null=True)

    class Meta:
        table_name = "dedupe_keys"


class DeliveryAttempt(TableModel):
    """One request to a receiver. Inserted before it is sent, completed with the answer."""

    id = AutoField()
    batch_id = IntegerField(null=True)
    destination = TextField()
    request_id = TextField()
    attempt = IntegerField()
    form = TextField()
    started_at = DoubleField()
    finished_at = DoubleField(null=True)
    outcome = TextField()
    status = IntegerField(null=True)
    reason = TextField(null=True)
    answer = TextField(null=True)

    class Meta:
        table_name = "delivery_attempts"


class DeadLetter(TableModel):
    """One event that could not be delivered, or one item that could not become an event."""

    id = AutoField()
    event_id = TextField()
    item_key = TextField(null=True)
    event_json = TextField()
    error_reason = TextField(null=True)
    retry_count = IntegerField(default=0)
    created_at = TextField(null=True)
    source = TextField()
    destination = TextField(default="default")
    cause = TextField()
    status = IntegerField(null=True)
    state = TextField(default="open")
    rounds = IntegerField(default=0)
    first_seen_at = DoubleField(null=True)
    died_at = DoubleField()
    closed_at = DoubleField(null=True)
    result = TextField(null=True)

    class Meta:
        table_name = "dead_letter"


class Counter(TableModel):
    """A counter that only grows; the sidecar's metrics read it."""

    name = TextField()
    source = TextField(default="")
    label = TextField(default="")
    value = DoubleField(default=0)

    class Meta:
        table_name = "counters"
        primary_key = CompositeKey("name", "source", "label")


class ApiBudget(TableModel):
    """Units of the YouTube Data API used in one Pacific day."""

    id = TextField(primary_key=True)
    quota_used = IntegerField(default=0)
    quota_limit = IntegerField()
    period_start = TextField()
    period_end = TextField()
    last_updated_at = TextField()

    class Meta:
        table_name = "api_budget"


class Heartbeat(TableModel):
    """When a process last proved to be alive."""

    name = TextField(primary_key=True)
    beat_at = DoubleField()
    started_at = DoubleField()
    pid = IntegerField()
    first_beat_at = DoubleField(null=True)
    queued = IntegerField(null=True)
    clock_json = TextField(null=True)

    class Meta:
        table_name = "heartbeats"
