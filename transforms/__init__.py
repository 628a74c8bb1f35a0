"""Transformations and predicates under the names that connector configurations use."""

from connect_py.api.plugin import Plugin, PluginKind

_STOCK = "org.apache.kafka.connect.transforms"
_DEBEZIUM = "io.debezium.transforms"


def _transformation(name: str, python: str) -> Plugin:
    return Plugin(PluginKind.TRANSFORMATION, name, f"transforms.{python}")


def _predicate(name: str, python: str) -> Plugin:
    return Plugin(PluginKind.PREDICATE, f"{_STOCK}.predicates.{name}", f"transforms.predicates.{python}")


PLUGINS = (
    _transformation(f"{_DEBEZIUM}.ExtractNewRecordState", "debezium.extract_new_record_state:ExtractNewRecordState"),
    _transformation(f"{_DEBEZIUM}.UnwrapFromEnvelope", "debezium.extract_new_record_state:ExtractNewRecordState"),
)
