"""Writing to the channel topic, as far as the client answers without a cluster."""

from __future__ import annotations

from unittest.mock import MagicMock, patch

import pytest
from confluent_kafka import KafkaError, KafkaException

from connect_py.api.errors import ConnectError, RetriableError
from connectors.iceberg.coordinator import channel_topic
from connectors.iceberg.coordinator.channel_topic import ChannelReader, ChannelWriter
from connectors.iceberg.protocol.messages import EpochStarted
from connectors.iceberg.protocol.positions import Epoch


def test_a_message_that_is_too_large_fails_with_its_size() -> None:
    writer = ChannelWriter(lambda _: {"message.max.bytes": 1000}, "channel")
    writer.send([EpochStarted(Epoch(1, "n"))])
    with pytest.raises(
        ConnectError,
        match=r"topic channel: a EpochStarted of 2\d{3} bytes cannot be written: .*size",
    ):
        writer.send([EpochStarted(Epoch(1, "n" * 2000))])


def _reader(*answers: object) -> tuple[ChannelReader, MagicMock]:
    with patch.object(channel_topic, "Consumer") as made:
        reader = ChannelReader(lambda _: {}, "channel")
    client: MagicMock = made.return_value
    client.get_watermark_offsets.side_effect = answers
    return reader, client


def test_reader_retries_a_topic_that_was_just_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_topic, "RETRY_SECONDS", 0.0)
    unknown = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
    reader, client = _reader(unknown, unknown, (0, 7))
    reader.start_at_end()
    ((assigned,),) = client.assign.call_args.args
    assert assigned.offset == 7


def test_unreachable_cluster_is_asked_for_end_offsets_only_once() -> None:
    reader, client = _reader(KafkaException(KafkaError(KafkaError._TRANSPORT)))
    with pytest.raises(RetriableError):
        reader.start_at_end()
    assert client.get_watermark_offsets.call_count == 1
