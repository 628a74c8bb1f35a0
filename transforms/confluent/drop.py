"""Confluent's `Drop`: removes the key or the value."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import Schema
from transforms.side import SideTransformation, for_both


class Drop(SideTransformation[R]):
    """Sets the key or value of each record to null. A record with a null value is a tombstone."""

    config_def = ConfigDef().define(
        "schema.behavior",
        Type.STRING,
        default="nullify",
        importance=Importance.MEDIUM,
        validator=one_of("nullify", "retain", "validate", "force_optional", case_insensitive=True),
        doc="Handling of the schema: nullify removes it, retain leaves it unchanged, "
        "force_optional makes it optional, and validate fails if it is required.",
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        self._behavior: str = self.config_def.parse(configs)["schema.behavior"].lower()

    def apply(self, record: R) -> R | None:
        return self.side.put(record, self._schema(self.side.of(record).schema), None)

    def _schema(self, schema: Schema | None) -> Schema | None:
        if schema is None or self._behavior == "nullify":
            return None
        if self._behavior == "force_optional":
            return schema.replace(optional=True)
        if self._behavior == "validate" and not schema.optional:
            raise DataError(
                f"the {self.side.value.lower()} has a required schema and cannot be dropped"
            )
        return schema


DropKey, DropValue = for_both(Drop)
