"""`KernelCompiler`: the kernel for each pair of incoming type and column type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from connect_py.api.batch import Path
from connect_py.api.schema import Schema
from connectors.iceberg.evolution.column_names import ColumnNames
from connectors.iceberg.staging.kernels.container_kernels import ContainerKernels
from connectors.iceberg.staging.kernels.incoming_moment import incoming_moment
from connectors.iceberg.staging.kernels.kernel import ConversionOptions, Kernel, Unfit, refuse
from connectors.iceberg.staging.kernels.moment_kernels import MomentKernels
from connectors.iceberg.staging.kernels.number_kernels import LIMITS, NumberKernels
from connectors.iceberg.staging.kernels.text_kernels import TextKernels
from connectors.iceberg.staging.kernels.variant_kernels import variant_kernel
from connectors.iceberg.staging.types import IcebergType, arrow_type_of, decimal_parts, logical_name


class KernelCompiler:
    """Chooses the kernel from an incoming type to a column's."""

    def __init__(self, options: ConversionOptions, names: ColumnNames) -> None:
        self._numbers = NumberKernels(options)
        self._texts = TextKernels(options)
        self._moments = MomentKernels(options, self._numbers)
        self._containers = ContainerKernels(names, self.kernel)

    def kernel(
        self,
        target: IcebergType,
        schema: Schema | None,
        type_: pa.DataType,
        path: Path,
        column: str,
        mapping: Sequence[Mapping[str, Any]] | None,
    ) -> Kernel | None:
        """The kernel from an incoming type to a column's; None: values pass as they are.

        `path` is where the incoming member stands, `column` the table's name for the place.
        """
        wanted = arrow_type_of(target)
        if pa.types.is_null(type_):
            return lambda data, _: pa.nulls(len(data), wanted)
        try:
            if isinstance(target, str):
                return self._primitive(target, wanted, schema, type_, path, column)
            if target["type"] == "struct":
                return self._containers.struct(target, wanted, schema, type_, path, column, mapping)
            if target["type"] == "list":
                return self._containers.list(target, wanted, schema, type_, path, column, mapping)
            return self._containers.map(target, wanted, schema, type_, path, column, mapping)
        except Unfit as unfit:
            shown = target if isinstance(target, str) else target["type"]
            named = f" ({logical_name(schema)})" if schema is not None and logical_name(schema) else ""
            return refuse(wanted, column, str(unfit) or f"values of type {type_}{named} do not fit a {shown} column")

    def _primitive(
        self, target: str, wanted: pa.DataType, schema: Schema | None, type_: pa.DataType, path: Path, column: str
    ) -> Kernel | None:
        moment = incoming_moment(schema, type_)
        if target in LIMITS:
            return self._numbers.integer(target, wanted, type_, column)
        if target in ("float", "double"):
            return self._numbers.floating(wanted, type_, column)
        if (parts := decimal_parts(target)) is not None:
            return self._numbers.decimal(*parts, schema, type_, moment, column)
        if target == "boolean":
            return self._texts.boolean(type_, column)
        if target == "string":
            return self._texts.string(schema, type_, path, column)
        if target == "uuid":
            return self._texts.uuid(type_, column)
        if target == "binary" or target.startswith("fixed["):
            return self._texts.binary(wanted, type_, column)
        if target == "date":
            return self._moments.date(type_, schema, moment, column)
        if target == "time":
            return self._moments.time(type_, schema, moment, column)
        if target == "variant":
            return variant_kernel(schema, path, column)
        if target.startswith("timestamp"):
            return self._moments.timestamp(target, wanted, type_, schema, moment, column)
        raise Unfit
