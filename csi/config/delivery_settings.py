"""Settings of delivery: tiers, destinations, retries, dead letters."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from csi.config.destination_profiles import (
    PRESETS,
    SECRET_HEADER,
    Answers,
    BodyForm,
    HeaderName,
    HeaderText,
    Preset,
    SecretForm,
    SignatureScheme,
    profile_fault,
)
from csi.config.durations import Seconds
from csi.config.setting_types import (
    MaintenanceWindow,
    Model,
    Name,
    PlainHttpError,
    SourceUrl,
    TierName,
    VariableName,
    check_url,
)


class TierSettings(Model):
    """When a tier is flushed."""

    batch_size: int = Field(ge=1, le=10_000, description="Flush when this many wait")
    max_delay_seconds: Seconds = Field(le=3600, description="Flush when the oldest has waited this long")


STREAM = "stream"
"""The lane of sources with streaming_mode: one event per request, sent at once."""

RESEND = "resend"
"""The lane of events that an operator sends again: batches of their own, which no figure of first deliveries counts."""

_STREAM = TierSettings(batch_size=1, max_delay_seconds=0)


class PriorityBehavior(Model):
    """The three tiers."""

    urgent: TierSettings = TierSettings(batch_size=1, max_delay_seconds=5)
    standard: TierSettings = TierSettings(batch_size=100, max_delay_seconds=30)
    high_volume: TierSettings = TierSettings(batch_size=500, max_delay_seconds=60)

    @field_validator("urgent", "standard", "high_volume", mode="before")
    @classmethod
    def _rest_is_default(cls, value: Any, info: ValidationInfo) -> Any:
        """A key that a tier leaves out keeps that tier's default."""
        default: TierSettings = cls.model_fields[str(info.field_name)].default
        return default.model_dump() | value if isinstance(value, dict) else value

    def of(self, tier: str) -> TierSettings:
        """The settings of a tier, or of the lane of streaming sources; what is sent again is batched as standard."""
        settings: TierSettings = _STREAM if tier == STREAM else self.standard if tier == RESEND else getattr(self, tier)
        return settings


def _shorter_than_a_lease(value: float) -> float:
    if not 0.1 <= value <= 45:
        raise ValueError("expected 0.1 to 45 seconds: the lease of a batch, 60 s at most, must outlast the request")
    return value


RequestTime = Annotated[Seconds, AfterValidator(_shorter_than_a_lease)]
JsonForm = Literal["auto", "ascii", "utf8"]


class SecretHeader(Model):
    """A header whose value comes from the environment."""

    value_env: VariableName = Field(description="Variable that holds the value")
    prefix: str = Field("", max_length=40, pattern=r"^[\x20-\x7e]*$", description='Text before it, such as "Bearer "')


