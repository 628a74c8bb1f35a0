"""`FieldTransformation`: a transformation of fields, declared once for both forms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from connect_py.api.batch import Batch
from connect_py.api.errors import DataError
from connect_py.api.record import ConnectRecord, Header, Headers, R, SinkRecord
from connect_py.api.schema import INT32, STRING, Schema, Struct, Type, Value
from connect_py.java.errors import NullPointerError
from transforms.by_schema import BySchema
from transforms.rebuild import Rules, rebuilt, rules_of, values_at
from transforms.requirements import require_map, require_struct
from transforms.side import Side, SideTransformation

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_NAMES: Final = 10_000  # cached names of map entries


class Nulls(Enum):
    """Effect of a transformation on a null key or value."""

    PASS = "pass"  # the record is unchanged
    CONVERT_SCHEMA = "convert schema"  # the null stays and gets the schema of the result
    FAIL = "fail"  # the record fails: a struct or map is required


class Conversion(ABC):
    """Change of the values of one field, or of a whole key or value, and of their schema.

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
            ConnectError: Values of this schema cannot be converted, or the default cannot.
        """

    @abstractmethod
    def value(self, schema: Schema | None, value: Value) -> Value:
        """Return the converted value. Null stays null. `schema` is None in a map.

        This is the reference: `array` and `integers` must give the same values.

        Raises:
            ConnectError: The value cannot be converted.
        """

    def array(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
        """Convert a column of this schema; None if `value` has to convert it value by value."""
        return None

    def integers(self, strings: pa.StringArray) -> pa.Int64Array | None:
        """Convert strings to integers, null where `value` has to decide.

        Returns None if the result of the conversion is not an integer.
        """
        return None


@dataclass(frozen=True, slots=True)
class CopiedField:
    """New field with the schema and value of an existing field.

    In a map without that field, the new one is null.
    """

    name: str
    source: str


@dataclass(frozen=True, slots=True)
class InsertedField:
    """New field whose value does not depend on other fields, computed for a row or for a batch.

    `column` returns the stored representation: integers for dates, times, and timestamps.
    A null is not added to a map. It is not checked against a required schema.
    """

    name: str
    schema: Schema
    value: Callable[[ConnectRecord], Value]
    column: Callable[[Batch], pa.Array]

    @classmethod
    def constant(cls, name: str, value: str, schema: Schema = STRING) -> InsertedField:
        """Return a field that holds the same string in every record."""
        return cls(name, schema, lambda _: value, lambda batch: _repeated(value, len(batch)))

    @classmethod
    def topic(cls, name: str, schema: Schema = STRING) -> InsertedField:
        """Return a field for the topic, as changed by earlier transformations."""
        return cls(
            name, schema, attrgetter("topic"), lambda batch: _repeated(batch.topic, len(batch))
        )

    @classmethod
    def partition(cls, name: str, schema: Schema = INT32) -> InsertedField:
        """Return a field for the partition."""
        return cls(name, schema, attrgetter("partition"), lambda batch: batch.origin.partitions)

    @classmethod
    def offset(cls, name: str, schema: Schema, purpose: str) -> InsertedField:
        """Return a field for the offset; records of a source fail, with the purpose."""

        def offset(record: ConnectRecord) -> int:
            if isinstance(record, SinkRecord):
                return record.kafka_offset
            kind = type(record).__name__
            raise DataError(f"Only SinkRecord supported for [{purpose}], found: {kind}")

        return cls(name, schema, offset, lambda batch: batch.origin.offsets)

    @classmethod
    def timestamp(cls, name: str, schema: Schema) -> InsertedField:
        """Return a field for the timestamp, in milliseconds."""
        return cls(name, schema, attrgetter("timestamp"), lambda batch: batch.timestamp)


@dataclass(frozen=True, slots=True)
class InsertedStruct:
    """New field that holds a struct of inserted fields, or a map without a schema."""

    name: str
    schema: Schema
    fields: Sequence[InsertedField]

    def value(self, record: ConnectRecord) -> Struct:
        """Return the struct for a record."""
        return Struct(self.schema, [each.value(record) for each in self.fields])

    def map(self, record: ConnectRecord) -> dict[str, Value]:
        """Return the map for a record; fields that are null are left out."""
        entries = ((each.name, each.value(record)) for each in self.fields)
        return {name: value for name, value in entries if value is not None}


NewField: TypeAlias = InsertedField | InsertedStruct


@dataclass(frozen=True, slots=True)
class FieldChanges:
    """Changes to the fields of structs and maps, or to a whole key or value.

    New fields follow the existing fields: first the copied fields, then the inserted fields. A new
    field replaces an entry of a map that has its name; a struct that has its name fails.

    Attributes:
        new_name: Function from the name of an existing field to its name in the result, or to
            None, which removes the field. Without it, names do not change.
        conversions: Conversions by name of the field. A map without the field gets it as null.
            Not supported together with `new_name` and `copied`.
        copied: Copies of existing fields.
        inserted: Fields from the metadata of the record, and constants.
        headers: (name, existing field) of each header to add.
        whole: Conversion of the whole key or value, which may be of any type. Not supported
            together with other changes.
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


