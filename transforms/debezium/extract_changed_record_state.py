"""`ExtractChangedRecordState`: lists the changed and unchanged columns of an update in headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from connect_py.api.batch import Batch, Column
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import NotColumnar
from connect_py.api.record import NO_HEADERS, Header, Headers, R
from connect_py.api.schema import OPTIONAL_STRING, Schema, Struct, Value, array
from connect_py.api.transformation import Transformation
from transforms.debezium.envelope import is_envelope

_IMAGES = ("before", "after")


class ExtractChangedRecordState(Transformation[R]):
    """Adds the configured headers to change events. Other records are passed through unchanged.

    The lists of changed and unchanged columns are both empty if the row before or after the change
    is missing. `apply` and `apply_batch` are both implemented directly, because the headers that
    `FieldTransformation` adds cannot depend on all columns of two rows.
    """

    config_def = (
        ConfigDef()
        .define(
            "header.changed.name",
            Type.STRING,
            default=None,
            importance=Importance.LOW,
            doc="Header with the names of changed columns. Default: no header.",
        )
        .define(
            "header.unchanged.name",
            Type.STRING,
            default=None,
            importance=Importance.LOW,
            doc="Header with the names of unchanged columns. Default: no header.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._names: tuple[str | None, str | None] = (
            props["header.changed.name"],
            props["header.unchanged.name"],
        )

    def apply(self, record: R) -> R | None:
        if record.value is None or not is_envelope(record.value_schema):
            return record
        return record.replace(headers=self._added(record.headers, record.value))

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        column = batch.value
        if column.schema is None or not is_envelope(column.schema):
            return [batch]
        if any(column.schema.field(name) is None for name in _IMAGES):
            return self._refused(batch)
        null = column.is_null()
        nulls = [False] * len(batch) if null is None else null.to_pylist()
        added = self._columns(column)
        headers = [
            before if is_null else Headers([*before, *more])
            for before, is_null, more in zip(
                batch.headers or [NO_HEADERS] * len(batch), nulls, added, strict=True
            )
        ]
        return [batch.replace(headers=headers)]

    def _refused(self, batch: Batch) -> Sequence[Batch]:
        """Reject events whose envelope schema lacks `before` or `after`.

        Null values are passed through unchanged.
        """
        import pyarrow.compute as pc

        from transforms.columns import null_rows, without

        events = pc.invert(null_rows(batch.value))
        if not events.true_count:
            return [batch]
        raise without(batch, self.apply, events, lambda nulls: [nulls])

    def _columns(self, column: Column) -> Sequence[tuple[Header, ...]]:
        """Return the headers to add to each row of a column of envelopes."""
        before, after = (column.member(name) for name in _IMAGES)
        empty = self._headers_of((), ())
        if before is None or after is None or after.schema is None or before.schema is None:
            return [empty] * len(column)
        names = [f.name for f in after.schema.fields]
        members = [(before.member(name), after.member(name)) for name in names]
        if any(old is None for old, _ in members):
            raise NotColumnar("the rows before and after a change have different columns")
        changes = zip(
            *(_changes(old, new) for old, new in members if old is not None and new is not None),
            strict=True,
        )
        both = zip(_present(before), _present(after), strict=True)
        return [
            self._headers_of(names, changed) if old and new else empty
            for changed, (old, new) in zip(changes, both, strict=True)
        ]

    def _headers_of(self, names: Sequence[str], changed: Sequence[bool]) -> tuple[Header, ...]:
        lists: tuple[list[str], list[str]] = ([], [])
        for name, is_changed in zip(names, changed, strict=True):
            lists[0 if is_changed else 1].append(name)
        return tuple(
            Header(name, columns, _schema(name))
            for name, columns in zip(self._names, lists, strict=True)
            if name is not None
        )

    def _added(self, headers: Headers, event: Struct) -> Headers:
        before, after = (event.get_without_default(name) for name in _IMAGES)
        if before is None or after is None:
            return Headers([*headers, *self._headers_of((), ())])
        names = [f.name for f in after.schema.fields]
        changed = [
            not _same(before.get_without_default(name), after.get_without_default(name))
            for name in names
        ]
        return Headers([*headers, *self._headers_of(names, changed)])


@lru_cache(maxsize=16)
def _schema(name: str) -> Schema:
    return array(OPTIONAL_STRING, optional=True, name=name)


def _same(before: Value, after: Value) -> bool:
    """Return True if the values are equal in Java, where NaN equals NaN and 0.0 is not -0.0."""
    if isinstance(before, float) and isinstance(after, float):
        return repr(before) == repr(after)
    return bool(before == after)


def _changes(before: Column, after: Column) -> list[bool]:
    """Return one flag per row, which is True if the value changed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from connect_py.columns.arrow import is_odd_decimal, to_values

    assert after.schema is not None
    kind = after.data.type
    if pa.types.is_nested(kind) or pa.types.is_floating(kind) or kind != before.data.type:
        assert before.schema is not None
        pairs = zip(
            to_values(before.schema, before.data), to_values(after.schema, after.data), strict=True
        )
        return [not _same(old, new) for old, new in pairs]
    old, new = before.data, after.data
    if is_odd_decimal(kind):
        old, new = (data.view(pa.binary(kind.bit_width // 8)) for data in (old, new))
    differ = pc.fill_null(pc.not_equal(old, new), False)
    one_null = pc.xor(before.data.is_null(), after.data.is_null())
    changed: list[bool] = pc.or_(differ, one_null).to_pylist()
    return changed


def _present(column: Column) -> list[bool]:
    null = column.is_null()
    return [True] * len(column) if null is None else [not is_null for is_null in null.to_pylist()]
