"""`ConnectorRules`: checks rules that involve several config keys or the worker's configuration."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping

from connect_py.api.config import ConfigValue
from connect_py.api.plugin import Plugin
from connect_py.api.task import ExactlyOnceSupport, TransactionBoundarySupport
from connect_py.config.worker_config import WorkerConfig
from connect_py.herder.herder import Config
from connect_py.herder.validation.validation_rows import Rows
from connect_py.kafka.client_config import exactly_once_sources
from connect_py.worker.worker import Worker

log = logging.getLogger(__name__)

VALIDATION_SECONDS = 90.0

_EXACTLY_ONCE_PROBLEMS: Mapping[object, str] = {
    None: (
        "The connector does not implement the API required for preflight validation of "
        "exactly-once source support. Please consult the documentation for the connector to "
        "determine whether it supports exactly-once semantics, "
        'and then consider reconfiguring the connector to use the value "requested" for this '
        "property (which will "
        "disable this preflight check and allow the connector to be created)."
    ),
    ExactlyOnceSupport.UNSUPPORTED: (
        "The connector does not support exactly-once semantics with the provided configuration."
    ),
}
_BOUNDARY_PROBLEMS: Mapping[object, str] = {
    TransactionBoundarySupport.UNSUPPORTED: (
        "The connector does not support connector-defined transaction boundaries with the given "
        "configuration. Please reconfigure it to use a different transaction boundary definition."
    ),
}


class ConnectorRules:
    """Checks a connector configuration and adds errors to its `Rows`.

    Thread-safe. Some checks block while they wait for the connector process.
    """

    def __init__(
        self,
        config: WorkerConfig,
        worker: Worker,
        why_no_transactions: Callable[[], str | None],
        is_configured: Callable[[str], bool],
    ) -> None:
        """Create the rules. For the arguments, see `Validator`."""
        self._config = config
        self._worker = worker
        self._why_no_transactions = why_no_transactions
        self._is_configured = is_configured

    def check_sink(self, rows: Rows, props: Config) -> None:
        topics = [topic for topic in rows.values["topics"].value or () if topic]
        pattern = (props.get("topics.regex") or "").strip()
        dead_letters = (props.get("errors.deadletterqueue.topic.name") or "").strip()
        error = None
        if topics and pattern:
            error = "topics and topics.regex are mutually exclusive options, but both are set."
        elif not topics and not pattern:
            error = "Must configure one of topics or topics.regex"
        if error is not None:
            rows.error("topics", error)
            rows.error("topics.regex", error)
        elif dead_letters in topics:
            rows.error(
                "topics",
                f"The DLQ topic '{dead_letters}' may not be included in the list of topics "
                f"('topics=[{', '.join(topics)}]') consumed by the connector",
            )
        elif dead_letters and pattern and _matches(pattern, dead_letters):
            rows.error(
                "topics.regex",
                f"The DLQ topic '{dead_letters}' may not be matched by the regex for the topics "
                f"('topics.regex={pattern}') consumed by the connector",
            )
        group, override = self._config.group_id, "consumer.override.group.id"
        if group is None:
            return
        if override in props:
            rows.values.setdefault(override, ConfigValue(override, props[override]))
            if props[override] == group:
                rows.error(
                    override, f"Consumer group {group} conflicts with Connect worker group {group}"
                )
        elif f"connect-{props.get('name')}" == group:
            rows.error(
                "name",
                f"Consumer group for sink connector named {props['name']} conflicts with Connect "
                f"worker group {group}",
            )

    def check_source(self, rows: Rows, plugin: Plugin, props: Config) -> None:
        """Check the transactional settings of a source connector.

        The worker and the connector class must support them.
        """
        if self._config.group_id is None:
            # a standalone worker does not support transactions; Java does not check this either
            return
        name = "exactly.once.support"
        if not rows.values[name].errors and str(rows.values[name].value).lower() == "required":
            if not exactly_once_sources(self._config.props):
                rows.error(name, "This worker does not have exactly-once source support enabled.")
            problem = self._check_answer(
                plugin, props, "exactly_once_support", _EXACTLY_ONCE_PROBLEMS
            )
            if problem is not None:
                rows.error(name, problem)
        name = "transaction.boundary"
        if not rows.values[name].errors and str(rows.values[name].value).lower() == "connector":
            problem = self._check_answer(
                plugin, props, "can_define_transaction_boundaries", _BOUNDARY_PROBLEMS
            )
            if problem is not None:
                rows.error(name, problem)

    def check_transactions(self, rows: Rows, plugin: Plugin, props: Config) -> None:
        """Check that the cluster permits the transactions that a connector needs.

        Without this permission, all of the connector's tasks would fail.
        """
        non_null_props = {key: value for key, value in props.items() if value is not None}
        name = non_null_props.get("name", "")
        try:
            transactional_id = self._worker.call_connector(
                plugin, "transactional_id", non_null_props
            ).result(VALIDATION_SECONDS)
            if transactional_id is None:
                return
            reason = self._why_no_transactions()
            # for an existing connector, checking the ID would fence its tasks
            if reason is None and not self._is_configured(name):
                reason = self._worker.why_not_granted(
                    name, non_null_props, transactional_id
                ).result(VALIDATION_SECONDS)
        except Exception:
            log.exception("failed to check the transactional id of %s", plugin.name)
            return
        if reason is not None:
            rows.error(
                "connector.class",
                f"The connector writes in transactions, but the cluster denies them: {reason}. "
                f"Its tasks need TransactionalId '{transactional_id}' "
                "(required ACL: Write and Describe)",
            )

    def _check_answer(
        self, plugin: Plugin, props: Config, method: str, problems: Mapping[object, str]
    ) -> str | None:
        """Call a method of the connector, and return the error for its result, or None."""
        non_null_props = {key: value for key, value in props.items() if value is not None}
        try:
            response = self._worker.call_connector(plugin, method, non_null_props).result(
                VALIDATION_SECONDS
            )
        except Exception as error:
            log.exception("%s of %s failed", method, plugin.name)
            message = str(error).strip()
            return "An unexpected error occurred during validation" + (
                f": {message}" if message else "; please see the worker logs for more details."
            )
        return problems.get(response)


def _matches(pattern: str, topic: str) -> bool:
    try:
        return re.fullmatch(pattern, topic) is not None
    except re.error:
        return False  # the error is reported for `topics.regex` itself
