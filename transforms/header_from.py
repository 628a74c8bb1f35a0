"""`HeaderFrom`: copies or moves fields to headers."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.errors import ConfigError
from connect_py.api.record import R
from transforms.field_changes import FieldChanges, Nulls
from transforms.field_transformation import FieldTransformation
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import for_both
from transforms.validators import non_empty_list

MOVE = "move"


class HeaderFrom(FieldTransformation[R]):
    """Appends one header for each field. A record with a null key or value fails."""

    config_def = (
        ConfigDef()
        .define(
            "fields",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            doc="Fields whose values become headers.",
        )
        .define(
            "headers",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            doc="Names of the headers, in the order of the fields.",
        )
        .define(
            "operation",
            Type.STRING,
            validator=one_of(MOVE, "copy"),
            importance=Importance.HIGH,
            doc="move removes the fields; copy retains them.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
    )
    nulls = Nulls.FAIL

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        fields: list[str] = props["fields"]
        if len(fields) != len(props["headers"]):
            raise ConfigError(
                "", "'fields' config must have the same number of elements as 'headers' config."
            )
        self.purpose = f"header {props['operation']}"
        moves = props["operation"] == MOVE
        self.declare(
            FieldChanges(
                new_name=(lambda name: None if name in fields else name) if moves else None,
                headers=list(zip(props["headers"], fields, strict=True)),
            ),
            replace_null_with_default=props["replace.null.with.default"],
        )


HeaderFromKey, HeaderFromValue = for_both(HeaderFrom)
