"""`OffsetMetadata`: the metadata that the sink commits with consumer group offsets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from connectors.iceberg.protocol.positions import Bound, Epoch

MARK_VERSION = 1


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """Metadata that this connector commits with a group offset.

    An offset without metadata, for example after a reset by a tool, is ignored (rule 4 of the
    commit protocol).
    """

    epoch: Epoch
    generation: int
    topic_id: str  # ID of the topic that the task read
    rewind: int = 0  # number of the last rewind that the task applied in this epoch
    commits: str = ""  # encoded `LastCommits` that the coordinator sent with this offset
    bound: Bound | None = None  # None if the connector does not stop automatically

    def to_text(self) -> str:
        """Encode the metadata in about 100 bytes plus the commits. Brokers allow 4,096."""
        document: dict[str, Any] = {
            "connect-py": MARK_VERSION,
            "epoch": [self.epoch.number, self.epoch.nonce],
            "generation": self.generation,
            "topic": self.topic_id,
            "rewind": self.rewind,
        }
        if self.commits:
            document["commits"] = self.commits
        if self.bound is not None:
            document["bound"] = list(self.bound)
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str | None) -> OffsetMetadata | None:
        """Decode metadata, or return None if the sink did not write the string.

        Invalid strings do not raise an error.
        """
        if not text:
            return None
        try:
            document = json.loads(text)
            if int(document["connect-py"]) > MARK_VERSION:
                return None
            number, nonce = document["epoch"]
            epoch = Epoch(int(number), str(nonce))
            rewind = int(document.get("rewind", 0))  # not written by earlier versions
            commits = str(document.get("commits", ""))
            bound = _read_bound(document.get("bound"))
            return cls(
                epoch, int(document["generation"]), str(document["topic"]), rewind, commits, bound
            )
        except (ValueError, KeyError, TypeError):
            return None


def _read_bound(pair: Any) -> Bound | None:
    if pair is None:
        return None
    run, end = pair
    return Bound(str(run), int(end))


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Offset that the consumer group has committed for a partition."""

    offset: int
    mark: OffsetMetadata | None  # None if this connector did not commit the offset

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> GroupOffset:
        """Create a group offset from the values that Kafka returns."""
        return cls(offset, OffsetMetadata.from_text(metadata))
