"""`ValueToKey`: creates the key from fields of the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import Schema, struct
from transforms.field_changes import CopiedField, FieldChanges, Nulls
from transforms.field_transformation import FieldTransformation
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import Side
from transforms.validators import non_empty_list


class ValueToKey(FieldTransformation[R]):
    """Replaces the key with fields of the value. The partition does not change.

    A record with a null value fails.
    """

    config_def = (
        ConfigDef()
        .define(
            "fields",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            doc="Fields of the value that form the key, in this order.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
    )
    purpose = "copying fields from value to key"
    nulls = Nulls.FAIL
    side = Side.VALUE
    target = Side.KEY

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        copied = [CopiedField(name, name) for name in props["fields"]]
        self.declare(
            FieldChanges(new_name=lambda _: None, copied=copied),
            replace_null_with_default=props["replace.null.with.default"],
        )

    def result_schema(self, schema: Schema, fields: Sequence[tuple[str, Schema]]) -> Schema:
        return struct(*fields)

    def source(self, schema: Schema, name: str) -> int:
        field = schema.field(name)
        if field is None:
            raise DataError(f"Field does not exist: {name}")
        return field.index
