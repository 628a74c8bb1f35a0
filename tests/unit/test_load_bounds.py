"""Start and end of a load, from the options and the cluster's offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from connect_py.api.cluster import SinkCluster
from connect_py.api.errors import ConfigError
from connect_py.api.record import TopicPartition
from connectors.iceberg_tools.load.bounds import offsets_at

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Cluster:
    """Two partitions with offsets 5 to 20 and 0 to 7."""

    def client_config(self, _kind: str) -> dict[str, Any]:
        return {}

    def log_range(
        self, _: Iterable[TopicPartition], *, committed: bool
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        assert not committed
        return {FIRST: (5, 20), SECOND: (0, 7)}

    def offsets_at(
        self, _: Iterable[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int]:
        assert timestamp_ms == 1_767_322_800_000
        return {FIRST: 9, SECOND: 7}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", {FIRST: 5, SECOND: 0}),
        ("latest", {FIRST: 20, SECOND: 7}),
        ("2026-01-02T03:00:00Z", {FIRST: 9, SECOND: 7}),
        ("orders:0:11", {FIRST: 11}),
        ("orders:0:1,orders:1:99", {FIRST: 5, SECOND: 7}),  # no further than the log
    ],
)
def test_each_form_of_a_bound_becomes_offsets(
    text: str, expected: Mapping[TopicPartition, int]
) -> None:
    assert offsets_at(cast(SinkCluster, Cluster()), text, [FIRST, SECOND], "--to") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "orders:2:1",
        "orders:0",
        "2026-01-02T03:00:00",
        "2999-01-02T03:00:00Z",
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_bounds_that_are_none_name_their_option(text: str) -> None:
    with pytest.raises(ConfigError, match="--to"):
        offsets_at(cast(SinkCluster, Cluster()), text, [FIRST, SECOND], "--to")
