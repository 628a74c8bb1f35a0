"""The metadata string that our group offset commits carry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from connectors.iceberg.protocol.bounds import Bound
from connectors.iceberg.protocol.positions import Epoch

MARK_VERSION = 1


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """Says that this connector committed the offset, and under what circumstances.

    An offset without it (lost, reset by a tool) counts for nothing; see rule 4.
    """

    epoch: Epoch
    generation: int
    topic_id: str  # of the topic that the task staged under
    rewind: int = 0  # number of the last rewind of this epoch that the task followed
    commits: str = ""  # text of `LastCommits` as it was when the offset was released
    bound: Bound | None = None  # where the connector stops by itself

    def to_text(self) -> str:
        """At most a hundred bytes and the commits: brokers allow 4096."""
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
        """None when the text is not ours, whatever it is; never raises."""
        if not text:
            return None
        try:
            document = json.loads(text)
            if int(document["connect-py"]) > MARK_VERSION:
                return None
            number, nonce = document["epoch"]
            epoch = Epoch(int(number), str(nonce))
            rewind = int(document.get("rewind", 0))  # marks of before know of none
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
    """What the consumer group holds for a partition."""

    offset: int
    mark: OffsetMetadata | None  # None: not committed by this connector

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> GroupOffset:
        return cls(offset, OffsetMetadata.from_text(metadata))
