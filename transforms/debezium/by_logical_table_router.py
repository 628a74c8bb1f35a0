"""`ByLogicalTableRouter`: routes events from several tables, such as shards, to one topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from connect_py.api.batch import Batch, Column
from connect_py.api.config import ConfigDef, Importance, Type, non_empty, one_of
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import R
from connect_py.api.schema import STRING, Schema, Struct, Value
from connect_py.api.schema import Type as SchemaType
from connect_py.api.transformation import Transformation
from connect_py.java.errors import IndexOutOfBoundsError
from connect_py.java.patterns import JavaPattern, Replacement
from transforms.debezium.envelope import is_envelope
from transforms.debezium.field_names import ADJUSTMENTS, adjusted_schema_name
from transforms.rebuild import members
from transforms.requirements import require_struct
from transforms.validators import java_regex

PURPOSE = "Updating schema"


class ByLogicalTableRouter(Transformation[R]):
    """Renames topics and schemas, and adds a key field that identifies the table.

    `apply` and `apply_batch` are both implemented directly, because `FieldTransformation` cannot
    change the key, the value, and the topic together.
    """

    key_field_default = "__dbz__physicalTableIdentifier"
    config_def = (
        ConfigDef()
        .define(
            "topic.regex",
            Type.STRING,
            validator=java_regex,
            importance=Importance.LOW,
            doc="Regular expression, in Java's syntax, that the whole name of a topic must match "
            "to be renamed.",
        )
        .define(
            "topic.replacement",
            Type.STRING,
            validator=non_empty,
            importance=Importance.LOW,
            doc="New topic. $1 and ${name} insert groups of the match.",
        )
        .define(
            "key.enforce.uniqueness",
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc="Add a field to the key that identifies the table.",
        )
        .define(
            "key.field.name",
            Type.STRING,
            default=None,
            importance=Importance.LOW,
            doc="Name of the field that identifies the table.",
        )
        .define(
            "key.field.regex",
            Type.STRING,
            default=None,
            importance=Importance.LOW,
            doc="Regular expression for the original topic. The value of the field is the topic "
            "after the replacement.",
        )
        .define(
            "key.field.replacement",
            Type.STRING,
            default=None,
            importance=Importance.LOW,
            doc="Replacement for key.field.regex. If neither is set, the value of the field is the "
            "original topic.",
        )
        .define(
            "schema.name.adjustment.mode",
            Type.STRING,
            default="none",
            importance=Importance.LOW,
            validator=one_of(*ADJUSTMENTS, case_insensitive=True),
            doc="Adjustment of the new schema names. none leaves them unchanged. avro replaces "
            "characters that are invalid in Avro with _; avro_unicode replaces them with _u and "
            "the code of the character.",
        )
        .define(
            "logical.table.cache.size",
            Type.INT,
            default=16,
            importance=Importance.LOW,
            doc="Number of tables whose schemas are cached.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        if bool(props["key.field.regex"]) != bool(props["key.field.replacement"]):
            raise ConfigError("", "key.field.regex and key.field.replacement must be set together")
        self._pattern = JavaPattern(props["topic.regex"])
        self._replacement = Replacement(props["topic.replacement"])
        self._mode: str = props["schema.name.adjustment.mode"].lower()
        self._unique: bool = props["key.enforce.uniqueness"]
        self._key_field: str = props["key.field.name"] or self.key_field_default
        self._key_pattern = (
            JavaPattern(props["key.field.regex"]) if props["key.field.regex"] else None
        )
        self._key_replacement = Replacement(props["key.field.replacement"] or "")
        size = 8 * max(1, props["logical.table.cache.size"])
        self._topic = lru_cache(maxsize=size)(self._routed)
        self._key_schema = lru_cache(maxsize=size)(self._renamed_key)
        self._value_schema = lru_cache(maxsize=size)(self._renamed_value)

    def _routed(self, topic: str) -> str | None:
        """Return the new topic name, or None if the original name does not match."""
        if not self._pattern.matches(topic):
            return None
        return self._pattern.replace_first(topic, self._replacement) or topic

    def _named(self, topic: str, kind: str) -> str:
        return adjusted_schema_name(self._mode, f"{topic}.{kind}")

    def _renamed_key(self, schema: Schema, topic: str) -> Schema:
        fields = members(schema)
        if self._unique:
            fields.append((self._key_field, STRING))
        return schema.replace(name=self._named(topic, "Key"), fields=fields, default=None)

    def _renamed_value(self, schema: Schema, topic: str) -> Schema:
        fields = [
            (
                f.name,
                f.schema.replace(name=self._named(topic, "Value"))
                if f.name in ("before", "after")
                else f.schema,
            )
            for f in schema.fields
        ]
        return schema.replace(name=self._named(topic, "Envelope"), fields=fields, default=None)

    def _identifier(self, topic: str) -> str:
        if self._key_pattern is None or not self._key_pattern.matches(topic):
            return topic
        return self._key_pattern.replace_first(topic, self._key_replacement)

    def apply(self, record: R) -> R | None:
        topic = self._topic(record.topic)
        if topic is None:
            return record
        key_schema, key = self._key(record, topic)
        routed = record.replace(topic=topic, key_schema=key_schema, key=key)
        if record.value is None or not is_envelope(record.value_schema):
            return routed
        schema = self._value_schema(record.value_schema, topic)
        values = [
            Struct(f.schema, value.values)
            if isinstance(value, Struct) and f.schema != value.schema
            else value
            for f, value in zip(schema.fields, record.value.values, strict=True)
        ]
        return routed.replace(value_schema=schema, value=Struct(schema, values))

    def _key(self, record: R, topic: str) -> tuple[Schema | None, Value]:
        if record.key is None:
            return None, None
        key = require_struct(record.key, PURPOSE, record.key_schema)
        schema = self._key_schema(key.schema, topic)
        values = list(key.values)
        if self._unique:
            values.append(self._identifier(record.topic))
        return schema, Struct(schema, values)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        from transforms.columns import blamed

        try:
            topic = self._topic(batch.topic)
            return [batch if topic is None else self._routed_batch(batch, topic)]
        except (DataError, IndexOutOfBoundsError) as error:
            raise blamed(batch, self.apply) from error

    def _routed_batch(self, batch: Batch, topic: str) -> Batch:
        from transforms.columns import kept_nulls

        column = batch.value
        key = self._key_column(batch, topic)
        if column.schema is None or not is_envelope(column.schema):
            return batch.replace(topic=topic, key=key)
        null, null_schema = kept_nulls(column)
        value = Column(
            self._value_schema(column.schema, topic),
            column.data,
            null,
            tombstone_schema=null_schema,
        )
        return batch.replace(topic=topic, key=key, value=value)

    def _key_column(self, batch: Batch, topic: str) -> Column:
        import pyarrow as pa

        from transforms.columns import blamed, children, constant, struct_column

        column = batch.key
        if column.null_count == len(batch):
            return Column(None, pa.nulls(len(batch)))
        if column.schema is None or column.schema.type is not SchemaType.STRUCT:
            raise blamed(batch, self.apply)
        schema = self._key_schema(column.schema, topic)
        null = column.is_null()
        parts = children(column.data)
        if self._unique:
            parts.append(constant(self._identifier(batch.topic), STRING, len(batch)))
        return Column(schema, struct_column(schema, parts, null, len(batch)), null)


class ToLogicalTopicRouter(ByLogicalTableRouter[R]):
    """`ByLogicalTableRouter` under its newer name, with a different default for the key field."""

    key_field_default = "__dbz__sourceIdentifier"
