"""Transformations and predicates under the names that connector configurations use."""

from connect_py.api.plugin import Plugin, PluginKind

_STOCK = "org.apache.kafka.connect.transforms"
_DEBEZIUM = "io.debezium.transforms"
_ICEBERG_DEBEZIUM = "iceberg.debezium_transform:DebeziumTransform"


def _transformation(name: str, python: str) -> Plugin:
    return Plugin(PluginKind.TRANSFORMATION, name, f"transforms.{python}")


def _predicate(name: str, python: str) -> Plugin:
    return Plugin(PluginKind.PREDICATE, f"{_STOCK}.predicates.{name}", f"transforms.predicates.{python}")


PRELOAD = tuple(
    f"transforms.{module}"
    for module in (
        "debezium.extract_new_record_state", "iceberg.debezium_transform", "filter", "insert_field", "regex_router",
        "replace_field",
    )
)  # fmt: skip
PLUGINS = (
    _transformation(f"{_DEBEZIUM}.ExtractNewRecordState", "debezium.extract_new_record_state:ExtractNewRecordState"),
    _transformation(f"{_DEBEZIUM}.UnwrapFromEnvelope", "debezium.extract_new_record_state:ExtractNewRecordState"),
    _transformation("org.apache.iceberg.connect.transforms.DebeziumTransform", _ICEBERG_DEBEZIUM),
    _transformation("io.tabular.iceberg.connect.transforms.DebeziumTransform", _ICEBERG_DEBEZIUM),
    _transformation(f"{_STOCK}.Filter", "filter:Filter"),
    _transformation(f"{_STOCK}.InsertField$Key", "insert_field:InsertFieldKey"),
    _transformation(f"{_STOCK}.InsertField$Value", "insert_field:InsertFieldValue"),
    _transformation(f"{_STOCK}.RegexRouter", "regex_router:RegexRouter"),
    _transformation(f"{_STOCK}.ReplaceField$Key", "replace_field:ReplaceFieldKey"),
    _transformation(f"{_STOCK}.ReplaceField$Value", "replace_field:ReplaceFieldValue"),
    _predicate("HasHeaderKey", "has_header_key:HasHeaderKey"),
    _predicate("RecordIsTombstone", "record_is_tombstone:RecordIsTombstone"),
    _predicate("TopicNameMatches", "topic_name_matches:TopicNameMatches"),
)
