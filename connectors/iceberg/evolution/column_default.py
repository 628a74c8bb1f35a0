"""The default of a field's schema as a column's default: Iceberg's single-value JSON."""

from __future__ import annotations

import json
import math
from datetime import date, timedelta
from decimal import Context, Decimal

from connect_py.api.schema import DECIMAL, Schema
from connectors.iceberg.staging.kernels.incoming_moment import MICRO, moment_of_name
from connectors.iceberg.staging.timestamps import MICROS_PER_DAY, MICROS_PER_SECOND
from connectors.iceberg.staging.types import IcebergType, decimal_parts, logical_name

_PLAIN = frozenset({"boolean", "int", "long", "float", "double", "string"})
_EPOCH = date(1970, 1, 1)
_LAST_DAY = (date.max - _EPOCH).days
_WIDE = Context(prec=100)  # digits; a column has 38 at most, Python's context 28


def column_default(schema: Schema, type_: IcebergType) -> str | None:
    """The default of rows that have no value because they are older than the column; None: there is none.

    Defaults that a column of this type cannot hold are left out.
    """
    default = schema.default
    if default is None or not isinstance(type_, str):
        return None
    if schema.name == DECIMAL and isinstance(default, Decimal):
        return _decimal(default, type_)
    moment = moment_of_name(logical_name(schema) or "")
    if moment is not None and isinstance(default, int) and type_ in ("date", "time", "timestamp", "timestamptz"):
        if moment.kind == "date":
            return _date(default) if type_ == "date" else None
        if moment.kind != ("time" if type_ == "time" else "timestamp"):
            return None
        return _clocked(default * MICRO // moment.per_second, type_)
    if isinstance(default, float) and not math.isfinite(default):
        return None
    return json.dumps(default) if type_ in _PLAIN and isinstance(default, _PLAIN_TYPES) else None


_PLAIN_TYPES = (bool, int, float, str)


def _decimal(default: Decimal, type_: str) -> str | None:
    parts = decimal_parts(type_)
    if parts is None:
        return json.dumps(str(default)) if type_ == "string" else None
    precision, scale = parts
    if not default.is_finite() or (default and default.adjusted() >= precision - scale):
        return None
    exact = default.quantize(Decimal((0, (1,), -scale)), context=_WIDE)
    return json.dumps(format(exact, "f")) if exact == default else None


def _date(days: int) -> str | None:
    if not 0 <= days + (_EPOCH - date.min).days <= (date.max - date.min).days:
        return None
    return json.dumps((_EPOCH + timedelta(days=days)).isoformat())


def _clocked(micros: int, type_: str) -> str | None:
    """A time or timestamp from microseconds."""
    days, of_day = divmod(micros, MICROS_PER_DAY)
    seconds, rest = divmod(of_day, MICROS_PER_SECOND)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:06d}"
    if type_ == "time":
        return json.dumps(clock) if not days else None
    if not (date.min - _EPOCH).days <= days <= _LAST_DAY:
        return None
    zone = "+00:00" if type_ == "timestamptz" else ""
    return json.dumps(f"{(_EPOCH + timedelta(days=days)).isoformat()}T{clock}{zone}")
