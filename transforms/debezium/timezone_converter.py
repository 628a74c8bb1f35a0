"""`TimezoneConverter`: converts timestamps in change events to another time zone."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from connect_py.api.batch import Batch, Column
from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed, Type
from connect_py.api.errors import ConfigError, NotColumnar
from connect_py.api.record import R
from connect_py.api.schema import Schema, Struct, Value
from connect_py.api.schema import Type as SchemaType
from connect_py.api.transformation import Transformation
from connect_py.java.civil_days import date_of, days_of
from connect_py.java.errors import DateTimeParseError
from connect_py.java.strings import wrap
from transforms.debezium.envelope import PER_SECOND, is_envelope
from transforms.debezium.time_zone import TimeZone

if TYPE_CHECKING:
    import pyarrow as pa

ZONED_TIMESTAMP: Final = "io.debezium.time.ZonedTimestamp"
ZONED_TIME: Final = "io.debezium.time.ZonedTime"
_TIMESTAMP = re.compile(
    r"([+-]?\d{4,9})-(\d\d)-(\d\d)T"
    + (_CLOCK := r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d(?::\d\d)?)")
)
_TIME = re.compile(_CLOCK)


def _known_zone(name: str, value: Parsed) -> None:
    try:
        TimeZone(value or "")
    except ValueError as error:
        raise ConfigValueError(name, value, str(error)) from error


@dataclass(frozen=True, slots=True)
class _ListItem:
    """Item of include.list or exclude.list: a field, or one or all fields of a table or topic."""

    source: str | None = None
    topic: str | None = None
    name: str | None = None  # name of a table or topic
    field: str | None = None

    @classmethod
    def parse(cls, item: str) -> _ListItem:
        parts = item.split(":")
        if parts[0] in ("source", "topic") and len(parts) in (2, 3) and all(parts):
            kind, name, *rest = parts
            field = rest[0] if rest else None
            return (
                cls(source=name, field=field) if kind == "source" else cls(topic=name, field=field)
            )
        if len(parts) > 2 or not all(parts):
            raise ConfigError(
                "", f"invalid item {item}: expected source:table, topic:name, name:field, or field"
            )
        return cls(field=item) if len(parts) == 1 else cls(name=parts[0], field=parts[1])

    def matches(self, table: str | None, topic: str, field: str) -> bool:
        if self.name not in (None, table, topic):
            return False
        return (
            self.source in (None, table)
            and self.topic in (None, topic)
            and self.field in (None, field)
        )


class TimezoneConverter(Transformation[R]):
    """Converts zoned times to the configured zone, and local times in that zone to UTC.

    If a column is null and has a default, the default is converted. `apply` and `apply_batch` are
    both implemented directly, because `FieldTransformation` cannot decide per table whether to
    convert a column of a nested row.
    """

    config_def = (
        ConfigDef()
        .define(
            "converted.timezone",
            Type.STRING,
            validator=_known_zone,
            importance=Importance.HIGH,
            doc="Time zone: a name such as Europe/Berlin, or an offset such as +02:00.",
        )
        .define(
            "include.list",
            Type.LIST,
            default="",
            importance=Importance.MEDIUM,
            doc="Fields to convert, each as source:table, source:table:field, topic:name, "
            "topic:name:field, name:field (name of a table or topic), or field.",
        )
        .define(
            "exclude.list",
            Type.LIST,
            default="",
            importance=Importance.MEDIUM,
            doc="Fields that are not converted, in the format of include.list.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        if props["include.list"] and props["exclude.list"]:
            raise ConfigError(
                "", "Both include and exclude lists were specified. Please specify at most one."
            )
        self._zone = TimeZone(props["converted.timezone"])
        self._excludes = bool(props["exclude.list"])
        self._items = [
            _ListItem.parse(item) for item in props["exclude.list"] or props["include.list"]
        ]
        self._converts = lru_cache(maxsize=4096)(self._is_converted)

    def _is_converted(self, table: str | None, topic: str, field: str) -> bool:
        if not self._items:
            return True
        return self._excludes != any(item.matches(table, topic, field) for item in self._items)

    def apply(self, record: R) -> R | None:
        if record.value is None or not is_envelope(record.value_schema):
            return record
        event: Struct = record.value
        values = list(event.values)
        table = _table(event)
        for name in ("before", "after"):
            field = event.schema.field(name)
            if field is not None and isinstance(values[field.index], Struct):
                values[field.index] = self._row(values[field.index], table, record.topic)
        return record.replace(value=Struct(event.schema, values))

    def _row(self, row: Struct, table: str | None, topic: str) -> Struct:
        values = []
        for field, value in row:
            if _is_time(field.schema) and self._converts(table, topic, field.name):
                if value is None:
                    value = field.schema.default
                if value is not None:
                    value = self._converted(field.schema, value)
            values.append(value)
        return Struct(row.schema, values)

    def _converted(self, schema: Schema, value: Value) -> Value:
        if schema.name == ZONED_TIMESTAMP:
            return self._timestamp(value)
        if schema.name == ZONED_TIME:
            return self._time(value)
        unit = PER_SECOND[schema.name or ""]
        return wrap(value - self._zone.offset_of_local(value // unit) * unit, 64)

    def _timestamp(self, value: str) -> str:
        match = _TIMESTAMP.fullmatch(value)
        if match is None:
            raise _parse_error(value)
        year, month, day = (int(g) for g in match.groups()[:3])
        seconds = (
            days_of(year, month, day) * 86_400 + _clock(match.groups()[3:6]) - _offset(match[8])
        )
        offset = self._zone.offset(seconds)
        days, rest = divmod(seconds + offset, 86_400)
        return f"{_format_date(days)}T{_format_time(rest, match[7])}{_format_offset(offset)}"

    def _time(self, value: str) -> str:
        match = _TIME.fullmatch(value)
        if match is None:
            raise _parse_error(value)
        offset = self._zone.offset(int(time.time()))
        seconds = _clock(match.groups()[:3]) - _offset(match[5]) + offset
        return _format_time(seconds % 86_400, match[4]) + _format_offset(offset)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        from transforms.columns import blamed, children, struct_column

        column = batch.value
        schema = column.schema
        if schema is None or not is_envelope(schema):
            return [batch]
        parts = children(column.data)
        for name in ("before", "after"):
            field = schema.field(name)
            if field is None or field.schema.type is not SchemaType.STRUCT:
                continue
            row = parts[field.index]
            try:
                columns = [
                    self._column(inside.schema, member)
                    if self._may_convert(column, batch.topic, inside.name)
                    else member
                    for inside, member in zip(field.schema.fields, children(row), strict=True)
                ]
            except DateTimeParseError as error:
                raise blamed(batch, self.apply) from error
            null = row.is_null() if row.null_count else None
            parts[field.index] = struct_column(field.schema, columns, null, len(batch))
        data = struct_column(schema, parts, column.is_null(), len(batch))
        value = Column(schema, data, column.tombstone, tombstone_schema=column.tombstone_schema)
        return [batch.replace(value=value)]

    def _may_convert(self, column: Column, topic: str, field: str) -> bool:
        """Return True if a column must be converted.

        Raises:
            NotColumnar: The column must be converted for only some of the tables in the batch.
        """
        if not self._items:
            return True
        source = column.member("source")
        table = None if source is None else source.member("table") or source.member("collection")
        tables = [None] if table is None else table.data.unique().to_pylist()
        converts = {self._converts(name, topic, field) for name in tables}
        if len(converts) > 1:
            raise NotColumnar("rows from several tables")
        return converts.pop()

    def _column(self, schema: Schema, data: pa.Array) -> pa.Array:
        from connect_py.columns.arrow import to_array, to_values

        if not _is_time(schema):
            return data
        values = [schema.default if value is None else value for value in to_values(schema, data)]
        return to_array(
            schema, [None if value is None else self._converted(schema, value) for value in values]
        )


def _is_time(schema: Schema) -> bool:
    """Return True if values of this schema depend on a time zone."""
    return schema.name in (ZONED_TIMESTAMP, ZONED_TIME) or schema.name in PER_SECOND


def _table(event: Struct) -> str | None:
    source = (
        event.get_without_default("source") if event.schema.field("source") is not None else None
    )
    if not isinstance(source, Struct):
        return None
    name = next((n for n in ("table", "collection") if source.schema.field(n) is not None), None)
    table: str | None = None if name is None else source.get_without_default(name)
    return table


def _parse_error(value: str) -> DateTimeParseError:
    index = len(value) - len(value.lstrip("+-"))
    return DateTimeParseError(f"Text '{value}' could not be parsed at index {index}")


def _clock(parts: Sequence[str]) -> int:
    hour, minute, second = map(int, parts)
    return (hour * 60 + minute) * 60 + second


def _offset(text: str) -> int:
    if text == "Z":
        return 0
    hour, minute, second = (*map(int, text[1:].split(":")), 0)[:3]
    return (-1 if text[0] == "-" else 1) * ((hour * 60 + minute) * 60 + second)


def _format_offset(offset: int) -> str:
    if not offset:
        return "Z"
    minutes, seconds = divmod(abs(offset), 60)
    text = f"{'-' if offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    return f"{text}:{seconds:02d}" if seconds else text


def _format_time(seconds: int, fraction: str | None) -> str:
    digits = (fraction or "").rstrip("0")
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{digits}" if digits else text


def _format_date(days: int) -> str:
    year, month, day = date_of(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"