class FieldTransformation(SideTransformation[R]):
    """Transformation of the fields of a key or value, declared once.

    A subclass parses its options in `configure` and describes its effect there, as data:

        class AddRegion(FieldTransformation[R]):
            config_def = ConfigDef().define("region", Type.STRING, doc="The region.")
            purpose = "adding the region"

            def configure(self, configs: Mapping[str, str]) -> None:
                region = self.config_def.parse(configs)["region"]
                self.declare(FieldChanges(inserted=[InsertedField.constant("region", region)]))

        AddRegionKey, AddRegionValue = for_both(AddRegion)

    `apply` and `apply_batch` follow from the declaration, for structs and for maps without a
    schema. `FieldChanges` lists the possible changes. To change values, write a `Conversion`: a
    function from schema to schema, a function from value to value (the reference), and
    optionally a function from column to column. The schema of the result retains name, version,
    doc, and parameters unless `result_schema` is overridden. `nulls` is the effect on a null key or
    value. A record fails if a required field is null.

    Write both forms by hand if the result has fewer rows than the input, or if a new value depends
    on several fields of the record.
    """

    purpose: str  # for the message about a value that is neither a struct nor a map
    map_purpose: str = ""  # the same for a value without a schema, if it differs
    nulls: ClassVar[Nulls] = Nulls.PASS
    target: ClassVar[Side | None] = None  # side of the result; None: the side of the input
    _transform_batch: Callable[[FieldTransformation[R], Batch], Sequence[Batch]] | None = None

    def declare(self, changes: FieldChanges, *, replace_null_with_default: bool = True) -> None:
        """Set the changes. `configure` calls this once.

        With `replace_null_with_default`, a null becomes the default of its field before any other
        change; otherwise it stays null.
        """
        self.changes = changes
        self.replace_null_with_default = replace_null_with_default
        self.result = BySchema(self._result)
        self.plan = BySchema(self.make_plan)
        self.names = _NewNames(changes.new_name) if changes.new_name is not None else None
        self._whole = changes.whole
        self._conversions = list(changes.conversions.items())
        self._inserted = [
            (each.name, each.map if isinstance(each, InsertedStruct) else each.value)
            for each in changes.inserted
        ]

    def result_schema(self, schema: Schema, fields: Sequence[tuple[str, Schema]]) -> Schema:
        """Return the schema of the result, a struct of these fields."""
        return rebuilt(schema, fields)

    def require_row(self, schema: Schema, value: Value) -> Struct:
        """Return a value that has a schema if it is a struct; raise DataError otherwise."""
        return require_struct(value, self.purpose, schema)

    def check(self, plan: Plan, values: Sequence[Value]) -> None:
        """Raise DataError if one of the existing or copied values does not fit the result."""
        plan.rules.check_required(values)

    def make_plan(self, schema: Schema) -> Plan:
        """Return the steps that transform structs of this schema.

        Raises:
            ConnectError: Structs of this schema cannot be transformed.
        """
        changes = self.changes
        sources = [(f.index, f.name) for f in schema.fields]  # of existing and copied fields
        if changes.new_name is not None:
            renamed = [(index, changes.new_name(name)) for index, name in sources]
            sources = [(index, name) for index, name in renamed if name is not None]
        sources += [(self.source(schema, copy.source), copy.name) for copy in changes.copied]
        headers = [(name, self.source(schema, source)) for name, source in changes.headers]
        fields: list[tuple[str, Schema]] = []
        conversions: list[tuple[int, Schema, Conversion]] = []
        for position, (index, name) in enumerate(sources):
            source = schema.fields[index]
            conversion = changes.conversions.get(source.name)
            if conversion is None:
                fields.append((name, source.schema))
            else:
                conversions.append((position, source.schema, conversion))
                fields.append((name, conversion.schema(source.schema)))
        fields += [(each.name, each.schema) for each in changes.inserted]
        return Plan(
            schema,
            self.result_schema(schema, fields) if changes.changes_fields else schema,
            [index for index, _ in sources],
            conversions,
            [each.value for each in changes.inserted],
            headers,
        )

    def source(self, schema: Schema, name: str) -> int:
        """Return the index of a field that is copied to a field or header."""
        source = schema.field(name)
        if source is None:
            raise NullPointerError(f"field {name} does not exist")
        return source.index

    def _result(self, schema: Schema) -> Schema:
        whole = self.changes.whole
        if whole is not None:
            return whole.schema(schema)
        if schema.type is not Type.STRUCT:
            raise DataError("Cannot list fields on non-struct type")
        return self.plan(schema).schema

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if value is None and self.nulls is not Nulls.FAIL:
            if schema is None or self.nulls is Nulls.PASS:
                return record
            value = None if self._whole is None else self._whole.value(schema, None)
            return self._put(record, self.result(schema), value)
        if self._whole is not None:
            result = None if schema is None else self.result(schema)
            return self._put(record, result, self._whole.value(schema, value))
        if schema is None:
            return self._apply_to_map(record, value)
        row = value if isinstance(value, Struct) else self.require_row(schema, value)
        plan = self.plan(row.schema)
        if plan.headers:
            record = record.replace(headers=self._headers(record, plan, row))
            if not self.changes.changes_fields:
                return record
        values = self.new_values(plan, row)
        for insert in plan.inserted:
            values.append(insert(record))
        return self._put(record, plan.schema, Struct(plan.schema, values))

    def new_values(self, plan: Plan, row: Struct) -> list[Value]:
        """Return the values of the result without the inserted fields.

        Raises:
            DataError: A value cannot be converted, or a required field is null.
        """
        values = self._source_values(plan, row)
        if plan.select is not None:
            values = list(plan.select(values))
        for index in plan.appended:
            values.append(values[index])
        for position, source_schema, conversion in plan.conversions:
            values[position] = conversion.value(source_schema, values[position])
        self.check(plan, values)
        return values

    def _source_values(self, plan: Plan, row: Struct) -> list[Value]:
        if self.replace_null_with_default:
            return plan.source_rules.values(row)
        return row.values.copy()

    def _headers(self, record: R, plan: Plan, row: Struct) -> Headers:
        fields, values = row.schema.fields, self._source_values(plan, row)
        added = [Header(name, values[i], fields[i].schema) for name, i in plan.headers]
        return Headers([*record.headers, *added])

    def _apply_to_map(self, record: R, value: Value) -> R:
        row = require_map(value, self.map_purpose or self.purpose)
        names = self.names
        if names is None:
            result = row.copy()
        else:
            result = {new: v for name, v in row.items() if (new := names[name]) is not None}
        for name, conversion in self._conversions:
            result[name] = conversion.value(None, row.get(name))
        for copy in self.changes.copied:
            result[copy.name] = row.get(copy.source)
        for name, get in self._inserted:
            inserted = get(record)
            if inserted is not None:
                result[name] = inserted
        if self.changes.headers:
            added = [Header(name, row.get(source)) for name, source in self.changes.headers]
            record = record.replace(headers=Headers([*record.headers, *added]))
        return self._put(record, None, result)

    def _put(self, record: R, schema: Schema | None, value: Value) -> R:
        return (self.side if self.target is None else self.target).put(record, schema, value)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if self._transform_batch is None:
            from transforms.field_columns import transformed  # imports pyarrow

            self._transform_batch = transformed
        return self._transform_batch(self, batch)


