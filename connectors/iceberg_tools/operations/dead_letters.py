"""List and replay the dead-letter records in the connector's table."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.keys import REPLAY_TOPIC
from connectors.iceberg.operation_request import OperationRequest
from connectors.iceberg_tools.dead_letters.dead_letter_record import (
    DeadLetterRecord,
    Fix,
    latest,
    states,
)
from connectors.iceberg_tools.dead_letters.dead_letter_table import DeadLetterTable
from connectors.iceberg_tools.dead_letters.replay_log import ReplayLog
from connectors.iceberg_tools.dead_letters.replay_rules import check_merged
from connectors.iceberg_tools.operations.argument_names import accepts

SHOWN: Final = 50
MOST: Final = 500
COUNTED: Final = 100_000  # maximum number of counted records; query larger tables with SQL
_LONGEST: Final = 20_000  # maximum length of a string in the response
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


@accepts("topic", "reason", "limit")
def dead_letters(request: OperationRequest) -> Any:
    """Return counts by topic, reason, stage, and state, followed by the newest records."""
    config, limit = request.config, request.count("limit", SHOWN, MOST)
    topic, reason = request.text_or_none("topic"), request.text_or_none("reason")
    table = DeadLetterTable(config, request.services)
    heads = table.heads(COUNTED)
    written = _log(request, config.replay_topic).written() if config.replay_topic else set()
    records_with_state = list(zip(heads, states(heads, written), strict=True))
    counts = Counter(
        (each.topic, each.reason, each.stage, state.value) for each, state in records_with_state
    )
    selected = [
        pair
        for pair in records_with_state
        if topic in (None, pair[0].topic) and reason in (None, pair[0].reason)
    ]
    selected.sort(key=lambda pair: pair[0].failed_at or _LONG_AGO, reverse=True)
    states_by_attempt = {(each.record_id, each.attempt): state for each, state in selected[:limit]}
    records = (
        list(table.records({record_id for record_id, _ in states_by_attempt}))
        if states_by_attempt
        else []
    )
    records = [each for each in records if (each.record_id, each.attempt) in states_by_attempt]
    records.sort(key=lambda each: each.failed_at or _LONG_AGO, reverse=True)
    return {
        "table": config.dead_letter_table,
        "replay_topic": config.replay_topic,
        "count": len(heads),
        "more": len(heads) == COUNTED,
        "needs_only_missing_keys": _unordered(request),
        "groups": [
            dict(zip(("topic", "reason", "stage", "state", "count"), (*group, count), strict=True))
            for group, count in sorted(counts.items())
        ],
        "records": [
            {"state": states_by_attempt[each.record_id, each.attempt].value, **_plain(each)}
            for each in records
        ],
    }


def _plain(record: DeadLetterRecord) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(record.to_json(), default=str))
    return {
        name: value[:_LONGEST] if isinstance(value, str) else value
        for name, value in document.items()
    }


@accepts("records", "only_missing_keys")
def replay(request: OperationRequest) -> Any:
    """Replay dead-letter records.

    Each item in `records` is a topic, partition, and offset, optionally with a replacement key,
    value, or headers.
    """
    config = request.config
    if config.replay_topic is None:
        raise ConfigError(
            REPLAY_TOPIC,
            "must be set, because the connector replays dead-letter records from this topic",
        )
    check_merged(config, only_missing_keys=request.flag("only_missing_keys"))
    fixes = {fix.record_id: fix for fix in map(Fix.of, _objects(request.arguments.get("records")))}
    records = latest(DeadLetterTable(config, request.services).records(fixes.keys()))
    missing = fixes.keys() - {each.record_id for each in records}
    for record_id in itertools.islice(sorted(missing), 1):
        raise ConfigError(
            "records",
            f"{'/'.join(map(str, record_id))} is not a dead-letter record of this connector",
        )
    chosen = [replace(each, **fixes[each.record_id].changes) for each in records]
    count = _log(request, config.replay_topic).open().write(chosen)
    return {"replayed": count, "replayed_before": len(chosen) - count}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(each, dict) for each in value)
    ):
        raise ConfigError("records", "must be a list of records with topic, partition, and offset")
    if len(value) > MOST:
        raise ConfigError(
            "records", f"must not exceed {MOST} records; use connect-py dlq replay instead"
        )
    return value


def _log(request: OperationRequest, topic: str) -> ReplayLog:
    return ReplayLog(request.kafka(), topic, request.config.connector)


def _unordered(request: OperationRequest) -> bool:
    """Return True if records can only be replayed with `only_missing_keys`."""
    try:
        check_merged(request.config, only_missing_keys=False)
    except ConfigError:
        return True
    return False
