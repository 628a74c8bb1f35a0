"""Declarative changes to the fields of keys and values, and the plans that apply them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from connect_py.api.batch import Batch
from connect_py.api.errors import DataError
from connect_py.api.record import ConnectRecord, SinkRecord
from connect_py.api.schema import INT32, STRING, Schema, Struct, Value
from transforms.rebuild import Rules, rules_of, values_at
from transforms.side import Side

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_NAMES: Final = 10_000  # maximum number of cached names of map entries


class Nulls(Enum):
    """Effect of a transformation on a null key or value."""

    PASS = "pass"  # the record is unchanged
    CONVERT_SCHEMA = "convert schema"  # the value remains null but gets the schema of the result
    FAIL = "fail"  # the record fails, because a struct or map is required


class Conversion(ABC):
    """Converts the values and the schema of a field, or of a whole key or value.

    class Negate(Conversion):
        def schema(self, schema: Schema) -> Schema:
            return schema

        def value(self, schema: Schema | None, value: Value) -> Value:
            return None if value is None else not value

        def array(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
            return pc.invert(data) if schema.type is Type.BOOLEAN else None
    """

    @abstractmethod
    def schema(self, schema: Schema) -> Schema:
        """Return the schema of the converted values.

        Raises:
            ConnectError: Values of this schema, or its default, cannot be converted.
        """

    @abstractmethod
    def value(self, schema: Schema | None, value: Value) -> Value:
        """Return the converted value. Null remains null. `schema` is None for schemaless data.

        This is the reference implementation: `array` and `integers` must return the same values.

        Raises:
            ConnectError: The value cannot be converted.
        """

    def array(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
        """Convert a column of this schema, or return None to convert each value with `value`."""
        return None

    def integers(self, strings: pa.StringArray) -> pa.Int64Array | None:
        """Convert strings to integers, with nulls for the strings that `value` must convert.

        Returns None if the conversion does not produce integers.
        """
        return None


@dataclass(frozen=True, slots=True)
class CopiedField:
    """New field with the schema and value of an existing field.

    If a map does not have the existing field, the new field is null.
    """

    name: str
    source: str


@dataclass(frozen=True, slots=True)
class InsertedField:
    """New field whose value does not depend on other fields.

    `value` returns the value for a record, and `column` returns the values for a batch. `column`
    returns dates, times, and timestamps as integers. Null values are not added to maps. In a
    struct, a null value is accepted even if the field is required.
    """

    name: str
    schema: Schema
    value: Callable[[ConnectRecord], Value]
    column: Callable[[Batch], pa.Array]

    @classmethod
    def constant(cls, name: str, value: str, schema: Schema = STRING) -> InsertedField:
        """Return a field with the same string in every record."""
        return cls(name, schema, lambda _: value, lambda batch: _repeated(value, len(batch)))

    @classmethod
    def topic(cls, name: str, schema: Schema = STRING) -> InsertedField:
        """Return a field with the topic name, as changed by earlier transformations."""
        return cls(
            name, schema, attrgetter("topic"), lambda batch: _repeated(batch.topic, len(batch))
        )

    @classmethod
    def partition(cls, name: str, schema: Schema = INT32) -> InsertedField:
        """Return a field with the partition."""
        return cls(name, schema, attrgetter("partition"), lambda batch: batch.origin.partitions)

    @classmethod
    def offset(cls, name: str, schema: Schema, purpose: str) -> InsertedField:
        """Return a field with the offset. Source records fail; the error contains `purpose`."""

        def offset(record: ConnectRecord) -> int:
            if isinstance(record, SinkRecord):
                return record.kafka_offset
            kind = type(record).__name__
            raise DataError(f"Only SinkRecord supported for [{purpose}], found: {kind}")

        return cls(name, schema, offset, lambda batch: batch.origin.offsets)

    @classmethod
    def timestamp(cls, name: str, schema: Schema) -> InsertedField:
        """Return a field with the timestamp, in milliseconds."""
        return cls(name, schema, attrgetter("timestamp"), lambda batch: batch.timestamp)


@dataclass(frozen=True, slots=True)
class InsertedStruct:
    """New field that is a struct of inserted fields, or a map for schemaless data."""

    name: str
    schema: Schema
    fields: Sequence[InsertedField]

    def value(self, record: ConnectRecord) -> Struct:
        """Return the struct for a record."""
        return Struct(self.schema, [each.value(record) for each in self.fields])

    def map(self, record: ConnectRecord) -> dict[str, Value]:
        """Return the map for a record. Null fields are omitted."""
        entries = ((each.name, each.value(record)) for each in self.fields)
        return {name: value for name, value in entries if value is not None}


NewField: TypeAlias = InsertedField | InsertedStruct


@dataclass(frozen=True, slots=True)
class FieldChanges:
    """Changes to the fields of structs and maps, or to a whole key or value.

    New fields follow the existing fields: first the copied fields, then the inserted fields. In a
    map, a new field replaces an existing entry with the same name. A record whose struct already
    has a field with that name fails.

    Attributes:
        new_name: Maps the name of an existing field to its name in the result, or to None to
            remove the field. If it is not set, names do not change.
        conversions: Conversions by field name. If a map does not have the field, it is added as
            null. Cannot be combined with `new_name` or `copied`.
        copied: Copies of existing fields.
        inserted: Record metadata and constants to add as fields.
        headers: Headers to add, as (header name, name of an existing field) pairs.
        whole: Conversion of the whole key or value, which may have any type. Cannot be combined
            with other changes.
    """

    new_name: Callable[[str], str | None] | None = None
    conversions: Mapping[str, Conversion] = field(default_factory=dict)
    copied: Sequence[CopiedField] = ()
    inserted: Sequence[NewField] = ()
    headers: Sequence[tuple[str, str]] = ()
    whole: Conversion | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for unsupported combinations."""
        if self.conversions and (self.new_name or self.copied):
            raise ValueError("conversions cannot be combined with new_name or copied")
        if self.whole and (self.changes_fields or self.headers):
            raise ValueError("whole cannot be combined with other changes")

    @property
    def changes_fields(self) -> bool:
        """Return True if the key or value changes, False if only headers are added."""
        return bool(self.new_name or self.conversions or self.copied or self.inserted)


class Plan:
    """Precomputed steps that transform the structs of one schema."""

    __slots__ = (
        "appended",
        "conversions",
        "headers",
        "inserted",
        "keeps_schemas",
        "rules",
        "schema",
        "select",
        "source",
        "source_indices",
        "source_rules",
        "sources",
    )

    def __init__(
        self,
        source: Schema,
        result: Schema,
        sources: Sequence[int],
        conversions: Sequence[tuple[int, Schema, Conversion]] = (),
        inserted: Sequence[Callable[[ConnectRecord], Value]] = (),
        headers: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.source: Final = source
        self.schema: Final = result
        # index of the source field for each field of the result, except the inserted fields
        self.sources: Final = sources
        # (field index in the result, schema of the source field, conversion)
        self.conversions: Final = conversions
        self.inserted: Final = inserted
        self.headers: Final = headers  # (header name, index of the source field)
        self.source_rules: Final = rules_of(source)
        self.rules: Final = Rules(result, len(sources))  # inserted values are not checked
        # True if each field of the result has the schema of its source field
        self.keeps_schemas: Final = all(
            source.fields[index].schema is field.schema
            for index, field in zip(sources, result.fields, strict=False)
        )
        # `select` returns the source values that the result contains. It is None if the result
        # begins with all source values in order, followed by copies of the values at the indices
        # `appended`.
        count = len(source.fields)
        keeps_all = list(sources[:count]) == list(range(count))
        self.select: Final = None if keeps_all else values_at(sources)
        self.appended: Final = sources[count:] if keeps_all else ()
        # indices of the source fields that the result or a header requires
        self.source_indices: Final = tuple({*sources, *(index for _, index in headers)})


class NewNames(dict[Any, str | None]):
    """Caches the new names of map entries. The new name of a removed entry is None."""

    def __init__(self, new_name: Callable[[str], str | None]) -> None:
        self._new_name = new_name

    def __missing__(self, name: Any) -> str | None:
        if len(self) > _MAX_NAMES:
            self.clear()
        new_name = self[name] = self._new_name(name)
        return new_name


class DeclaredFields(Protocol):
    """Properties of a `FieldTransformation` that its columnar form uses."""

    @property
    def side(self) -> Side:
        """Side (key or value) that is transformed."""

    @property
    def target(self) -> Side | None:
        """Side that contains the result, or None if it is the side that is transformed."""

    @property
    def nulls(self) -> Nulls:
        """Effect on a null key or value."""

    @property
    def changes(self) -> FieldChanges:
        """Declared changes."""

    @property
    def replace_null_with_default(self) -> bool:
        """True if nulls are replaced with the field's default before any other change."""

    @property
    def result(self) -> Callable[[Schema], Schema]:
        """Function that maps an input schema to the schema of the result."""

    @property
    def plan(self) -> Callable[[Schema], Plan]:
        """Function that returns the plan for a struct schema."""

    @property
    def names(self) -> Mapping[Any, str | None] | None:
        """New names of map entries, or None if names do not change."""

    def apply(self, record: Any) -> Any:
        """Transform a record; see `Transformation.apply`."""

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        """Transform a batch; see `Transformation.apply_batch`."""


@lru_cache(maxsize=64)
def _repeated(value: str, length: int) -> pa.StringArray:
    """Return a column with the same string in every row.

    The result is cached, because most batches have one of a few lengths.
    """
    import pyarrow as pa  # imported on first use to reduce startup time

    return pa.repeat(pa.scalar(value), length)
