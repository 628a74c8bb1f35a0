"""Transformations and predicates under the names that connector configurations use."""

from connect_py.api.plugin import Plugin, PluginKind

_STOCK = "org.apache.kafka.connect.transforms"
_DEBEZIUM = "io.debezium.transforms"
_CONFLUENT = "io.confluent.connect.transforms"
_ICEBERG = ("org.apache.iceberg.connect.transforms", "io.tabular.iceberg.connect.transforms")


def _transformation(name: str, python: str) -> Plugin:
    return Plugin(PluginKind.TRANSFORMATION, name, f"transforms.{python}")


def _sides(name: str, module: str, package: str = _STOCK) -> list[Plugin]:
    """The two transformations of a name: for keys and for values."""
    return [_transformation(f"{package}.{name}${side}", f"{module}:{name}{side}") for side in ("Key", "Value")]


def _iceberg(name: str, module: str) -> list[Plugin]:
    """One of Iceberg's transformations under both of its names."""
    return [_transformation(f"{package}.{name}", f"iceberg.{module}:{name}") for package in _ICEBERG]


def _predicate(name: str, python: str) -> Plugin:
    return Plugin(PluginKind.PREDICATE, f"{_STOCK}.predicates.{name}", f"transforms.predicates.{python}")


PRELOAD = tuple(  # with what they import when the first batch comes
    f"transforms.{module}"
    for module in (
        "debezium.extract_new_record_state", "debezium.unwrap_columns", "iceberg.debezium_transform",
        "iceberg.debezium_columns", "filter", "insert_field", "insert_columns", "regex_router", "replace_field",
        "replace_columns",
    )
)  # fmt: skip
PLUGINS = (
    _transformation(f"{_DEBEZIUM}.ByLogicalTableRouter", "debezium.by_logical_table_router:ByLogicalTableRouter"),
    _transformation(f"{_DEBEZIUM}.ContentBasedRouter", "debezium.scripting:ContentBasedRouter"),
    _transformation(
        f"{_DEBEZIUM}.ExtractChangedRecordState", "debezium.extract_changed_record_state:ExtractChangedRecordState"
    ),
    _transformation(f"{_DEBEZIUM}.ExtractNewRecordState", "debezium.extract_new_record_state:ExtractNewRecordState"),
    _transformation(f"{_DEBEZIUM}.Filter", "debezium.scripting:Filter"),
    _transformation(f"{_DEBEZIUM}.HeaderToValue", "debezium.header_to_value:HeaderToValue"),
    _transformation(
        f"{_DEBEZIUM}.SchemaChangeEventFilter", "debezium.schema_change_event_filter:SchemaChangeEventFilter"
    ),
    _transformation(f"{_DEBEZIUM}.TimezoneConverter", "debezium.timezone_converter:TimezoneConverter"),
    _transformation(f"{_DEBEZIUM}.ToLogicalTopicRouter", "debezium.by_logical_table_router:ToLogicalTopicRouter"),
    _transformation(f"{_DEBEZIUM}.UnwrapFromEnvelope", "debezium.extract_new_record_state:ExtractNewRecordState"),
    _transformation(f"{_DEBEZIUM}.outbox.EventRouter", "debezium.event_router:EventRouter"),
    _transformation(
        "io.debezium.connector.mysql.transforms.ReadToInsertEvent", "debezium.read_to_insert_event:ReadToInsertEvent"
    ),
    *(
        _transformation(
            f"io.debezium.connector.mongodb.transforms.{name}",
            "debezium.extract_new_document_state:ExtractNewDocumentState",
        )
        for name in ("ExtractNewDocumentState", "UnwrapFromMongoDbEnvelope")
    ),
    _transformation(
        "io.debezium.connector.mongodb.transforms.outbox.MongoEventRouter",
        "debezium.mongo_event_router:MongoEventRouter",
    ),
    *_iceberg("CopyValue", "copy_value"),
    *_iceberg("DebeziumTransform", "debezium_transform"),
    *_iceberg("DmsTransform", "dms_transform"),
    *_iceberg("JsonToMapTransform", "json_to_map_transform"),
    *_iceberg("KafkaMetadataTransform", "kafka_metadata_transform"),
    *_iceberg("MongoDebeziumTransform", "mongo_debezium_transform"),
    *_sides("Drop", "confluent.drop", _CONFLUENT),
    *_sides("ExtractTopic", "confluent.extract_topic", _CONFLUENT),
    _transformation(f"{_CONFLUENT}.ExtractTopic$Header", "confluent.extract_topic:ExtractTopicHeader"),
    *_sides("Filter", "confluent.filter", _CONFLUENT),
    *_sides("GzipDecompress", "confluent.gzip_decompress", _CONFLUENT),
    _transformation(
        f"{_CONFLUENT}.MessageTimestampRouter", "confluent.message_timestamp_router:MessageTimestampRouter"
    ),
    _transformation(f"{_CONFLUENT}.TombstoneHandler", "confluent.tombstone_handler:TombstoneHandler"),
    *_sides("Cast", "cast"),
    _transformation(f"{_STOCK}.DropHeaders", "drop_headers:DropHeaders"),
    *_sides("ExtractField", "extract_field"),
    _transformation(f"{_STOCK}.Filter", "filter:Filter"),
    *_sides("Flatten", "flatten"),
    *_sides("HeaderFrom", "header_from"),
    *_sides("HoistField", "hoist_field"),
    *_sides("InsertField", "insert_field"),
    _transformation(f"{_STOCK}.InsertHeader", "insert_header:InsertHeader"),
    *_sides("MaskField", "mask_field"),
    _transformation(f"{_STOCK}.RegexRouter", "regex_router:RegexRouter"),
    *_sides("ReplaceField", "replace_field"),
    *_sides("SetSchemaMetadata", "set_schema_metadata"),
    *_sides("TimestampConverter", "timestamp_converter"),
    _transformation(f"{_STOCK}.TimestampRouter", "timestamp_router:TimestampRouter"),
    _transformation(f"{_STOCK}.ValueToKey", "value_to_key:ValueToKey"),
    _predicate("HasHeaderKey", "has_header_key:HasHeaderKey"),
    _predicate("RecordIsTombstone", "record_is_tombstone:RecordIsTombstone"),
    _predicate("TopicNameMatches", "topic_name_matches:TopicNameMatches"),
)
