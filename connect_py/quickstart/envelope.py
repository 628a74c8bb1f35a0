"""Encodes the shop's changes in the format of Debezium's PostgreSQL connector.

Messages are JSON with a schema. Each delete is followed by a tombstone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from connect_py.quickstart.shop import KEYS, Change, Row

PREFIX = "shop"
_DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1}
_MOMENT = {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1}
_INT, _LONG, _TEXT = {"type": "int32"}, {"type": "int64"}, {"type": "string"}

_COLUMNS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "customers": {
        "id": _LONG,
        "name": _TEXT,
        "email": _TEXT,
        "city": {**_TEXT, "optional": True},
        "credit": {
            **_DECIMAL,
            "parameters": {"scale": "2", "connect.decimal.precision": "12"},
            "optional": True,
        },
        "since": _MOMENT,
    },
    "orders": {
        "id": _LONG,
        "customer_id": _LONG,
        "status": _TEXT,
        "total": {**_DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "12"}},
        "ordered_at": _MOMENT,
        "note": {**_TEXT, "optional": True},
    },
    "order_lines": {
        "order_id": _LONG,
        "line_no": _INT,
        "product": _TEXT,
        "quantity": _INT,
        "price": {**_DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "12"}},
    },
}
_SOURCE = {
    "version": "string",
    "connector": "string",
    "name": "string",
    "ts_ms": "int64",
    "snapshot": "string",
    "db": "string",
    "schema": "string",
    "table": "string",
    "txId": "int64",
    "lsn": "int64",
}


def topic_of(table: str) -> str:
    """Return the topic that contains a table's changes."""
    return f"{PREFIX}.public.{table}"


def _field(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"optional": False, **schema, "field": name}


def _struct(name: str, fields: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": fields, "optional": False, "name": name, **more}


def _prefixes(table: str) -> tuple[str, str]:
    """Return the constant prefixes of a table's keys and values, up to the payload."""
    name = topic_of(table)
    columns = _COLUMNS[table]
    key = _struct(f"{name}.Key", [_field(column, columns[column]) for column in KEYS[table]])
    row = [_field(column, schema) for column, schema in columns.items()]
    sides = [
        _struct(f"{name}.Value", row, optional=True, field=side) for side in ("before", "after")
    ]
    source = _struct(
        "io.debezium.connector.postgresql.Source",
        [_field(member, {"type": kind}) for member, kind in _SOURCE.items()],
        field="source",
    )
    rest = [_field("op", _TEXT), _field("ts_ms", {**_LONG, "optional": True})]
    value = _struct(f"{name}.Envelope", [*sides, source, *rest])
    return _prefix(key), _prefix(value)


def _prefix(schema: Mapping[str, Any]) -> str:
    return '{"schema":' + json.dumps(schema, separators=(",", ":")) + ',"payload":'


_PREFIXES = {table: _prefixes(table) for table in KEYS}


def _payload(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        name: _unscaled(value) if isinstance(value, Decimal) else value
        for name, value in row.items()
    }


def _unscaled(value: Decimal) -> str:
    number = int(value.scaleb(2))
    size = (number.bit_length() + 8) // 8
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def key_bytes(change: Change) -> bytes:
    """Return the message key of a change."""
    payload = {name: change.row[name] for name in KEYS[change.table]}
    return (_PREFIXES[change.table][0] + json.dumps(payload, separators=(",", ":")) + "}").encode()


def value_bytes(change: Change, number: int, now_ms: int) -> bytes:
    """Return the message value of a change. `number` is the change's sequence number."""
    envelope = {
        "before": _payload(change.before),
        "after": _payload(change.after),
        "source": {
            "version": "3.7.0.Final",
            "connector": "postgresql",
            "name": PREFIX,
            "ts_ms": now_ms,
            "snapshot": "false",
            "db": "shop",
            "schema": "public",
            "table": change.table,
            "txId": number,
            "lsn": 10_000_000 + 64 * number,
        },
        "op": change.op,
        "ts_ms": now_ms,
    }
    return (
        _PREFIXES[change.table][1]
        + json.dumps(envelope, separators=(",", ":"), ensure_ascii=False)
        + "}"
    ).encode()
