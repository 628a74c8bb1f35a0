"""List of the built-in transformation and predicate plugins, with their Java class names."""

import re
from collections.abc import Iterator

from connect_py.api.plugin import Plugin, PluginKind

_STOCK = "org.apache.kafka.connect.transforms"
_DEBEZIUM = "io.debezium.transforms"
_MONGODB = "io.debezium.connector.mongodb.transforms"
_CONFLUENT = "io.confluent.connect.transforms"
_ICEBERG = ("org.apache.iceberg.connect.transforms", "io.tabular.iceberg.connect.transforms")


def _plugins(
    package: str, folder: str, *names: str, kind: PluginKind = PluginKind.TRANSFORMATION
) -> Iterator[Plugin]:
    """Yield a plugin for each name, or a `$Key` and a `$Value` plugin if the name ends in `$`.

    A plugin's Python module has the plugin's name in snake case.
    """
    for name in names:
        base, dollar, _ = name.partition("$")
        module = re.sub("(?<!^)(?=[A-Z])", "_", base).lower()
        for side in ("Key", "Value") if dollar else ("",):
            yield Plugin(
                kind, f"{package}.{base}{dollar}{side}", f"transforms.{folder}{module}:{base}{side}"
            )


def _transformation(name: str, python: str) -> Plugin:
    """Return a transformation whose module does not follow the naming scheme of `_plugins`."""
    return Plugin(PluginKind.TRANSFORMATION, name, f"transforms.{python}")


PRELOAD = tuple(  # includes the modules that the first batch would otherwise import
    f"transforms.{module}"
    for module in (
        "debezium.extract_new_record_state",
        "debezium.unwrap_columns",
        "iceberg.debezium_transform",
        "iceberg.debezium_columns",
        "filter",
        "field_columns",
        "insert_field",
        "regex_router",
        "replace_field",
    )
)
PLUGINS = (
    *_plugins(
        _DEBEZIUM,
        "debezium.",
        "ByLogicalTableRouter",
        "ExtractChangedRecordState",
        "ExtractNewRecordState",
        "HeaderToValue",
        "SchemaChangeEventFilter",
        "TimezoneConverter",
    ),
    _transformation(f"{_DEBEZIUM}.ContentBasedRouter", "debezium.scripting:ContentBasedRouter"),
    _transformation(f"{_DEBEZIUM}.Filter", "debezium.scripting:Filter"),
    _transformation(
        f"{_DEBEZIUM}.ToLogicalTopicRouter", "debezium.by_logical_table_router:ToLogicalTopicRouter"
    ),
    _transformation(
        f"{_DEBEZIUM}.UnwrapFromEnvelope", "debezium.extract_new_record_state:ExtractNewRecordState"
    ),
    *_plugins(f"{_DEBEZIUM}.outbox", "debezium.", "EventRouter"),
    *_plugins("io.debezium.connector.mysql.transforms", "debezium.", "ReadToInsertEvent"),
    *_plugins(_MONGODB, "debezium.", "ExtractNewDocumentState"),
    _transformation(
        f"{_MONGODB}.UnwrapFromMongoDbEnvelope",
        "debezium.extract_new_document_state:ExtractNewDocumentState",
    ),
    *_plugins(f"{_MONGODB}.outbox", "debezium.", "MongoEventRouter"),
    *(
        plugin
        for package in _ICEBERG
        for plugin in _plugins(
            package,
            "iceberg.",
            "CopyValue",
            "DebeziumTransform",
            "DmsTransform",
            "JsonToMapTransform",
            "KafkaMetadataTransform",
            "MongoDebeziumTransform",
        )
    ),
    *_plugins(
        _CONFLUENT,
        "confluent.",
        "Drop$",
        "ExtractTopic$",
        "Filter$",
        "GzipDecompress$",
        "MessageTimestampRouter",
        "TombstoneHandler",
    ),
    _transformation(
        f"{_CONFLUENT}.ExtractTopic$Header", "confluent.extract_topic:ExtractTopicHeader"
    ),
    *_plugins(
        _STOCK,
        "",
        "Cast$",
        "DropHeaders",
        "ExtractField$",
        "Filter",
        "Flatten$",
        "HeaderFrom$",
        "HoistField$",
        "InsertField$",
        "InsertHeader",
        "MaskField$",
        "RegexRouter",
        "ReplaceField$",
        "SetSchemaMetadata$",
        "TimestampConverter$",
        "TimestampRouter",
        "ValueToKey",
    ),
    *_plugins(
        f"{_STOCK}.predicates",
        "predicates.",
        "HasHeaderKey",
        "RecordIsTombstone",
        "TopicNameMatches",
        kind=PluginKind.PREDICATE,
    ),
)
