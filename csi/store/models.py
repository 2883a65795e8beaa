"""The tables of the ingester as Peewee models. Only modules of `csi.store` write to them."""

from peewee import AutoField, BooleanField, DatabaseProxy, DoubleField, IntegerField, Model, TextField

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
    adapter_state = TextField(null=True)
    removed_at = DoubleField(null=True)
    removal_held_at = DoubleField(null=True)
    usual_gap = DoubleField(null=True)
    empty_reads = IntegerField(default=0)
    gone_at = DoubleField(null=True)
    stale_since = DoubleField(null=True)
    compared_at = DoubleField(null=True)
    slot_at = DoubleField(null=True)
    title = TextField(null=True)
    own_interval = DoubleField(null=True)
    reads = IntegerField(default=0)
    options_json = TextField(null=True)
    icon_url = TextField(null=True)
    icon_due_at = DoubleField(null=True)

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
    removed_at = DoubleField(null=True)

    class Meta:
        table_name = "events"
