"""Fences the producers of source tasks by acquiring their transactional IDs."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from connect_py.api.errors import ConnectError
from connect_py.kafka.client_config import ClientConfigs
from connect_py.kafka.client_log import client_log
from connect_py.plurals import pluralize

THREADS: Final = 8  # maximum number of producers that are fenced concurrently
FENCE_SECONDS: Final = 30.0
GRANT_SECONDS: Final = 5.0
GRANT_TRANSACTION_MS: Final = 10_000

log = logging.getLogger(__name__)


def fence_producers(clients: ClientConfigs, count: int) -> None:
    """Fence the producers of tasks 0 to `count - 1` of a connector, and abort their transactions.

    Blocks until all producers are fenced.

    Raises:
        ConnectError: A producer could not be fenced.
    """
    log.info("fencing %s of connector %s", pluralize(count, "producer"), clients.connector)
    with ThreadPoolExecutor(min(THREADS, max(count, 1)), "fence") as pool:
        for future in [pool.submit(_fence, clients, task) for task in range(count)]:
            future.result()


def _fence(clients: ClientConfigs, task: int) -> None:
    settings = clients.transactional_producer(task)
    try:
        Producer(settings, logger=client_log).init_transactions(FENCE_SECONDS)
    except KafkaException as error:
        raise ConnectError(
            f"failed to fence producer {settings['transactional.id']}: {error.args[0].str()}"
        ) from error


def why_not_granted(clients: ClientConfigs, transactional_id: str) -> str | None:
    """Return the reason why the client may not use a transactional ID. Blocks.

    Returns None if the client may use the ID or the cluster does not respond. The ID must not be in
    use, because the check acquires it.
    """
    settings = {
        **clients.producer(),
        "transactional.id": transactional_id,
        "enable.idempotence": True,
        "acks": "all",
        "transaction.timeout.ms": GRANT_TRANSACTION_MS,
        "delivery.timeout.ms": GRANT_TRANSACTION_MS,
    }
    settings.pop("message.timeout.ms", None)
    try:
        Producer(settings, logger=client_log).init_transactions(GRANT_SECONDS)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return f"not authorized to use transactional id '{transactional_id}'"
        log.warning(
            "failed to check the permissions for transactional id %s: %s",
            transactional_id,
            error.args[0].str(),
        )
    return None
