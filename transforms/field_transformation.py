"""What the transformations share that replace the values of some fields, each by itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from connect_py.api.record import R
from connect_py.api.schema import Schema, Struct, Value
from transforms.rebuild import check_required, values_of
from transforms.requirements import require_map
from transforms.side import SideTransformation

if TYPE_CHECKING:
    import pyarrow as pa


class FieldTransformation(SideTransformation[R]):
    """Rows by the rules of `replaced`. `configure` sets what is declared here."""

    purpose: str  # for messages
    field_names: Collection[str]
    # it is the whole key or value that is replaced, and `field_names` does not matter
    whole: bool = False
    replace_null_with_default: bool
    result: Callable[[Schema], Schema]
    """From a schema to the one afterwards. DataError: a default cannot be replaced."""

    @abstractmethod
    def replaced(self, name: str, schema: Schema | None, value: Value) -> Value:
        """The value of a field afterwards; null stays null."""

    @abstractmethod
    def fast(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
        """A column afterwards by a kernel that is exact; None: value by value."""

    def numbers(self, name: str, texts: pa.StringArray) -> pa.Int64Array | None:
        """Whole numbers of the texts of a field, null where `replaced` has to look; None: the field
        becomes none."""
        return None

    def replaced_map(self, value: Value) -> dict[Any, Value]:
        """A schemaless row afterwards: it has all of the fields."""
        row = dict(require_map(value, self.purpose))
        for name in self.field_names:
            row[name] = self.replaced(name, None, row.get(name))
        return row

    def replaced_row(self, row: Struct, result: Schema) -> Struct:
        """A row afterwards, of this schema. DataError: a required field is null."""
        values = values_of(row, replace_null_with_default=self.replace_null_with_default)
        for field in row.schema.fields:
            if field.name in self.field_names:
                values[field.index] = self.replaced(field.name, field.schema, values[field.index])
        check_required(result, values)
        return Struct(result, values)
