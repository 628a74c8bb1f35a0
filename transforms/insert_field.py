"""`InsertField`: adds what Kafka knows about a record, or a constant, to its key or value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import DataError
from connect_py.api.record import ConnectRecord, R, SinkRecord
from connect_py.api.schema import Struct, Value
from transforms.insertions import Insertions, Origin
from transforms.rebuild import rules_of
from transforms.requirements import require_map, require_struct
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import SideTransformation, for_both

PURPOSE = "field insertion"


_DOCS: Mapping[Origin, str] = {
    Origin.TOPIC: "Field for the topic, as earlier transformations left it.",
    Origin.PARTITION: "Field for the partition.",
    Origin.OFFSET: "Field for the offset; only for sinks.",
    Origin.TIMESTAMP: "Field for the timestamp of the record.",
    Origin.STATIC: "Field for static.value.",
}


def _config_def() -> ConfigDef:
    made = ConfigDef()
    for origin in Origin:
        made.define(
            origin.value,
            Type.STRING,
            default=None,
            importance=Importance.MEDIUM,
            doc=f"{_DOCS[origin]} A ! behind the name makes it required, a ? or nothing optional.",
        )
    made.define(
        "static.value",
        Type.STRING,
        default=None,
        importance=Importance.MEDIUM,
        doc="The value of static.field.",
    )
    return made.add(REPLACE_NULL_WITH_DEFAULT)


class InsertField(SideTransformation[R]):
    """Adds fields at the end of a struct or map. Records with a null value pass unchanged."""

    config_def = _config_def()

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._insertions = Insertions(props)
        static_value = self._insertions.static_value
        self._inserted = [
            (i.name, _getter(i.origin, static_value)) for i in self._insertions.fields
        ]

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
        result = self._insertions.result(row.schema)
        rules = rules_of(row.schema)
        values = (
            rules.values(row) if self._insertions.replace_null_with_default else row.values.copy()
        )
        rules.check_required(values)
        values += [get(record) for _, get in self._inserted]
        return self.side.put(record, result, Struct(result, values))

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        from transforms.insert_columns import inserted

        return inserted(self._insertions, self.side, batch, self.apply)


InsertFieldKey, InsertFieldValue = for_both(InsertField)


def _getter(origin: Origin, static_value: str) -> Callable[[ConnectRecord], Value]:
    """What takes the value to insert from a record."""
    if origin is Origin.STATIC:
        return lambda _: static_value
    if origin is Origin.OFFSET:
        return _offset
    return attrgetter(origin.name.lower())


def _offset(record: ConnectRecord) -> int:
    if not isinstance(record, SinkRecord):
        raise DataError(
            f"Only SinkRecord supported for [{PURPOSE}], found: {type(record).__name__}"
        )
    return record.kafka_offset
