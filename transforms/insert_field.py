"""`InsertField`: adds what Kafka knows about a record, or a constant, to its key or value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed, Type
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import ConnectRecord, R, SinkRecord
from connect_py.api.schema import INT32, INT64, STRING, Schema, Struct, Value, timestamp
from connect_py.api.transformation import Transformation
from transforms.by_schema import BySchema
from transforms.rebuild import members, rebuilt, rules_of
from transforms.requirements import require_map, require_struct
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import Side

if TYPE_CHECKING:
    from transforms.insert_columns import InsertColumns

PURPOSE = "field insertion"


class Origin(Enum):
    """Where an inserted value comes from; the values are the configuration keys, in the order of insertion."""

    TOPIC = "topic.field"
    PARTITION = "partition.field"
    OFFSET = "offset.field"
    TIMESTAMP = "timestamp.field"
    STATIC = "static.field"


_SCHEMAS: Mapping[Origin, Schema] = {
    Origin.TOPIC: STRING,
    Origin.PARTITION: INT32,
    Origin.OFFSET: INT64,
    Origin.TIMESTAMP: timestamp(),
    Origin.STATIC: STRING,
}
_DOCS: Mapping[Origin, str] = {
    Origin.TOPIC: "Field for the topic, as earlier transformations left it.",
    Origin.PARTITION: "Field for the partition.",
    Origin.OFFSET: "Field for the offset; only for sinks.",
    Origin.TIMESTAMP: "Field for the timestamp of the record.",
    Origin.STATIC: "Field for static.value.",
}


@dataclass(frozen=True, slots=True)
class Insertion:
    """One field to insert."""

    origin: Origin
    name: str
    schema: Schema

    @classmethod
    def parse(cls, origin: Origin, text: str) -> Insertion:
        """Read `name`, `name?` (optional as well) or `name!` (required)."""
        required = text.endswith("!")
        name = text[:-1] if text.endswith(("!", "?")) else text
        return cls(origin, name, _SCHEMAS[origin].replace(optional=not required))


def _config_def() -> ConfigDef:
    made = ConfigDef()
    for origin in Origin:
        made.define(
            origin.value, Type.STRING, default=None, importance=Importance.MEDIUM,
            doc=f"{_DOCS[origin]} A ! behind the name makes it required, a ? or nothing optional.",
        )  # fmt: skip
    made.define(
        "static.value", Type.STRING, default=None, importance=Importance.MEDIUM, doc="The value of static.field."
    )
    return made.add(REPLACE_NULL_WITH_DEFAULT)  # fmt: skip


class InsertField(Transformation[R]):
    """Adds fields at the end of a struct or map. Records with a null value pass unchanged."""

    config_def = _config_def()
    side: ClassVar[Side]

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self.insertions = _insertions(props)
        self.static_value: str = props["static.value"]
        self._inserted = [(i.name, _getter(i.origin, self.static_value)) for i in self.insertions]
        self.replace_null_with_default: bool = props["replace.null.with.default"]
        self.result = BySchema(self._result)
        self._columns: InsertColumns | None = None

    def _result(self, schema: Schema) -> Schema:
        return rebuilt(schema, [*members(schema), *((i.name, i.schema) for i in self.insertions)])

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if value is None:
            return record
        if schema is None:
            inserted = dict(require_map(value, PURPOSE))
            for name, get in self._inserted:
                found = get(record)
                if found is not None:
                    inserted[name] = found
            return self.side.put(record, None, inserted)
        row = require_struct(value, PURPOSE, schema)
        result = self.result(row.schema)
        rules = rules_of(row.schema)
        values = rules.values(row) if self.replace_null_with_default else row.values.copy()
        rules.check_required(values)
        values += [get(record) for _, get in self._inserted]
        return self.side.put(record, result, Struct(result, values))

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if self._columns is None:
            from transforms.insert_columns import InsertColumns

            self._columns = InsertColumns(self)
        return self._columns.apply(batch)


class InsertFieldKey(InsertField[R]):
    """`InsertField$Key`."""

    side = Side.KEY


class InsertFieldValue(InsertField[R]):
    """`InsertField$Value`."""

    side = Side.VALUE


def _getter(origin: Origin, static_value: str) -> Callable[[ConnectRecord], Value]:
    """What takes the value to insert from a record."""
    if origin is Origin.STATIC:
        return lambda _: static_value
    if origin is Origin.OFFSET:
        return _offset
    return attrgetter(origin.name.lower())


def _offset(record: ConnectRecord) -> int:
    if not isinstance(record, SinkRecord):
        raise DataError(f"Only SinkRecord supported for [{PURPOSE}], found: {type(record).__name__}")
    return record.kafka_offset


def _insertions(props: Mapping[str, Parsed]) -> tuple[Insertion, ...]:
    """What to insert; ConfigError when there is nothing, or a constant without its value."""
    found = tuple(Insertion.parse(origin, props[origin.value]) for origin in Origin if props[origin.value] is not None)
    if not found:
        raise ConfigError("", "No field insertion configured")
    if props["static.field"] is not None and props["static.value"] is None:
        raise ConfigValueError("static.value", None, f"No value specified for static field: {props['static.field']}")
    return found
