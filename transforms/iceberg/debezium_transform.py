"""Iceberg's `DebeziumTransform`: replaces a change event with its row and adds `_cdc`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import DataError
from connect_py.api.record import R, SinkRecord
from connect_py.api.schema import (
    INT64,
    OPTIONAL_INT64,
    STRING,
    Schema,
    Struct,
    Value,
    struct,
    timestamp,
)
from connect_py.api.transformation import Transformation
from connect_py.java.errors import NullPointerError
from transforms.iceberg.cdc import CDC, CDC_OPERATIONS, INSERT, NO_ROW
from transforms.rebuild import members, rebuilt, values_of
from transforms.requirements import require_map, require_struct

if TYPE_CHECKING:
    from transforms.iceberg.debezium_columns import DebeziumColumns

PURPOSE = "Debezium transform"
_TIMESTAMP = timestamp()


class DebeziumTransform(Transformation[R]):
    """Replaces each event with its row and the struct `_cdc` (op, ts, offset, source, target, key).

    A delete event is replaced with the row before the change, and any other event with the row
    after it. Nulls are replaced with the default value of the field. Tombstones are passed through
    unchanged. Truncate events, message events, and schemaless events without a row are dropped.
    `apply` and `apply_batch` are both implemented directly, because `FieldTransformation` can
    neither drop rows nor combine rows from before and after a change in one result.
    """

    config_def = ConfigDef().define(
        "cdc.target.pattern",
        Type.STRING,
        default="{db}.{table}",
        importance=Importance.MEDIUM,
        doc="Pattern for _cdc.target. {db} is the schema of the source, or its database if it has "
        "no schema. {table} is its table or collection.",
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        self._pattern: str = self.config_def.parse(configs)["cdc.target.pattern"] or "{db}.{table}"
        self.result = lru_cache(maxsize=64)(self._result)
        self._columns: DebeziumColumns | None = None

    def _result(self, row: Schema, key: Schema | None) -> Schema:
        return rebuilt(row, [*members(row), (CDC, cdc_schema(key))])

    def target(self, db: str, table: str) -> str:
        """Return the value of `_cdc.target` for a database name and a table name."""
        return self._pattern.replace("{db}", db).replace("{table}", table)

    def apply(self, record: R) -> R | None:
        if record.value is None:
            return record
        return (
            self._schemaless(record) if record.value_schema is None else self._with_schema(record)
        )

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if self._columns is None:
            from transforms.iceberg.debezium_columns import DebeziumColumns

            self._columns = DebeziumColumns(self.apply, self.result, self.target)
        return self._columns.apply(batch)

    def _with_schema(self, record: R) -> R | None:
        event = require_struct(record.value, PURPOSE, record.value_schema)
        code = _present(event.get("op"), "op")
        if code in NO_ROW:
            return None
        block = event.get_without_default("before" if code == "d" else "after")
        row = require_struct(_present(block, "row"), PURPOSE)
        result = self.result(row.schema, record.key_schema)
        timestamp_ms = _present(checked(event, "ts_ms", INT64), "ts_ms")
        source = require_struct(_present(event.get_without_default("source"), "source"), PURPOSE)
        db = checked(
            source, "schema" if source.schema.field("schema") is not None else "db", STRING
        )
        table = checked(
            source, "table" if source.schema.field("table") is not None else "collection", STRING
        )
        names = ["null" if name is None else name for name in (db, table)]
        cdc = [
            CDC_OPERATIONS.get(code, INSERT),
            timestamp_ms,
            _offset(record),
            ".".join(names),
            self.target(*names),
        ]
        if record.key_schema is not None:
            cdc.append(record.key)
        values = values_of(row, replace_null_with_default=True)
        values.append(Struct(result[CDC], cdc))
        return record.replace(value_schema=result, value=Struct(result, values))

    def _schemaless(self, record: R) -> R | None:
        event = require_map(record.value, PURPOSE)
        code = str(_present(event.get("op"), "op"))
        row = event.get("before" if code == "d" else "after")
        if code in NO_ROW or not isinstance(row, dict):
            return None
        source = require_map(event.get("source"), PURPOSE)
        db = str(
            _present(source["schema"] if "schema" in source else source.get("db"), "source.db")
        )
        table = str(_present(source.get("table", source.get("collection")), "source.table"))
        cdc: dict[str, Any] = {"op": CDC_OPERATIONS.get(code, INSERT), "ts": event.get("ts_ms")}
        offset = _offset(record)
        if offset is not None:
            cdc["offset"] = offset
        cdc |= {"source": f"{db}.{table}", "target": self.target(db, table)}
        if isinstance(record.key, dict):
            cdc["key"] = record.key
        return record.replace(value_schema=None, value={**row, CDC: cdc})


def cdc_schema(key: Schema | None) -> Schema:
    """Return the schema of `_cdc` for records with this key schema."""
    fields = [
        ("op", STRING),
        ("ts", _TIMESTAMP),
        ("offset", OPTIONAL_INT64),
        ("source", STRING),
        ("target", STRING),
    ]
    return struct(*fields, *([] if key is None else [("key", key)]))


def checked(row: Struct, name: str, expected: Schema) -> Value:
    """Return the value of a field. A null is not replaced with the default.

    Raises:
        DataError: The field does not exist or has another type.
    """
    value = row.get_without_default(name)
    if row.schema[name].type is not expected.type:
        raise DataError(f"Field '{name}' is not of type {expected.type.name}")
    return value


def _present(value: Value, name: str) -> Value:
    if value is None:
        raise NullPointerError(
            f"the event has no {name}; it is incomplete or is not a row change event"
        )
    return value


def _offset(record: R) -> int | None:
    return record.kafka_offset if isinstance(record, SinkRecord) else None