class Plan:
    """Steps from the structs of one schema to the structs of the result."""

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
        # index of the source of each field of the result, except the inserted fields
        self.sources: Final = sources
        # (index in the result, schema of the source, conversion)
        self.conversions: Final = conversions
        self.inserted: Final = inserted
        self.headers: Final = headers  # (name, index of the source)
        self.source_rules: Final = rules_of(source)
        self.rules: Final = Rules(result, len(sources))  # inserted values are not checked
        # each field of the result has the schema of its source
        self.keeps_schemas: Final = all(
            source.fields[index].schema is field.schema
            for index, field in zip(sources, result.fields, strict=False)
        )
        # Values of the source become values of the result: `select` selects them (None: all, in
        # order), then those at the indices `appended` are appended.
        count = len(source.fields)
        keeps_all = list(sources[:count]) == list(range(count))
        self.select: Final = None if keeps_all else values_at(sources)
        self.appended: Final = sources[count:] if keeps_all else ()
        # of all fields that the result or a header needs
        self.source_indices: Final = tuple({*sources, *(index for _, index in headers)})


class _NewNames(dict[Any, str | None]):
    """Cache of the new names of map entries, None for removed entries."""

    def __init__(self, new_name: Callable[[str], str | None]) -> None:
        self._new_name = new_name

    def __missing__(self, name: Any) -> str | None:
        if len(self) > _MAX_NAMES:
            self.clear()
        new_name = self[name] = self._new_name(name)
        return new_name


@lru_cache(maxsize=64)
def _repeated(value: str, length: int) -> pa.StringArray:
    """Return a column of one string; cached, because batches tend to have the same few lengths."""
    import pyarrow as pa  # on first use

    return pa.repeat(pa.scalar(value), length)
