"""What every JSON model has in common: how it is built from a row, and the types of its times and texts."""

import inspect
import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Self, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic_core import CoreSchema

from csi import clock
from csi.logs import redact


class ApiModel(BaseModel):
    """One object of the admin API and of `--json`. Later releases add keys; they remove none and change no type."""

    # Built at the first use: a command that prints one of these objects does not pay for all the others.
    model_config = ConfigDict(
        from_attributes=True,
        frozen=True,
        defer_build=True,
        populate_by_name=True,
        json_schema_serialization_defaults_required=True,
    )

    def __init_subclass__(cls, *, row: type | None = None, without: Collection[str] = (), **options: Any) -> None:
        """The model has the fields of the dataclass `row`, except `without`. A field that it declares itself takes the
        place of the row's."""
        super().__init_subclass__(**options)
        if row is not None:
            fields = {name: hint for name, hint in get_type_hints(row).items() if name not in without}
            cls.__annotations__ = fields | inspect.get_annotations(cls)

    @classmethod
    def of(cls, source: object = None, /, **more: object) -> Self:
        """From the attributes of a row or dataclass; `more` adds fields, and replaces those of the same name."""
        if source is None:
            return cls.model_validate(more)
        if isinstance(source, Mapping):
            return cls.model_validate({**source, **more})
        return cls.model_validate(_Overlay(source, more) if more else source)


class _Overlay:
    """The attributes of `more`, then those of `source`."""

    def __init__(self, source: object, more: Mapping[str, object]) -> None:
        self.__dict__.update(more)
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


class RenamedKeys(ApiModel):
    """An object that still has keys of release 1.0 under their old names."""

    _old_names: ClassVar[dict[str, str]] = {}
    """Old name: new name."""

    def __init_subclass__(cls, *, renamed: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._old_names = {**cls._old_names, **(renamed or {})}

    @model_serializer(mode="wrap")
    def _with_old_names(self, serialize: SerializerFunctionWrapHandler, info: SerializationInfo):  # type: ignore[no-untyped-def]
        # Without a return type on purpose: with one, the JSON schema would be that type and not the fields.
        found = serialize(self)
        if info.context and info.context.get("without_old_names"):
            return found
        return found | {old: found[new] for old, new in self._old_names.items()}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:  # fmt: skip
        found = handler.resolve_ref_schema(handler(core_schema))
        for old, new in cls._old_names.items():
            text = f"Deprecated: renamed to `{new}`."
            found["properties"][old] = found["properties"][new] | {"deprecated": True, "description": text}
        return found


def _iso(moment: Any) -> Any:
    return clock.iso(moment) if isinstance(moment, int | float) else moment


def _without_surrogates(text: Any) -> Any:
    """JSON from outside can hold half of a surrogate pair, which neither UTF-8 nor pydantic can represent."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) and not text.isascii() else text


def _redacted(text: Any) -> Any:
    return _without_surrogates(redact(text)) if isinstance(text, str) else "" if text is None else text


def _redacted_or_none(text: Any) -> Any:
    return _redacted(text) if text else None


def _redacted_values(details: Mapping[str, Any]) -> dict[str, Any]:
    return {name: redact(value) if isinstance(value, str) else value for name, value in details.items()}


def _object(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


_STAMP = WithJsonSchema({"type": "string", "format": "date-time"})
_STAMP_OR_NULL = WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]})

Time = Annotated[str, BeforeValidator(_iso), _STAMP]
"""ISO 8601 in UTC; built from seconds since 1970."""
TimeOrNone = Annotated[str | None, BeforeValidator(_iso), _STAMP_OR_NULL]
PreciseTime = Annotated[str, BeforeValidator(clock.iso_precise)]
"""With milliseconds, where it matters which step came first."""
ForeignText = Annotated[str | None, BeforeValidator(_without_surrogates)]
TextOrNone = Annotated[str | None, BeforeValidator(lambda text: text or None)]
"""Empty becomes None."""
Redacted = Annotated[str, BeforeValidator(_redacted)]
"""Text that may repeat a secret; None becomes empty."""
RedactedOrNone = Annotated[str | None, BeforeValidator(_redacted_or_none)]
RedactedDetails = Annotated[dict[str, Any], BeforeValidator(_redacted_values)]
JsonColumn = Annotated[dict[str, Any], BeforeValidator(_object)]
Ratio = Annotated[float | None, BeforeValidator(lambda value: None if value is None else round(value, 6))]
Seconds = Annotated[float | None, BeforeValidator(lambda value: None if value is None else round(value, 3))]
