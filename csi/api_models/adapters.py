"""Installed sources as JSON, and the result of the conformance suite."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from pydantic import BaseModel

from csi.api_models.base import ApiModel, RedactedOrNone
from csi.config.source_settings import SourceSettings

if TYPE_CHECKING:
    from csi.adapters.registry import InstalledAdapter
    from csi.testing import CheckResult


class AdapterJson(ApiModel):
    """One source: where it comes from, and why it cannot be used."""

    name: str
    path: str
    package: str | None
    """None: CSI itself."""
    fault: RedactedOrNone


class AdapterSetting(ApiModel):
    """One key of the source's block in the configuration."""

    key: str
    default: str
    description: str


class AdapterDetail(AdapterJson):
    """A source with its keys."""

    watch_key: str | None = None
    key_stems: tuple[str, ...] = ()
    has_samples: bool = False
    settings: tuple[AdapterSetting, ...] = ()

    @classmethod
    def of_adapter(cls, one: "InstalledAdapter") -> Self:
        adapter = one.adapter
        if adapter is None:
            return cls.of(one)
        fields, shared = adapter.Settings.model_fields, SourceSettings.model_fields
        return cls.of(
            one,
            watch_key=adapter.Settings.watch_key,
            key_stems=list(adapter.key_stems or (f"{one.name}:",)),
            has_samples=adapter.samples() is not None,
            settings=[
                AdapterSetting(
                    key=key,
                    default=_shown(field.get_default(call_default_factory=True)),
                    description=field.description or (shared[key].description if key in shared else None) or "",
                )
                for key, field in fields.items()
            ],
        )


class ConformanceCheck(ApiModel):
    """One check of the conformance suite."""

    name: str
    what: str
    faults: list[str]


class ConformanceReport(ApiModel):
    """What `csi adapters test` found."""

    name: str
    ok: bool
    checks: list[ConformanceCheck]

    @classmethod
    def of_results(cls, name: str, results: "Sequence[CheckResult]") -> Self:
        checks = [ConformanceCheck(name=one.name, what=one.what, faults=list(one.faults)) for one in results]
        return cls(name=name, ok=not any(one.faults for one in checks), checks=checks)


def _shown(value: object) -> str:
    match value:
        case None | ():
            return ""
        case tuple():
            return ", ".join(map(str, value))[:60]
        case bool():
            return str(value).lower()
        case BaseModel():
            return json.dumps(value.model_dump(mode="json", exclude_none=True))[:60]
    return str(value)[:60]
