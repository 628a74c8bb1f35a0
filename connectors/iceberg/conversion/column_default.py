"""The default of a field's schema as a column's default: Iceberg's single-value JSON."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Context, Decimal

from connect_py.api.schema import DECIMAL, Schema
from connectors.iceberg.conversion.partitioning import single_value_json
from connectors.iceberg.conversion.temporal_type import MICRO, named_temporal_type
from connectors.iceberg.conversion.timestamps import MICROS_PER_DAY
from connectors.iceberg.conversion.types import IcebergType, decimal_parts

_PLAIN = frozenset({"boolean", "int", "long", "float", "double", "string"})
_EPOCH = date(1970, 1, 1)
_DAYS = range((date.min - _EPOCH).days, (date.max - _EPOCH).days + 1)
_WIDE = Context(prec=100)  # digits; a column has 38 at most, Python's context 28


def column_default(schema: Schema, type_: IcebergType) -> str | None:
    """The default of rows that have no value because they are older than the column; None: there is
    none.

    Defaults that a column of this type cannot hold are left out.
    """
    default = schema.default
    if default is None or not isinstance(type_, str):
        return None
    if schema.name == DECIMAL and isinstance(default, Decimal):
        return _decimal(default, type_)
    temporal = named_temporal_type(schema)
    if (
        temporal is not None
        and isinstance(default, int)
        and type_ in ("date", "time", "timestamp", "timestamptz")
    ):
        if temporal.kind != type_.removesuffix("tz"):
            return None
        value = default if type_ == "date" else default * MICRO // temporal.per_second
        days = value if type_ == "date" else value // MICROS_PER_DAY
        return (
            single_value_json(value, type_)
            if days in (_DAYS if type_ != "time" else (0,))
            else None
        )
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
