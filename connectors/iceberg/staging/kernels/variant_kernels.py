"""Kernels into variant columns, value by value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from connect_py.api.batch import Path
from connect_py.api.errors import DataError
from connect_py.api.schema import Schema
from connectors.iceberg.staging.kernels.kernel import Failure, Kernel, Run, values_of
from connectors.iceberg.staging.types import VARIANT
from connectors.iceberg.staging.variant import encode_variant


def variant_kernel(schema: Schema | None, path: Path, column: str) -> Kernel:
    """Values of any type; what has no form as a variant fails its row."""

    def kernel(data: pa.Array, run: Run) -> pa.Array:
        made: list[dict[str, bytes] | None] = []
        bad: list[bool] = []
        reason = ""
        value: Any
        for value in values_of(schema, data, path, run):
            one = None
            failed = False
            if value is not None:
                try:
                    metadata, encoded = encode_variant(value, schema)
                    one = {"metadata": metadata, "value": encoded}
                except (ValueError, ArithmeticError, DataError) as error:
                    failed, reason = True, reason or str(error)
            made.append(one)
            bad.append(failed)
        if any(bad):
            run.failures.append(Failure(pa.array(bad, pa.bool_()), column, reason))
        return pa.array(made, VARIANT)

    return kernel
