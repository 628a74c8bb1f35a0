"""Errors that mean that a broker permanently denies a client's requests."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from connect_py.api.errors import ConnectError

REFUSALS: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Error codes for which the Kafka client would retry indefinitely."""


class RefusedError(ConnectError):
    """The cluster denies a required permission, which an administrator must grant."""


class NoTransactionsError(RefusedError):
    """The cluster denies the use of transactions."""
