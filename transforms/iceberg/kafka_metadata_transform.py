"""Iceberg's `KafkaMetadataTransform`: adds the Kafka metadata of the record to its value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import ConfigError
from connect_py.api.record import R
from connect_py.api.schema import INT64, OPTIONAL_INT64, struct
from transforms.field_changes import FieldChanges, InsertedField, InsertedStruct
from transforms.field_transformation import FieldTransformation
from transforms.side import Side


class KafkaMetadataTransform(FieldTransformation[R]):
    """Adds the metadata to the value, as separate fields or as one struct or map.

    Timestamps are in milliseconds. Tombstones are passed through unchanged.
    """

    config_def = (
        ConfigDef()
        .define(
            "field_name",
            Type.STRING,
            default="_kafka_metadata",
            importance=Importance.LOW,
            doc="Name of the field if nested is true, otherwise the prefix of the field names.",
        )
        .define(
            "nested",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Add one struct or map instead of separate fields.",
        )
        .define(
            "external_field",
            Type.STRING,
            default="none",
            importance=Importance.LOW,
            doc="Additional constant field, in the format name,value.",
        )
    )
    purpose = "KafkaMetadataTransform"
    map_purpose = "KafkaMetadata transform"
    side = Side.VALUE

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        name: str = props["field_name"]
        fields = [
            InsertedField.topic("topic"),
            InsertedField.partition("partition"),
            InsertedField.offset("offset", INT64, self.purpose),
            InsertedField.timestamp("timestamp", OPTIONAL_INT64),
            *_constant(props["external_field"]),
        ]
        if props["nested"]:
            schema = struct(*((field.name, field.schema) for field in fields))
            self.declare(FieldChanges(inserted=[InsertedStruct(name, schema, fields)]))
        else:
            prefixed = [replace(field, name=f"{name}_{field.name}") for field in fields]
            self.declare(FieldChanges(inserted=prefixed))


def _constant(external_field: str) -> Sequence[InsertedField]:
    """Return the field that the option `external_field` defines, if any."""
    if external_field == "none":
        return []
    parts = [part.strip() for part in external_field.split(",")]
    if len(parts) != 2:
        raise ConfigError(
            "external_field",
            f"Could not parse {external_field} for external_field: key,value is expected",
        )
    name, value = parts
    return [InsertedField.constant(name, value)]
