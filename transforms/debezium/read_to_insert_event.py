"""`ReadToInsertEvent`: converts snapshot events to insert events."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.record import R
from connect_py.api.schema import Struct
from connect_py.api.transformation import Transformation
from transforms.debezium.envelope import OP, is_envelope


class ReadToInsertEvent(Transformation[R]):
    """Changes the operation from `r` (read) to `c` (create)."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Do nothing: the transformation has no options."""

    def apply(self, record: R) -> R | None:
        schema = record.value_schema
        if record.value is None or schema is None or not is_envelope(schema):
            return record
        field = schema.field(OP)
        if field is None or record.value.get_without_default(OP) != "r":
            return record
        values = list(record.value.values)
        values[field.index] = "c"
        return record.replace(value=Struct(schema, values))
