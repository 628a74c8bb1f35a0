"""`InsertHeader`: adds a header with a constant value."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.record import Headers, R
from connect_py.java.values import parse_string
from transforms.header_transformation import HeaderTransformation
from transforms.validators import non_null


class InsertHeader(HeaderTransformation[R]):
    """Appends a header. Existing headers with the same name are retained."""

    config_def = (
        ConfigDef()
        .define(
            "header",
            Type.STRING,
            validator=non_null,
            importance=Importance.HIGH,
            doc="Name of the header.",
        )
        .define(
            "value.literal",
            Type.STRING,
            validator=non_null,
            importance=Importance.HIGH,
            doc="Literal value of the header. Its type is inferred from the literal.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._name: str = props["header"]
        self._schema, self._value = parse_string(props["value.literal"])

    def new_headers(self, headers: Headers) -> Headers:
        return headers.add(self._name, self._value, self._schema)
