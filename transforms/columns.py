"""Column kernels that several transformations share. Imports pyarrow, so it is itself imported on
first use only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column, Path
from connect_py.api.errors import BadRows, ConnectError, NotColumnar
from connect_py.api.schema import Field, Schema, Type, Value
from connect_py.api.transformation import Transformation
from connect_py.columns.arrow import arrow_type, filled, is_odd_decimal, to_array

ROWS_PER_CUT = 8  # shorter runs cost more as batches than as rows
ROWS_TO_BLAME = 32  # fewer are looked at one by one
_MOST_DIGITS = 18  # that any number may have in 64 bits


def children(data: pa.StructArray) -> list[pa.Array]:
    """The members of a struct column; a null struct hides what stands in them."""
    return [data.field(index) for index in range(data.type.num_fields)]


def child(data: pa.StructArray, index: int) -> pa.Array:
    """One member of a struct column, null where the struct is."""
    found = data.field(index)
    return hidden(found, data.is_valid()) if data.null_count else found


def member_of(column: Column, name: str) -> Column:
    """The member of a column of structs; it is there."""
    member = column.member(name)
    assert member is not None
    return member


def hidden(data: pa.Array, visible: pa.BooleanArray) -> pa.Array:
    """The column with null in all rows that are not visible."""
    if data.type == pa.null():
        return data
    # if_else takes a hundred times as long for structs
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
    """A column of this struct schema from its members, null where `null` is true."""
    if not members:
        return empty_structs(null, length)
    return pa.StructArray.from_arrays(members, fields=list(arrow_type(schema)), mask=null)


def empty_structs(null: pa.BooleanArray | None, length: int) -> pa.StructArray:
    """A column of structs without members: Arrow cannot tell the length from members that do not
    exist."""
    nulls = [False] * length if null is None else null.to_pylist()
    return pa.array([None if is_null else {} for is_null in nulls], pa.struct([]))


def constant(value: Value, schema: Schema, length: int) -> pa.Array:
    """A column that holds one value of this schema in every row."""
    return pa.repeat(scalar(schema, value), length)


@lru_cache(maxsize=64)
def repeated_string(value: str, length: int) -> pa.StringArray:
    """Return a column that holds one string; cached: batches tend to have the same few lengths."""
    return pa.repeat(pa.scalar(value), length)


def scalar(schema: Schema, value: Value) -> pa.Scalar:
    """One value of this schema as Arrow holds it; NotColumnar when Arrow cannot."""
    return to_array(schema, [value])[0]


def with_default(data: pa.Array, default: pa.Scalar | None) -> pa.Array:
    """The column with its nulls replaced; None: there is no default."""
    return data if default is None else filled(data, default)


@lru_cache(maxsize=256)
def defaults(schema: Schema) -> Sequence[pa.Scalar | None]:
    """The default of each field of a struct schema, None where there is none."""
    return [
        None if f.schema.default is None else scalar(f.schema, f.schema.default)
        for f in schema.fields
    ]


def columns_of(
    schema: Schema, data: pa.StructArray, *, replace_null_with_default: bool
) -> list[pa.Array]:
    """The members of a struct column; nulls become the default of their field when asked to."""
    columns = children(data)
    if not replace_null_with_default:
        return columns
    return [with_default(c, d) for c, d in zip(columns, defaults(schema), strict=True)]


def map_members(data: pa.Array) -> dict[str, pa.Array]:
    """The members of a column of maps by name; of nulls there are none."""
    if pa.types.is_null(data.type):
        return {}
    return dict(zip((f.name for f in data.type), children(data), strict=True))


def maps(
    column: Column, columns: Mapping[str, pa.Array], absent: Mapping[Path, pa.BooleanArray]
) -> Column:
    """A column of maps with these members in place of another; what is null there is null here."""
    null = column.is_null()
    if columns:
        data = pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=null)
    else:
        data = empty_structs(null, len(column))
    return Column(None, data, column.tombstone, absent, column.tombstone_schema)


def parted(batch: Batch, codes: pa.Array) -> list[tuple[Any, Batch]]:
    """Part a batch by code (no nulls), in order of first appearance; rows of one code keep their
    order.

    For rows that go to different topics: rows have no order across topics.

    Raises:
        NotColumnar: There are so many codes that rows are cheaper.
    """
    found = pc.unique(codes).to_pylist()
    if len(found) == 1:
        return [(found[0], batch)]
    if len(found) * ROWS_PER_CUT > len(batch) and len(found) > 2:
        raise NotColumnar(f"{len(batch)} rows go {len(found)} ways")
    return [(code, batch.where(pc.equal(codes, code))) for code in found]


def blamed(batch: Batch, apply: Callable[[Any], object]) -> BadRows | NotColumnar:
    """What to raise when a batch cannot be done as columns: the rows that fail as rows, with their
    errors.

    `apply` is a method of the transformation that was given this batch: its column form tells
    halves without a bad row, so that one bad row in thousands costs as much as doing the batch
    twice, not as much as thousands of rows.
    """
    errors = _failures(batch, apply)
    return BadRows(errors) if errors else NotColumnar("no row fails by itself")


def finished(
    batch: Batch, apply: Callable[[Any], object], made: Batch, failed: Collection[int]
) -> Sequence[Batch]:
    """What a batch form that could do all rows but the failed ones returns: `made`, if there are
    none.

    Raises:
        BadRows, NotColumnar: As for `blamed`; nothing has to be done again for the other rows.
    """
    if not failed:
        return [made]
    is_failed = pc.is_in(
        pa.array(range(len(batch)), pa.int64()), value_set=pa.array(list(failed), pa.int64())
    )
    errors = _failures_at(batch, apply, is_failed)
    if len(errors) < is_failed.true_count:
        raise BadRows(errors) if errors else NotColumnar("no row fails by itself")
    raise BadRows(errors, [made.where(pc.invert(is_failed))] if len(errors) < len(batch) else [])


def without(
    batch: Batch,
    apply: Callable[[Any], object],
    suspects: pa.BooleanArray,
    go_on: Callable[[Batch], Sequence[Batch]],
) -> BadRows:
    """What to raise when some rows (no nulls in the mask) are known to fail, and `go_on` does the
    others.

    Raises:
        NotColumnar: Not all of them fail by themselves; or as `go_on` says.
    """
    errors = _failures_at(batch, apply, suspects)
    if len(errors) < suspects.true_count:
        raise NotColumnar("rows do not fail by themselves")
    if len(errors) == len(batch):
        return BadRows(errors, [])
    others = pc.invert(suspects)
    try:
        return BadRows(errors, go_on(batch.where(others)))
    except BadRows as bad:
        places = pc.indices_nonzero(others).to_pylist()
        return BadRows(
            {**errors, **{places[row]: error for row, error in bad.errors.items()}}, bad.made
        )


def _failures_at(
    batch: Batch, apply: Callable[[Any], object], suspects: pa.BooleanArray
) -> dict[int, Exception]:
    rows = pc.indices_nonzero(suspects).to_pylist()
    return {
        rows[place]: error
        for place, error in _failures_by_row(batch.where(suspects), apply).items()
    }


def whole_numbers(texts: pa.StringArray, bits: int) -> pa.Int64Array:
    """The numbers of so many bits that texts of nothing but ASCII digits, or a minus before them,
    stand for.

    Null for any other text: of these some may be numbers all the same.
    """
    plain = pc.and_(
        pc.ascii_is_decimal(texts), pc.less_equal(pc.binary_length(texts), _MOST_DIGITS)
    )
    if plain.true_count < len(texts) - texts.null_count:
        plain = pc.match_substring_regex(texts, f"^-?[0-9]{{1,{_MOST_DIGITS}}}$")
        texts = pc.if_else(plain, texts, pa.scalar(None, texts.type))
    numbers = texts.cast(pa.int64())
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
    """Convert values one by one; also return the places of those that fail, which are null then."""
    made: list[Value] = []
    failed: list[int] = []
    waiting = iter(values)
    while True:
        try:
            # what was converted before an error stays in the list
            made.extend(map(convert, waiting))
            return made, failed
        except NotColumnar:
            raise
        except ConnectError:
            failed.append(len(made))
            made.append(None)


def _failures(batch: Batch, apply: Callable[[Any], object]) -> dict[int, Exception]:
    owner = getattr(apply, "__self__", None)
    if len(batch) <= ROWS_TO_BLAME or not isinstance(owner, Transformation):
        return _failures_by_row(batch, apply)
    errors: dict[int, Exception] = {}
    middle = len(batch) // 2
    for start, part in ((0, batch.slice(0, middle)), (middle, batch.slice(middle, len(batch)))):
        found: Mapping[int, Exception] = {}
        try:
            owner.apply_batch(part)
        except BadRows as bad:  # looked for in the same way
            found = bad.errors
        except Exception:  # noqa: BLE001 - whatever it is, the row form says it
            found = _failures_by_row(part, apply)
        errors |= {start + row: error for row, error in found.items()}
    return errors


def _failures_by_row(batch: Batch, apply: Callable[[Any], object]) -> dict[int, Exception]:
    errors: dict[int, Exception] = {}
    for index, record in enumerate(batch.records()):
        try:
            apply(record)
        except Exception as error:  # noqa: BLE001 - whatever the reference raises is that row's failure
            errors[index] = error
    return errors


def required_nulls(
    fields: Sequence[Field], members: Sequence[pa.Array], data: pa.StructArray
) -> set[int]:
    """Return the rows in which the struct is not null, but one of its required fields is."""
    rows: set[int] = set()
    for field, member in zip(fields, members, strict=True):
        if not field.schema.optional and member.null_count:
            null = (
                pc.and_(member.is_null(), data.is_valid()) if data.null_count else member.is_null()
            )
            rows.update(pc.indices_nonzero(null).to_pylist())
    return rows


def kept_nulls(column: Column) -> tuple[pa.BooleanArray | None, Schema | None]:
    """The null rows of a column whose schema is about to change, and the schema that they go on to
    show.

    Raises:
        NotColumnar: They show different ones.
    """
    null = column.is_null()
    if null is None:
        return None, None
    marked = 0 if column.tombstone is None else column.tombstone.true_count
    schemas = {column.tombstone_schema} if marked else set()
    if marked < null.true_count:
        schemas.add(column.schema)
    if len(schemas) > 1:
        raise NotColumnar("null values of several schemas")
    return null, schemas.pop()


def restructured(
    column: Column, result: Schema, columns: Sequence[pa.Array]
) -> tuple[Column, set[int]]:
    """A column of structs of this schema and these members in place of another; nulls stay, see
    `kept_nulls`.

    Also the rows in which a required field is null.
    """
    null, null_schema = kept_nulls(column)
    data = struct_column(result, columns, null, len(column))
    made = Column(result, data, null, tombstone_schema=null_schema)
    return made, required_nulls(result.fields, columns, column.data)


def incomplete_rows(schema: Schema, data: pa.Array) -> pa.BooleanArray | None:
    """The rows that are not null and hold a null, at any depth, that the schema does not allow;
    None: no row does.

    Raises:
        NotColumnar: Some map does.
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
        raise NotColumnar("a map may lack values")
    found = None
    for rows in inside:
        found = rows if found is None else pc.or_(found, rows)
    if found is not None and data.null_count:
        found = pc.and_(found, data.is_valid())
    return found if found is not None and found.true_count else None


