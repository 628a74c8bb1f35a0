"""Iceberg's `CopyValue`: copies a field."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.record import R
from transforms.field_changes import CopiedField, FieldChanges
from transforms.field_transformation import FieldTransformation
from transforms.side import Side


class CopyValue(FieldTransformation[R]):
    """Adds a copy of an existing field. Null values are passed through unchanged."""

    config_def = (
        ConfigDef()
        .define("source.field", Type.STRING, importance=Importance.HIGH, doc="Field to copy.")
        .define("target.field", Type.STRING, importance=Importance.HIGH, doc="Name of the copy.")
    )
    purpose = "copy value"
    side = Side.VALUE

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        copied = CopiedField(props["target.field"], props["source.field"])
        self.declare(FieldChanges(copied=[copied]))
