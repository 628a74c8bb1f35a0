"""`ExtractField`: replaces a key or value with one of its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from connect_py.api.batch import Batch, Column
from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.errors import ConnectError, NotColumnar
from connect_py.api.record import R
from connect_py.api.schema import Schema
from connect_py.java.errors import IllegalArgumentError
from transforms.field_path import FieldPath
from transforms.requirements import require_map, require_struct
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import SideTransformation, for_both

if TYPE_CHECKING:
    import pyarrow as pa

PURPOSE = "field extraction"


class ExtractField(SideTransformation[R]):
    """Replaces a struct or map with one of its fields.

    A null remains null, but its schema becomes the schema of the field.

    `apply` and `apply_batch` are both implemented directly, because `FieldTransformation` cannot
    replace a struct with a nested field. The field is null if any struct on its path is null.
    """

    config_def = (
        ConfigDef()
        .define("field", Type.STRING, importance=Importance.MEDIUM, doc="Field to extract.")
        .add(REPLACE_NULL_WITH_DEFAULT)
        .define(
            "field.syntax.version",
            Type.STRING,
            default="V1",
            importance=Importance.HIGH,
            validator=one_of("V1", "V2", case_insensitive=True),
            doc="Syntax of field. V1: a field name, which may contain dots. V2: a path of field "
            "names separated by dots, with backticks around names that contain dots.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._path = FieldPath.parse(props["field"], props["field.syntax.version"])
        self._replace_null_with_default: bool = props["replace.null.with.default"]

    def _schema(self, schema: Schema) -> Schema:
        field = self._path.field_of(schema)
        if field is None:
            raise IllegalArgumentError(f"Unknown field: {self._path.text}")
        return field.schema

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if schema is None:
            inside = None if value is None else self._path.value_of_map(require_map(value, PURPOSE))
            return self.side.put(record, None, inside)
        row = None if value is None else require_struct(value, PURPOSE, schema)
        result = self._schema(schema)
        if row is None:
            return self.side.put(record, result, None)
        value = self._path.value_of_struct(
            row, replace_null_with_default=self._replace_null_with_default
        )
        return self.side.put(record, result, value)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        from transforms.columns import blamed, scalar, with_default

        column = self.side.column(batch)
        null_schema = self._null_schema(batch, column)
        if column.schema is None:
            return [self.side.put_column(batch, self._schemaless(batch, column, null_schema))]
        try:
            self._schema(column.schema)
        except ConnectError as error:
            raise blamed(batch, self.apply) from error
        inside: Column | None = column
        for step in self._path.steps:
            assert inside is not None
            inside = inside.member(step)
            if (
                inside is not None
                and inside.schema is not None
                and inside.schema.default is not None
            ):
                if len(self._path.steps) > 1:
                    raise NotColumnar("a field on the path has a default")
                if self._replace_null_with_default:
                    data = with_default(inside.data, scalar(inside.schema, inside.schema.default))
                    inside = Column(inside.schema, _hidden_where(data, column))
        assert inside is not None
        result = Column(inside.schema, inside.data, column.tombstone, tombstone_schema=null_schema)
        return [self.side.put_column(batch, result)]

    def _null_schema(self, batch: Batch, column: Column) -> Schema | None:
        """Return the schema of the result for nulls that have a schema.

        Raises:
            BadRows: The schema of the nulls does not have the field.
        """
        from transforms.columns import without

        if (
            column.tombstone is None
            or column.tombstone_schema is None
            or not column.tombstone.true_count
        ):
            return None
        try:
            return self._schema(column.tombstone_schema)
        except ConnectError as error:
            raise without(batch, self.apply, column.tombstone, self.apply_batch) from error

    def _schemaless(self, batch: Batch, column: Column, null_schema: Schema | None) -> Column:
        from transforms.columns import blamed

        if null_schema is not None:
            if column.tombstone is None or column.tombstone.true_count < len(batch):
                raise NotColumnar("null values with several schemas")
            return Column(None, column.data, column.tombstone, tombstone_schema=null_schema)
        inside: Column | None = column
        for step in self._path.steps:
            if inside is None:
                break
            if not inside.is_struct():
                if inside.null_count == len(inside):
                    break
                raise blamed(batch, self.apply)
            inside = inside.member(step)
        if inside is None or inside.null_count == len(inside):
            import pyarrow as pa

            return Column(None, pa.nulls(len(batch)), pa.repeat(True, len(batch)))
        return Column(None, inside.data, inside.is_null(), inside.absent)


def _hidden_where(data: pa.Array, column: Column) -> pa.Array:
    """Return the data with nulls where the struct is null, even if the field has a default."""
    from transforms.columns import hidden

    null = column.is_null()
    if null is None:
        return data
    import pyarrow.compute as pc

    return hidden(data, pc.invert(null))


ExtractFieldKey, ExtractFieldValue = for_both(ExtractField)
