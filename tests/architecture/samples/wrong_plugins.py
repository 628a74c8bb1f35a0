"""Mistakes that the types of `connect_py.api` must detect; each is on a line marked `# mypy:
<code>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connect_py.api.record import R, SinkRecord, TopicPartition
from connect_py.api.task import SinkTask
from connect_py.api.transformation import Transformation


class TakesOneRecord(SinkTask):
    def start(self, props: Mapping[str, str]) -> None:
        self.context.group = "mine"  # mypy: attr-defined

    def put(self, record: SinkRecord) -> None:  # mypy: override
        record.topic = "other"  # mypy: misc

    def pre_commit(self, current: Mapping[TopicPartition, int]) -> Sequence[int]:  # mypy: override
        return [*current.values()]

    def stop(self) -> None:
        return


class ReturnsText(Transformation[R]):
    def configure(self, configs: Mapping[str, str]) -> None:
        return

    def apply(self, record: R) -> R | None:
        return record.value or "nothing", record.key  # mypy: return-value
