"""Kernels into variant columns, value by value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from connectors.iceberg.staging.kernels.kernel import Conversion, Kernel, Run, convert_each, values_of
from connectors.iceberg.staging.types import VARIANT
from connectors.iceberg.staging.variant import encode_variant


def variant(at: Conversion) -> Kernel:
    """Values of any type; what has no form as a variant fails its row."""

    def one(value: Any) -> dict[str, bytes]:
        metadata, encoded = encode_variant(value, at.schema)
        return {"metadata": metadata, "value": encoded}

    def kernel(data: pa.Array, run: Run) -> pa.Array:
        return pa.array(convert_each(values_of(at.schema, data, at.path, run), one, None, at.column, run), VARIANT)

    return kernel
