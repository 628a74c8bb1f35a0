"""Writing to the channel topic, as far as the client answers without a cluster."""

from __future__ import annotations

import pytest

from connect_py.api.errors import ConnectError
from connectors.iceberg.channel import ChannelWriter
from connectors.iceberg.protocol.messages import EpochStarted
from connectors.iceberg.protocol.positions import Epoch


def test_a_message_that_is_too_large_fails_with_its_size() -> None:
    writer = ChannelWriter(lambda _: {"message.max.bytes": 1000}, "channel")
    writer.send([EpochStarted(Epoch(1, "n"))])
    with pytest.raises(ConnectError, match=r"topic channel: a EpochStarted of 2\d{3} bytes cannot be written: .*size"):
        writer.send([EpochStarted(Epoch(1, "n" * 2000))])
