"""What `InsertField` inserts, in rows and in columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from connect_py.api.config import ConfigValueError, Parsed
from connect_py.api.errors import ConfigError
from connect_py.api.schema import INT32, INT64, STRING, Schema, timestamp
from transforms.by_schema import BySchema
from transforms.rebuild import members, rebuilt


class Origin(Enum):
    """Where an inserted value comes from; the values are the configuration keys, in the order of
    insertion."""

    TOPIC = "topic.field"
    PARTITION = "partition.field"
    OFFSET = "offset.field"
    TIMESTAMP = "timestamp.field"
    STATIC = "static.field"


_SCHEMAS: Mapping[Origin, Schema] = {
    Origin.TOPIC: STRING,
    Origin.PARTITION: INT32,
    Origin.OFFSET: INT64,
    Origin.TIMESTAMP: timestamp(),
    Origin.STATIC: STRING,
}


@dataclass(frozen=True, slots=True)
class Insertion:
    """One field to insert."""

    origin: Origin
    name: str
    schema: Schema

    @classmethod
    def parse(cls, origin: Origin, text: str) -> Insertion:
        """Read `name`, `name?` (optional as well) or `name!` (required)."""
        required = text.endswith("!")
        name = text[:-1] if text.endswith(("!", "?")) else text
        return cls(origin, name, _SCHEMAS[origin].replace(optional=not required))


class Insertions:
    """The fields to insert, and the schemas that they make."""

    def __init__(self, props: Mapping[str, Parsed]) -> None:
        """ConfigError: there is nothing to insert, or a constant without its value."""
        self.fields = tuple(
            Insertion.parse(origin, props[origin.value])
            for origin in Origin
            if props[origin.value] is not None
        )
        if not self.fields:
            raise ConfigError("", "No field insertion configured")
        if props["static.field"] is not None and props["static.value"] is None:
            why = f"No value specified for static field: {props['static.field']}"
            raise ConfigValueError("static.value", None, why)
        self.static_value: str = props["static.value"]
        self.replace_null_with_default: bool = props["replace.null.with.default"]
        self.result = BySchema(self._result)

    def _result(self, schema: Schema) -> Schema:
        return rebuilt(schema, [*members(schema), *((i.name, i.schema) for i in self.fields)])
