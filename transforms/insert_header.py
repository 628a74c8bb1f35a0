"""`InsertHeader`: adds a header with a constant value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.record import NO_HEADERS, R
from connect_py.api.transformation import Transformation
from connect_py.java.values import parse_string
from transforms.validators import non_null


class InsertHeader(Transformation[R]):
    """Appends one header; others of its name stay."""

    config_def = (
        ConfigDef()
        .define(
            "header",
            Type.STRING,
            validator=non_null,
            importance=Importance.HIGH,
            doc="The name of the header.",
        )
        .define(
            "value.literal",
            Type.STRING,
            validator=non_null,
            importance=Importance.HIGH,
            doc="The literal value; its type is guessed from the text as that of header values is.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._name: str = props["header"]
        self._schema, self._value = parse_string(props["value.literal"])

    def apply(self, record: R) -> R | None:
        return record.replace(headers=record.headers.add(self._name, self._value, self._schema))

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if batch.headers is None:
            return [
                batch.replace(
                    headers=[NO_HEADERS.add(self._name, self._value, self._schema)] * len(batch)
                )
            ]
        return [
            batch.replace(
                headers=[h.add(self._name, self._value, self._schema) for h in batch.headers]
            )
        ]
