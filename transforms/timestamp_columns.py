"""Arrow kernels that convert dates, times, and timestamps with integer arithmetic."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.schema import Schema, date, time, timestamp
from connect_py.columns.arrow import as_logical, floor_divide, storage_type
from connect_py.java.date_format import MILLIS_PER_DAY
from transforms.timestamp_form import Form

_SAFE = 1 << 62


def timestamps(
    data: pa.Array, form: Form, target: Form, multiplier: int, divisor: int
) -> pa.Array | None:
    """Convert a column from one form to another, or return None if a number may overflow.

    `multiplier` and `divisor` convert numbers to milliseconds.
    """
    numbers = data.view(storage_type(data.type)).cast(pa.int64())
    if form is Form.DATE:
        # cannot overflow, because dates have 32 bits
        numbers = pc.multiply(numbers, MILLIS_PER_DAY)
    elif form is Form.UNIX:
        scaled = _scaled(numbers, multiplier, divisor)
        if scaled is None:
            return None
        numbers = scaled
    match target:
        case Form.UNIX:
            return _scaled(numbers, divisor, multiplier)
        case Form.DATE:
            return _narrow(floor_divide(numbers, MILLIS_PER_DAY), date())
        case Form.TIME:
            days = floor_divide(numbers, MILLIS_PER_DAY)
            return _narrow(pc.subtract(numbers, pc.multiply(days, MILLIS_PER_DAY)), time())
    return as_logical(timestamp(), numbers)


def _scaled(numbers: pa.Array, multiplier: int, divisor: int) -> pa.Array | None:
    if multiplier != 1:
        bounds = pc.min_max(numbers).as_py()
        if (
            bounds["min"] is not None
            and not -_SAFE < bounds["min"] * multiplier <= bounds["max"] * multiplier < _SAFE
        ):
            return None
        numbers = pc.multiply(numbers, multiplier)
    # truncates toward zero, as Java does
    return numbers if divisor == 1 else pc.divide(numbers, divisor)


def _narrow(numbers: pa.Array, schema: Schema) -> pa.Array | None:
    try:
        return as_logical(schema, numbers.cast(pa.int32()))
    except pa.ArrowInvalid:
        return None
