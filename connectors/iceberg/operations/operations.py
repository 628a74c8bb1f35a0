"""`operate`: the operations of the sink by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from connect_py.api.errors import ConfigError, NotFoundError
from connectors.iceberg.operations import dead_letters, gate, preview, schema_approval, table_view
from connectors.iceberg.operations.operation_request import OperationRequest

# Operation -> the function that carries it out, and its arguments.
OPERATIONS: Final[Mapping[str, tuple[Callable[[OperationRequest], Any], tuple[str, ...]]]] = {
    "unpublished": (gate.unpublished, ("table",)),
    "publish": (gate.publish, ("table", "head")),
    "reject": (gate.reject, ("table", "head", "rows")),
    "table": (table_view.table, ("table", "limit")),
    "maintenance": (table_view.maintenance, ("table", "limit")),
    "change-table": (schema_approval.change_table, ("table", "change")),
    "dead-letters": (dead_letters.dead_letters, ("topic", "reason", "limit")),
    "replay": (dead_letters.replay, ("records", "only_missing_keys")),
    "try": (preview.preview, ("records", "newest")),
}


def operate(request: OperationRequest, operation: str) -> Any:
    """Carry an operation out; the answer is for JSON.

    Raises:
        NotFoundError: There is no such operation, or nothing to decide about.
        ConfigError: The arguments make no sense, or what is asked is not possible.
        ConnectError: The catalog, the storage or Kafka does not answer.
    """
    if operation not in OPERATIONS:
        raise NotFoundError(f"The Iceberg sink has no operation {operation}: it has {', '.join(OPERATIONS)}")
    function, known = OPERATIONS[operation]
    for name in request.arguments.keys() - set(known):
        raise ConfigError(name, f"is not known; {operation} takes {', '.join(known)}")
    return function(request)