def _incomplete_items(schema: Schema, items: pa.Array) -> pa.BooleanArray | None:
    deeper = incomplete_rows(schema, items)
    if schema.optional or not items.null_count:
        return deeper
    return items.is_null() if deeper is None else pc.or_(items.is_null(), deeper)


def null_rows(column: Column) -> pa.BooleanArray:
    """The rows of a column that are null."""
    null = column.is_null()
    return pa.repeat(False, len(column)) if null is None else null


def mixed(
    after: Column, before: Column, is_before: pa.BooleanArray | None, kept: pa.BooleanArray | None
) -> Column:
    """The rows of `before` where `is_before` is true (None: nowhere), of `after` elsewhere; of
    these those kept (None: all)."""
    if is_before is not None:
        return after.mixed(before, is_before, kept)
    return after if kept is None else after.where(kept)


def taken(data: pa.Array, rows: pa.Array | None) -> pa.Array:
    """The rows of these indices; None: all of them."""
    return data if rows is None else data.take(rows)


def with_value(batch: Batch, kept: pa.BooleanArray | None, value: Column) -> Batch:
    """The rows where `kept` is true (None: all), with a value column that holds those rows only.

    `Batch.where` would filter the value that is about to be replaced: more work than all the rest.
    """
    if kept is None:
        return batch.replace(value=value)
    headers = batch.headers
    if headers is not None:
        headers = [h for h, keep in zip(headers, kept.to_pylist(), strict=True) if keep]
    return Batch(
        batch.topic,
        batch.key.where(kept),
        value,
        batch.timestamp.filter(kept),
        headers,
        batch.origin.where(kept),
    )
