"""Arrow kernels shared by several transformations.

The row form of a transformation is its `apply` method, and the columnar form is its `apply_batch`
method.

Transformations import this module on first use because it imports pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column, Path
from connect_py.api.errors import BadRows, ConnectError, NotColumnar
from connect_py.api.schema import Field, Schema, Type, Value
from connect_py.api.transformation import Transformation
from connect_py.columns.arrow import arrow_type, filled, is_odd_decimal, to_array

MIN_ROWS_PER_PART = 8  # smaller parts are faster to process row by row
MAX_ROWS_ONE_BY_ONE = 32  # larger batches are bisected to locate the failing rows
_MAX_DIGITS = 18  # every integer with this many digits fits in 64 bits


def children(data: pa.StructArray) -> list[pa.Array]:
    """Return the child columns of a struct column. Their values in null structs are undefined."""
    return [data.field(index) for index in range(data.type.num_fields)]


def child(data: pa.StructArray, index: int) -> pa.Array:
    """Return a child column of a struct column, with nulls where the struct is null."""
    member = data.field(index)
    return hidden(member, data.is_valid()) if data.null_count else member


def member_of(column: Column, name: str) -> Column:
    """Return a member of a column of structs. The member must exist."""
    member = column.member(name)
    assert member is not None
    return member


def hidden(data: pa.Array, visible: pa.BooleanArray) -> pa.Array:
    """Return the column with nulls in the rows where `visible` is false."""
    if data.type == pa.null():
        return data
    # if_else is 100 times slower for structs
    if pa.types.is_struct(data.type) and data.type.num_fields:
        absent_rows = pc.invert(visible)
        null = pc.or_(absent_rows, data.is_null()) if data.null_count else absent_rows
        return pa.StructArray.from_arrays(children(data), fields=list(data.type), mask=null)
    if not is_odd_decimal(data.type):
        return pc.if_else(visible, data, pa.scalar(None, data.type))
    return pc.choose(pc.if_else(visible, 0, pa.scalar(None, pa.int64())), data)


def struct_column(
    schema: Schema, members: Sequence[pa.Array], null: pa.BooleanArray | None, length: int
) -> pa.Array:
    """Build a column with a struct schema from its members, with nulls where `null` is true."""
    if not members:
        return empty_structs(null, length)
    return pa.StructArray.from_arrays(members, fields=list(arrow_type(schema)), mask=null)


def empty_structs(null: pa.BooleanArray | None, length: int) -> pa.StructArray:
    """Build a column of structs without members. Arrow cannot infer the length of such a column."""
    nulls = [False] * length if null is None else null.to_pylist()
    return pa.array([None if is_null else {} for is_null in nulls], pa.struct([]))


def constant(value: Value, schema: Schema, length: int) -> pa.Array:
    """Build a column with the same value in every row."""
    return pa.repeat(scalar(schema, value), length)


def scalar(schema: Schema, value: Value) -> pa.Scalar:
    """Return a value as an Arrow scalar; raise NotColumnar if Arrow cannot represent it."""
    return to_array(schema, [value])[0]


def with_default(data: pa.Array, default: pa.Scalar | None) -> pa.Array:
    """Return the column with nulls replaced with the default, if there is one."""
    return data if default is None else filled(data, default)


@lru_cache(maxsize=256)
def defaults(schema: Schema) -> Sequence[pa.Scalar | None]:
    """Return the default of each field of a struct schema, or None for a field without one."""
    return [
        None if f.schema.default is None else scalar(f.schema, f.schema.default)
        for f in schema.fields
    ]


def columns_of(
    schema: Schema, data: pa.StructArray, *, replace_null_with_default: bool
) -> list[pa.Array]:
    """Return the members of a struct column, optionally with nulls replaced with defaults."""
    columns = children(data)
    if not replace_null_with_default:
        return columns
    return [with_default(c, d) for c, d in zip(columns, defaults(schema), strict=True)]


def map_members(data: pa.Array) -> dict[str, pa.Array]:
    """Return the members of a column of maps by name, or an empty dict if all rows are null."""
    if pa.types.is_null(data.type):
        return {}
    return dict(zip((f.name for f in data.type), children(data), strict=True))


def maps(
    column: Column, columns: Mapping[str, pa.Array], absent: Mapping[Path, pa.BooleanArray]
) -> Column:
    """Return a copy of a column of maps with new members and the same null rows."""
    null = column.is_null()
    if columns:
        data = pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=null)
    else:
        data = empty_structs(null, len(column))
    return Column(None, data, column.tombstone, absent, column.tombstone_schema)


def split(batch: Batch, codes: pa.Array) -> list[tuple[Any, Batch]]:
    """Split a batch into one batch per code, in order of first appearance.

    `codes` contains the code of each row and must not contain nulls.

    Rows with the same code remain in order. Use this function for rows that are routed to different
    topics, because records are not ordered across topics.

    Raises:
        NotColumnar: There are so many codes that the row form is faster.
    """
    distinct = pc.unique(codes).to_pylist()
    if len(distinct) == 1:
        return [(distinct[0], batch)]
    if len(distinct) * MIN_ROWS_PER_PART > len(batch) and len(distinct) > 2:
        raise NotColumnar(f"{len(batch)} rows in {len(distinct)} parts")
    return [(code, batch.where(pc.equal(codes, code))) for code in distinct]


def blamed(batch: Batch, apply: Callable[[Any], object]) -> BadRows | NotColumnar:
    """Return the error for a batch that the columnar form cannot transform.

    BadRows contains an error for each row that fails in the row form. The result is NotColumnar if
    no row fails. `apply` is the row form, a bound method of the transformation. To locate the bad
    rows, the columnar form is called with halves of the batch. One bad row among thousands
    therefore costs about as much as a second call with the whole batch.
    """
    errors = _failures(batch, apply)
    return BadRows(errors) if errors else NotColumnar("no single row fails")


def finished(
    batch: Batch, apply: Callable[[Any], object], result: Batch, failed: Collection[int]
) -> Sequence[Batch]:
    """Return the columnar form's result if no rows failed; otherwise, raise an error.

    Raises:
        BadRows, NotColumnar: See `blamed`. BadRows includes the results for all other rows.
    """
    if not failed:
        return [result]
    is_failed = pc.is_in(
        pa.array(range(len(batch)), pa.int64()), value_set=pa.array(list(failed), pa.int64())
    )
    errors = _failures_at(batch, apply, is_failed)
    if len(errors) < is_failed.true_count:
        raise BadRows(errors) if errors else NotColumnar("no single row fails")
    raise BadRows(errors, [result.where(pc.invert(is_failed))] if len(errors) < len(batch) else [])


def without(
    batch: Batch,
    apply: Callable[[Any], object],
    suspects: pa.BooleanArray,
    transform: Callable[[Batch], Sequence[Batch]],
) -> BadRows:
    """Return the error for a batch with failing rows, including the results for all other rows.

    `suspects` is a mask of the failing rows, without nulls. `transform` transforms the other rows.

    Raises:
        NotColumnar: A row in `suspects` does not fail in the row form.
        Exception: `transform` raised an error other than BadRows.
    """
    errors = _failures_at(batch, apply, suspects)
    if len(errors) < suspects.true_count:
        raise NotColumnar("not all of the rows fail")
    if len(errors) == len(batch):
        return BadRows(errors, [])
    is_good = pc.invert(suspects)
    try:
        return BadRows(errors, transform(batch.where(is_good)))
    except BadRows as bad:
        good_rows = pc.indices_nonzero(is_good).to_pylist()
        return BadRows(
            {**errors, **{good_rows[row]: error for row, error in bad.errors.items()}}, bad.results
        )


def _failures_at(
    batch: Batch, apply: Callable[[Any], object], suspects: pa.BooleanArray
) -> dict[int, Exception]:
    rows = pc.indices_nonzero(suspects).to_pylist()
    return {
        rows[index]: error
        for index, error in _failures_by_row(batch.where(suspects), apply).items()
    }


def whole_numbers(strings: pa.StringArray, bits: int) -> pa.Int64Array:
    """Parse strings of ASCII digits, optionally with a minus sign, as integers of this width.

    Out-of-range numbers and all other strings become null, even if Java can parse them.
    """
    plain = pc.and_(
        pc.ascii_is_decimal(strings), pc.less_equal(pc.binary_length(strings), _MAX_DIGITS)
    )
    if plain.true_count < len(strings) - strings.null_count:
        plain = pc.match_substring_regex(strings, f"^-?[0-9]{{1,{_MAX_DIGITS}}}$")
        strings = pc.if_else(plain, strings, pa.scalar(None, strings.type))
    numbers = strings.cast(pa.int64())
    limit = 1 << bits - 1
    fits = (
        pc.and_(pc.greater_equal(numbers, -limit), pc.less(numbers, limit)) if bits < 64 else None
    )
    if fits is None or fits.false_count == 0:
        return numbers
    return pc.if_else(fits, numbers, pa.scalar(None, pa.int64()))


def converted(
    values: Iterable[Value], convert: Callable[[Value], Value]
) -> tuple[list[Value], list[int]]:
    """Convert values one by one. Return the results and the indices of the values that failed.

    The result for a failed value is null.
    """
    results: list[Value] = []
    failed: list[int] = []
    remaining = iter(values)
    while True:
        try:
            # if a conversion fails, the results before it have already been appended
            results.extend(map(convert, remaining))
            return results, failed
        except NotColumnar:
            raise
        except ConnectError:
            failed.append(len(results))
            results.append(None)


def _failures(batch: Batch, apply: Callable[[Any], object]) -> dict[int, Exception]:
    owner = getattr(apply, "__self__", None)
    if len(batch) <= MAX_ROWS_ONE_BY_ONE or not isinstance(owner, Transformation):
        return _failures_by_row(batch, apply)
    errors: dict[int, Exception] = {}
    middle = len(batch) // 2
    for start, part in ((0, batch.slice(0, middle)), (middle, batch.slice(middle, len(batch)))):
        part_errors: Mapping[int, Exception] = {}
        try:
            owner.apply_batch(part)
        except BadRows as bad:
            part_errors = bad.errors
        except Exception:  # noqa: BLE001 - the row form reports the error of each row
            part_errors = _failures_by_row(part, apply)
        errors |= {start + row: error for row, error in part_errors.items()}
    return errors


def _failures_by_row(batch: Batch, apply: Callable[[Any], object]) -> dict[int, Exception]:
    errors: dict[int, Exception] = {}
    for index, record in enumerate(batch.records()):
        try:
            apply(record)
        except Exception as error:  # noqa: BLE001 - any error means that the row failed
            errors[index] = error
    return errors


def required_nulls(
    fields: Sequence[Field], members: Sequence[pa.Array], data: pa.StructArray
) -> set[int]:
    """Return the indices of the non-null structs in which a required field is null."""
    rows: set[int] = set()
    for field, member in zip(fields, members, strict=True):
        if not field.schema.optional and member.null_count:
            null = (
                pc.and_(member.is_null(), data.is_valid()) if data.null_count else member.is_null()
            )
            rows.update(pc.indices_nonzero(null).to_pylist())
    return rows


def kept_nulls(column: Column) -> tuple[pa.BooleanArray | None, Schema | None]:
    """Return a mask of a column's null rows and the schema of these rows.

    Both are None if there are no null rows.

    Call this function before the schema of the column is changed, because null rows retain the
    original schema.

    Raises:
        NotColumnar: The null rows have different schemas.
    """
    null = column.is_null()
    if null is None:
        return None, None
    marked = 0 if column.tombstone is None else column.tombstone.true_count
    schemas = {column.tombstone_schema} if marked else set()
    if marked < null.true_count:
        schemas.add(column.schema)
    if len(schemas) > 1:
        raise NotColumnar("null values with several schemas")
    return null, schemas.pop()


def restructured(
    column: Column, result: Schema, columns: Sequence[pa.Array]
) -> tuple[Column, set[int]]:
    """Return a column with these members, and the indices of rows that lack a required value.

    Null rows are unchanged; see `kept_nulls`.
    """
    null, null_schema = kept_nulls(column)
    data = struct_column(result, columns, null, len(column))
    new_column = Column(result, data, null, tombstone_schema=null_schema)
    return new_column, required_nulls(result.fields, columns, column.data)


def incomplete_rows(schema: Schema, data: pa.Array) -> pa.BooleanArray | None:
    """Return a mask of the non-null rows that contain a null for a required value at any depth.

    Returns None if there are no such rows.

    Raises:
        NotColumnar: A map contains such a null.
    """
    inside: list[pa.BooleanArray] = []
    if schema.type is Type.STRUCT:
        for field, member in zip(schema.fields, children(data), strict=True):
            if not field.schema.optional and member.null_count:
                inside.append(member.is_null())
            deeper = incomplete_rows(field.schema, member)
            if deeper is not None:
                inside.append(deeper)
    elif schema.type is Type.ARRAY and schema.value_schema is not None:
        bad = _incomplete_items(schema.value_schema, data.flatten())
        if bad is not None:
            rows = pc.list_parent_indices(data).filter(bad)
            inside.append(pc.is_in(pa.array(range(len(data)), rows.type), value_set=rows))
    elif (
        schema.value_schema is not None
        and _incomplete_items(schema.value_schema, data.items) is not None
    ):
        raise NotColumnar("a map contains a null for a required value")
    if not inside:
        return None
    incomplete = inside[0]
    for rows in inside[1:]:
        incomplete = pc.or_(incomplete, rows)
    if data.null_count:
        incomplete = pc.and_(incomplete, data.is_valid())
    return incomplete if incomplete.true_count else None


def _incomplete_items(schema: Schema, items: pa.Array) -> pa.BooleanArray | None:
    deeper = incomplete_rows(schema, items)
    if schema.optional or not items.null_count:
        return deeper
    return items.is_null() if deeper is None else pc.or_(items.is_null(), deeper)


def null_rows(column: Column) -> pa.BooleanArray:
    """Return a mask of the null rows of a column."""
    null = column.is_null()
    return pa.repeat(False, len(column)) if null is None else null


def mixed(
    after: Column,
    before: Column,
    is_before: pa.BooleanArray | None,
    kept_rows: pa.BooleanArray | None,
) -> Column:
    """Return the rows of `before` where `is_before` is true, and the rows of `after` elsewhere.

    `is_before` is None if no row comes from `before`. `kept_rows` is None to return all rows.
    """
    if is_before is not None:
        return after.mixed(before, is_before, kept_rows)
    return after if kept_rows is None else after.where(kept_rows)


def taken(data: pa.Array, rows: pa.Array | None) -> pa.Array:
    """Return the rows at these indices, or all rows if `rows` is None."""
    return data if rows is None else data.take(rows)


def with_value(batch: Batch, kept_rows: pa.BooleanArray | None, value: Column) -> Batch:
    """Return the rows where `kept_rows` is true, or all rows if it is None, with a new value.

    `value` contains only the returned rows. `Batch.where` would also filter the old value column,
    which would be the most expensive step.
    """
    if kept_rows is None:
        return batch.replace(value=value)
    headers = batch.headers
    if headers is not None:
        headers = list(compress(headers, kept_rows.to_pylist()))
    return Batch(
        batch.topic,
        batch.key.where(kept_rows),
        value,
        batch.timestamp.filter(kept_rows),
        headers,
        batch.origin.where(kept_rows),
    )
