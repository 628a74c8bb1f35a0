"""The kernel for each pair of incoming type and column type."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from connectors.iceberg.staging.kernels import container_kernels, moment_kernels, number_kernels, text_kernels
from connectors.iceberg.staging.kernels.incoming_moment import logical_name
from connectors.iceberg.staging.kernels.kernel import Conversion, Failure, Kernel, Run, Unfit
from connectors.iceberg.staging.kernels.variant_kernels import variant

_KERNELS: Mapping[str, Callable[[Conversion], Kernel | None]] = {
    "int": number_kernels.integer, "long": number_kernels.integer, "float": number_kernels.floating,
    "double": number_kernels.floating, "decimal": number_kernels.decimal, "boolean": text_kernels.boolean,
    "string": text_kernels.string, "uuid": text_kernels.uuid, "binary": text_kernels.binary,
    "fixed": text_kernels.binary, "date": moment_kernels.date, "time": moment_kernels.time,
    "timestamp": moment_kernels.timestamp, "timestamptz": moment_kernels.timestamp,
    "timestamp_ns": moment_kernels.timestamp, "timestamptz_ns": moment_kernels.timestamp, "variant": variant,
}  # fmt: skip
_CONTAINERS = {"struct": container_kernels.struct, "list": container_kernels.list_, "map": container_kernels.map_}


def compile_kernel(at: Conversion) -> Kernel | None:
    """The kernel of a conversion; None: values pass as they are."""
    wanted = at.wanted
    if pa.types.is_null(at.type):
        return lambda data, _: pa.nulls(len(data), wanted)
    try:
        if not isinstance(at.target, str):
            return _CONTAINERS[at.target["type"]](at, compile_kernel)
        make = _KERNELS.get(at.target.partition("(")[0].partition("[")[0])
        if make is None:
            raise Unfit
        return make(at)
    except Unfit:
        shown = at.target if isinstance(at.target, str) else at.target["type"]
        named = None if at.schema is None else logical_name(at.schema)
        type_ = f"{at.type} ({named})" if named else str(at.type)
        return _refusing(at, f"values of type {type_} do not fit a {shown} column")


def _refusing(at: Conversion, reason: str) -> Kernel:
    def kernel(data: pa.Array, run: Run) -> pa.Array:
        if data.null_count < len(data):
            run.failures.append(Failure(data.is_valid(), at.column, reason))
        return pa.nulls(len(data), at.wanted)

    return kernel