class DestinationSettings(Model):
    """A destination beside `ua_endpoint`, from the configuration file or from a row of the database. A key that it
    leaves out has the value of its preset, then that of `delivery`, then the PRD's contract."""

    preset: Preset | None = Field(None, description="Ready-made values of the keys below: slack, n8n …")
    type: Literal["http", "notify"] = Field("http", description="notify: messages to people, through apprise")
    endpoint: SourceUrl | None = Field(None, description="URL that events are sent to")
    endpoint_env: VariableName | None = Field(
        None, description="Variable that holds the URL, where it is a secret; for notify an apprise URL"
    )
    secret_env: VariableName | None = Field(None, description="Variable that holds the secret of its signature")
    secret_form: SecretForm = Field("raw", description="raw: the secret's own bytes; whsec: whsec_ and base64")
    bearer_env: VariableName | None = Field(None, description="Variable that holds its bearer token, if not the secret")
    answers: Answers = Field("contract", description="status: every 2xx is delivered, whatever its body says")
    body: BodyForm = Field("batch", description="One event per request, CloudEvents, or our own envelope")
    signature: SignatureScheme = Field("csi", description="Scheme of the signature")
    method: Literal["POST", "PUT", "PATCH"] = Field("POST", description="HTTP method")
    headers: dict[HeaderName, HeaderText | SecretHeader] = Field(
        default_factory=dict, description="Headers of its own; a secret one as {value_env: VARIABLE}"
    )
    template: str | None = Field(None, min_length=1, max_length=20_000, description="Jinja2 template of the body")
    title: str | None = Field(None, min_length=1, max_length=2000, description="Jinja2 template of a message's title")
    group_seconds: Seconds | None = Field(
        None, ge=0, le=86_400, description="Collect events this long into one message; default of notify: 5 minutes"
    )
    quiet_hours: tuple[MaintenanceWindow, ...] = Field((), description="Times of the week in which nothing is sent")
    sources: tuple[str, ...] = Field((), description="Only events of these sources; empty: all")
    event_types: tuple[str, ...] = Field((), description="Only events of these types; empty: all")
    tags: tuple[str, ...] = Field((), description="Only events with one of these tags; empty: all")
    watches: tuple[str, ...] = Field(
        (), description="Only events of these watches (playlist, channel, feed); empty: all"
    )
    tiers: tuple[TierName, ...] = Field((), description="Only events of these tiers; empty: all")
    priority_behavior: PriorityBehavior | None = Field(None, description="Tier settings of its own")
    timeout_seconds: RequestTime | None = Field(None, description="Total time for one request")
    max_events_per_request: int | None = Field(None, ge=1, le=100, description="Events in one request")
    max_concurrent_requests: int | None = Field(None, ge=1, le=64, description="Requests at once")
    canonical_json: JsonForm | None = Field(None, description="Form of the signed JSON")
    standard_webhooks: bool | None = Field(None, description="Send Standard Webhooks headers, too")

    @model_validator(mode="before")
    @classmethod
    def _take_preset(cls, data: Any) -> Any:
        """Keys that are given win over those of the preset; an unknown preset is reported by its own field."""
        if not isinstance(data, dict):
            return data
        name = data.get("preset")
        preset = PRESETS.get(name, {}) if isinstance(name, str) else {}
        kind = {"answers": "status", "signature": "none"} if data.get("type") == "notify" else {}
        return {**kind, **preset, **data}

    @field_validator("headers")
    @classmethod
    def _no_secret_in_the_file(cls, value: dict[str, str | SecretHeader]) -> dict[str, str | SecretHeader]:
        for name, given in value.items():
            if isinstance(given, str) and SECRET_HEADER.search(name):
                raise ValueError(
                    f"a secret does not belong in the file; write {name}: {{value_env: VARIABLE}} and set that variable"
                )
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if fault := profile_fault(self):
            raise ValueError(fault)
        return self


class DeliverySettings(Model):
    """The default destination and what all destinations share. Worker and sidecar do not start without endpoint and
    secret, which come from the environment."""

    allow_insecure_http: bool = Field(False, description="Allow plain http to a host in a private network")
    ua_endpoint: str | None = Field(None, description="URL of the receiver's ingest endpoint")
    shared_secret: SecretStr | None = Field(None, description="HMAC secret; only as ${CSI_UA_SHARED_SECRET}")
    bearer_token: SecretStr | None = Field(None, description="Bearer token, if it is not the secret")
    priority_behavior: PriorityBehavior = PriorityBehavior()
    timeout_seconds: RequestTime = Field(30, description="Total time for one request, connect to last byte")
    max_events_per_request: int = Field(100, ge=1, le=100)
    max_concurrent_requests: int = Field(4, ge=1, le=64, description="Standard and high_volume requests at once")
    canonical_json: JsonForm = Field("auto", description="Form of the signed JSON; auto learns it from the receiver")
    standard_webhooks: bool = Field(False, description="Send Standard Webhooks headers beside ours")
    destinations: dict[Name, DestinationSettings] = Field(
        default_factory=dict, description="More destinations by name, each with its own filters and circuit breaker"
    )

    @field_validator("destinations")
    @classmethod
    def _default_is_taken(cls, value: dict[str, DestinationSettings]) -> dict[str, DestinationSettings]:
        if "default" in value:
            raise ValueError("the name default belongs to ua_endpoint; choose another")
        return value

    @field_validator("ua_endpoint")
    @classmethod
    def _safe_endpoint(cls, value: str | None, info: ValidationInfo) -> str | None:
        # pydantic validates in the order of the fields: allow_insecure_http is declared first, so it is known here.
        plain_http = info.data.get("allow_insecure_http", False)
        try:
            return check_url(value, plain_http=plain_http) if value else None
        except PlainHttpError as error:
            raise ValueError(f"{error}, or set allow_insecure_http: true") from error


class DlqSettings(Model):
    """Dead letters."""

    auto_redrive: bool = Field(True, description="Resend dead letters of a failing receiver once it accepts events")
    max_redrive_rounds: int = Field(3, ge=1, le=100)
