"""The dead letters of the connector's table: look at them, have them tried again."""

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
from connectors.iceberg_tools.operations.argument_names import takes

SHOWN: Final = 50
MOST: Final = 500
COUNTED: Final = 100_000  # a table with more is for SQL
_LONGEST: Final = 20_000  # characters of a text that is shown
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


@takes("topic", "reason", "limit")
def dead_letters(request: OperationRequest) -> Any:
    """Counts by topic, reason and state, and the newest records with their errors."""
    config, limit = request.config, request.count("limit", SHOWN, MOST)
    topic, reason = request.text_or_none("topic"), request.text_or_none("reason")
    table = DeadLetterTable(config, request.services)
    heads = table.heads(COUNTED)
    written = _log(request, config.replay_topic).written() if config.replay_topic else set()
    found = list(zip(heads, states(heads, written), strict=True))
    counts = Counter((each.topic, each.reason, each.stage, state.value) for each, state in found)
    wanted = [
        pair
        for pair in found
        if topic in (None, pair[0].topic) and reason in (None, pair[0].reason)
    ]
    wanted.sort(key=lambda pair: pair[0].failed_at or _LONG_AGO, reverse=True)
    shown = {(each.place, each.attempt): state for each, state in wanted[:limit]}
    records = list(table.records({place for place, _ in shown})) if shown else []
    records = [each for each in records if (each.place, each.attempt) in shown]
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
            {"state": shown[each.place, each.attempt].value, **_plain(each)} for each in records
        ],
    }


def _plain(record: DeadLetterRecord) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(record.to_json(), default=str))
    return {name: text[:_LONGEST] if isinstance(text, str) else text for name, text in made.items()}


@takes("records", "only_missing_keys")
def replay(request: OperationRequest) -> Any:
    """Have records tried again: `records` are places, with another key, value or headers if they
    have some."""
    config = request.config
    if config.replay_topic is None:
        raise ConfigError(
            REPLAY_TOPIC, "is not set: the connector must read this topic to try dead letters again"
        )
    check_merged(config, only_missing_keys=request.flag("only_missing_keys"))
    fixes = {fix.place: fix for fix in map(Fix.of, _objects(request.arguments.get("records")))}
    found = latest(DeadLetterTable(config, request.services).records(fixes.keys()))
    missing = fixes.keys() - {each.place for each in found}
    for place in itertools.islice(sorted(missing), 1):
        raise ConfigError(
            "records", f"{'/'.join(map(str, place))} is no dead letter of this connector"
        )
    chosen = [replace(each, **fixes[each.place].changes) for each in found]
    count = _log(request, config.replay_topic).open().write(chosen)
    return {"replayed": count, "replayed_before": len(chosen) - count}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(each, dict) for each in value)
    ):
        raise ConfigError("records", "must be a list of records with topic, partition and offset")
    if len(value) > MOST:
        raise ConfigError("records", f"are more than {MOST}: use connect-py dlq replay")
    return value


def _log(request: OperationRequest, topic: str) -> ReplayLog:
    return ReplayLog(request.kafka(), topic, request.config.connector)


def _unordered(request: OperationRequest) -> bool:
    """Whether records are tried again only with `only_missing_keys`."""
    try:
        check_merged(request.config, only_missing_keys=False)
    except ConfigError:
        return True
    return False
