"""`InsertField`: adds Kafka metadata of a record, or a constant, to its key or value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Type
from connect_py.api.errors import ConfigError
from connect_py.api.record import R
from connect_py.api.schema import INT32, INT64, STRING, Schema, timestamp
from transforms.field_changes import FieldChanges, InsertedField
from transforms.field_transformation import FieldTransformation
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.side import for_both

PURPOSE: Final = "field insertion"
_DOCS: Final[Mapping[str, str]] = {  # in insertion order
    "topic.field": "Field for the topic, as changed by earlier transformations.",
    "partition.field": "Field for the partition.",
    "offset.field": "Field for the offset (sink connectors only).",
    "timestamp.field": "Field for the timestamp of the record.",
    "static.field": "Field for static.value.",
}
_SCHEMAS: Final[Mapping[str, Schema]] = {
    "topic.field": STRING,
    "partition.field": INT32,
    "offset.field": INT64,
    "timestamp.field": timestamp(),
    "static.field": STRING,
}
_FIELDS: Final[Mapping[str, Callable[[str, Schema], InsertedField]]] = {
    "topic.field": InsertedField.topic,
    "partition.field": InsertedField.partition,
    "offset.field": lambda name, schema: InsertedField.offset(name, schema, PURPOSE),
    "timestamp.field": InsertedField.timestamp,
}


def _config_def() -> ConfigDef:
    config_def = ConfigDef()
    for key, doc in _DOCS.items():
        config_def.define(
            key,
            Type.STRING,
            default=None,
            importance=Importance.MEDIUM,
            doc=f"{doc} Append ! to the name to make the field required, or ? to make it optional "
            "(the default).",
        )
    config_def.define(
        "static.value",
        Type.STRING,
        default=None,
        importance=Importance.MEDIUM,
        doc="Value of static.field.",
    )
    return config_def.add(REPLACE_NULL_WITH_DEFAULT)


class InsertField(FieldTransformation[R]):
    """Appends fields to a struct or map. A null key or value is passed through unchanged."""

    config_def = _config_def()
    purpose = PURPOSE

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        names: dict[str, str] = {key: props[key] for key in _DOCS if props[key] is not None}
        if not names:
            raise ConfigError("", "No field insertion configured")
        if "static.field" in names and props["static.value"] is None:
            message = f"No value specified for static field: {props['static.field']}"
            raise ConfigValueError("static.value", None, message)
        inserted = []
        for key, name in names.items():
            schema = _SCHEMAS[key].replace(optional=not name.endswith("!"))
            name = name[:-1] if name.endswith(("!", "?")) else name
            if key == "static.field":
                inserted.append(InsertedField.constant(name, props["static.value"], schema))
            else:
                inserted.append(_FIELDS[key](name, schema))
        self.declare(
            FieldChanges(inserted=inserted),
            replace_null_with_default=props["replace.null.with.default"],
        )


InsertFieldKey, InsertFieldValue = for_both(InsertField)
