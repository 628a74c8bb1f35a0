"""Errors by which a broker refuses a client for good, whatever it asks for."""

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
"""The client itself would try again for ever."""


class RefusedError(ConnectError):
    """The cluster does not grant what is needed: an administrator has to."""


class NoTransactionsError(RefusedError):
    """The cluster grants no transactions."""
