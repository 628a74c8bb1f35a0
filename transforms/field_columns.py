"""Columnar form (`apply_batch`) of `FieldTransformation`."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column, Path, schemaless_column
from connect_py.api.errors import ConnectError, NotColumnar
from connect_py.api.record import NO_HEADERS, Header, Headers
from connect_py.api.schema import Schema, Type, Value
from connect_py.columns.arrow import arrow_type, as_logical, schemaless_values, to_array, to_values
from transforms.columns import (
    blamed,
    converted,
    defaults,
    finished,
    kept_nulls,
    map_members,
    maps,
    null_rows,
    required_nulls,
    struct_column,
    with_default,
    without,
)
from transforms.field_changes import (
    Conversion,
    DeclaredFields,
    InsertedStruct,
    NewField,
    Nulls,
    Plan,
)
from transforms.side import Side


def transformed(transformation: DeclaredFields, batch: Batch) -> list[Batch]:
    """Transform a batch; see `Transformation.apply_batch`."""
    column = transformation.side.column(batch)
    if column.null_count:
        if transformation.nulls is Nulls.FAIL:
            apply, apply_batch = transformation.apply, transformation.apply_batch
            raise without(batch, apply, null_rows(column), apply_batch)
        if column.null_count == len(batch) and (
            transformation.nulls is Nulls.PASS
            or (column.schema is None and column.tombstone_schema is None)
        ):
            return [batch]
    work = _Work(transformation, batch, column)
    result = work.maps() if column.schema is None else work.structs(column.schema)
    side: Side = transformation.target or transformation.side
    new_batch = side.put_column(batch, result)
    if work.headers is not None:
        new_batch = new_batch.replace(headers=work.headers)
    return list(finished(batch, transformation.apply, new_batch, work.failed))


class _Work:
    """Transforms one batch."""

    def __init__(self, transformation: DeclaredFields, batch: Batch, column: Column) -> None:
        self._transformation = transformation
        self._changes = transformation.changes
        self._batch = batch
        self._column = column
        self.headers: list[Headers] | None = None  # headers of the result, if any are added
        self.failed: set[int] = set()  # rows for which `apply` fails

    def structs(self, schema: Schema) -> Column:
        """Return the result for a column with a schema.

        Raises:
            BadRows, NotColumnar: See `blamed`.
        """
        whole = self._changes.whole
        if schema.type is not Type.STRUCT and whole is None:
            raise blamed(self._batch, self._transformation.apply)
        column = self._column
        try:
            result = self._transformation.result(schema)
            null, null_schema = self._nulls()
            if whole is not None:
                data = self._converted(whole, schema, result, column.data)
                return Column(result, data, null, tombstone_schema=null_schema)
            plan = self._transformation.plan(schema)
            columns = self._fields(schema, plan)
        except NotColumnar:
            raise
        except (ConnectError, pa.ArrowException) as error:
            raise blamed(self._batch, self._transformation.apply) from error
        if not self._changes.changes_fields:
            return column
        self.failed |= required_nulls(result.fields[: len(columns)], columns, column.data)
        columns += [self._inserted(each) for each in self._changes.inserted]
        data = struct_column(result, columns, column.is_null(), len(column))
        return Column(result, data, null, tombstone_schema=null_schema)

    def _nulls(self) -> tuple[pa.BooleanArray | None, Schema | None]:
        """Return a mask of the nulls with a schema other than the result's, and that schema."""
        column = self._column
        if self._transformation.nulls is Nulls.PASS:
            return kept_nulls(column)
        null_schema = column.tombstone_schema
        if null_schema is not None:
            null_schema = self._transformation.result(null_schema)
        return column.tombstone, null_schema

    def _fields(self, schema: Schema, plan: Plan) -> list[pa.Array]:
        """Return the result's columns, except those of inserted fields, and set `headers`."""
        data = self._column.data
        columns = {index: data.field(index) for index in plan.source_indices}
        if self._transformation.replace_null_with_default:
            replacements = defaults(schema)
            for index, column in columns.items():
                columns[index] = with_default(column, replacements[index])
        if plan.headers:
            self._add_headers(
                [
                    (name, schema.fields[i].schema, to_values(schema.fields[i].schema, columns[i]))
                    for name, i in plan.headers
                ]
            )
        selected = [columns[index] for index in plan.sources]
        for position, source_schema, conversion in plan.conversions:
            result = plan.schema.fields[position].schema
            selected[position] = self._converted(
                conversion, source_schema, result, selected[position]
            )
        if not plan.keeps_schemas and not plan.conversions:
            for field, index in zip(plan.schema.fields, plan.sources, strict=False):
                if field.schema != schema.fields[index].schema:
                    raise NotColumnar(f"{field.name} is copied from a field with another type")
        return selected

    def _converted(
        self, conversion: Conversion, schema: Schema, result: Schema, data: pa.Array
    ) -> pa.Array:
        """Convert the column of a field.

        A value that cannot be converted becomes null, and its row is added to `failed`.
        """
        array = conversion.array(schema, result, data)
        if array is not None:
            return array
        integers = self._integers(conversion, schema, data)
        if integers is not None:
            return integers.cast(arrow_type(result))
        values, failed = converted(to_values(schema, data), partial(conversion.value, schema))
        self.failed.update(failed)
        return to_array(result, values)

    def _integers(
        self, conversion: Conversion, schema: Schema | None, data: pa.Array
    ) -> pa.Int64Array | None:
        """Convert strings to integers.

        Values that cannot be converted are handled as in `_converted`. Returns None if the column
        does not contain strings, or if the result is not an integer.
        """
        if not pa.types.is_string(data.type):
            return None
        integers = conversion.integers(data)
        if integers is None or integers.null_count == data.null_count:
            return integers
        undecided = pc.and_(integers.is_null(), data.is_valid())
        values, failed = converted(
            data.filter(undecided).to_pylist(), partial(conversion.value, schema)
        )
        rows = pc.indices_nonzero(undecided).to_pylist()
        self.failed.update(rows[index] for index in failed)
        return pc.replace_with_mask(integers, undecided, pa.array(values, pa.int64()))

    def _inserted(self, field: NewField) -> pa.Array:
        if isinstance(field, InsertedStruct):
            columns = [self._inserted(each) for each in field.fields]
            return struct_column(field.schema, columns, None, len(self._batch))
        data = field.column(self._batch)
        return data if field.schema.name is None else as_logical(field.schema, data)

    def maps(self) -> Column:
        """Return the result for a column without a schema.

        Raises:
            BadRows, NotColumnar: See `blamed`.
        """
        column, changes = self._column, self._changes
        if column.tombstone_schema is not None and self._transformation.nulls is not Nulls.PASS:
            raise NotColumnar("null values with several schemas")
        if changes.whole is not None:
            member = self._member(changes.whole, column)
            return Column(
                None, member.data, column.tombstone, member.absent, column.tombstone_schema
            )
        if not column.is_struct():
            raise blamed(self._batch, self._transformation.apply)
        if changes.headers:
            self._add_headers([(h, None, self._map_values(name)) for h, name in changes.headers])
            if not changes.changes_fields:
                return column
        members = map_members(column.data)
        columns, absent = self._renamed(members)
        for name, conversion in changes.conversions.items():
            source = column.member(name)
            absent = _without_path(absent, name)
            if source is None:
                columns[name] = pa.nulls(len(column))
                continue
            member = self._member(conversion, source)
            columns[name] = member.data
            absent |= {(name, *path): rows for path, rows in member.absent.items()}
        for copy in changes.copied:
            columns[copy.name] = members.get(copy.source, pa.nulls(len(column)))
            absent = _without_path(absent, copy.name)
            absent |= {
                (copy.name, *path[1:]): rows
                for path, rows in column.absent.items()
                if path[0] == copy.source and len(path) > 1
            }
        for field in changes.inserted:
            absent = self._insert(field, columns, absent)
        return maps(column, columns, absent)

    def _renamed(
        self, members: dict[str, pa.Array]
    ) -> tuple[dict[str, pa.Array], dict[Path, pa.BooleanArray]]:
        """Return the existing members by new name, and masks of the rows without these members."""
        names = self._transformation.names
        if names is None:
            return members.copy(), dict(self._column.absent)
        columns: dict[str, pa.Array] = {}
        for name, data in members.items():
            new_name = names[name]
            if new_name is None:
                continue
            if new_name in columns:
                raise NotColumnar(f"two members are named {new_name}")
            columns[new_name] = data
        absent: dict[Path, pa.BooleanArray] = {}
        for path, rows in self._column.absent.items():
            new_name = names[path[0]]
            if new_name is not None:
                absent[(new_name, *path[1:])] = rows
        return columns, absent

    def _member(self, conversion: Conversion, member: Column) -> Column:
        """Convert a member. Values that cannot be converted are handled as in `_converted`."""
        integers = self._integers(conversion, None, member.data)
        if integers is not None:
            is_null = integers.null_count == len(member)
            return Column(None, pa.nulls(len(member)) if is_null else integers)
        incoming = schemaless_values(member.data, member.absent)
        values, failed = converted(incoming, partial(conversion.value, None))
        self.failed.update(failed)
        return schemaless_column(values)

    def _insert(
        self, field: NewField, columns: dict[str, pa.Array], absent: dict[Path, pa.BooleanArray]
    ) -> dict[Path, pa.BooleanArray]:
        """Add a member to `columns` and return the updated masks of absent members.

        The member is absent from the rows in which its value is null.
        """
        parts = field.fields if isinstance(field, InsertedStruct) else [field]
        data = [part.column(self._batch) for part in parts]
        absent = _without_path(absent, field.name)
        replaces = columns.pop(field.name, None) is not None
        for part, values in zip(parts, data, strict=True):
            if not values.null_count:
                continue
            if replaces and part is field:
                raise NotColumnar(f"{field.name} is replaced in only some rows")
            path = (field.name,) if part is field else (field.name, part.name)
            absent[path] = values.is_null()
        if isinstance(field, InsertedStruct):
            names = [part.name for part in parts]
            columns[field.name] = pa.StructArray.from_arrays(data, names=names)
        else:
            columns[field.name] = data[0]
        return absent

    def _map_values(self, name: str) -> list[Value]:
        member = self._column.member(name)
        if member is None:
            return [None] * len(self._column)
        return schemaless_values(member.data, member.absent)

    def _add_headers(self, added: list[tuple[str, Schema | None, list[Value]]]) -> None:
        rows = zip(*(values for _, _, values in added), strict=True)
        names = [(name, schema) for name, schema, _ in added]
        self.headers = [
            Headers(
                [
                    *existing,
                    *(Header(n, v, s) for (n, s), v in zip(names, values, strict=True)),
                ]
            )
            for existing, values in zip(
                self._batch.headers or [NO_HEADERS] * len(self._batch), rows, strict=True
            )
        ]


def _without_path(absent: dict[Path, pa.BooleanArray], name: str) -> dict[Path, pa.BooleanArray]:
    return {path: rows for path, rows in absent.items() if path[0] != name}
