"""Changes of single keys that meet each other, or a whole configuration: none is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path

import pytest
from fixtures.herder_fake_worker import FakeWorker, standalone_herder

from connect_py.herder.standalone_herder import StandaloneHerder
from connect_py.herder.work.status_publisher import StatusPublisher
from connect_py.worker.worker import ConnectorValidation

SECONDS = 30.0
SINK: dict[str, str | None] = {"name": "a", "connector.class": "DemoSink", "topics": "t"}


class SlowlyValidating(FakeWorker):
    """Validates as many configurations at the same time as it is told, and not one before."""

    def __init__(self, listener: StatusPublisher) -> None:
        super().__init__(listener)
        self.together = threading.Barrier(1)
        self.validated = 0

    def validate_connector(
        self, class_name: str, props: Mapping[str, str | None]
    ) -> Future[ConnectorValidation]:
        self.validated += 1
        if self.validated <= self.together.parties:
            self.together.wait(SECONDS)
        return super().validate_connector(class_name, props)


@pytest.fixture
def herder(tmp_path: Path) -> Iterator[StandaloneHerder]:
    herder = standalone_herder(tmp_path, SlowlyValidating)
    herder.start()
    herder.put_connector("a", SINK, replace=False).result(SECONDS)
    yield herder
    assert herder.stop(SECONDS)


def meet(herder: StandaloneHerder, parties: int) -> None:
    worker = herder._worker
    assert isinstance(worker, SlowlyValidating)
    worker.together, worker.validated = threading.Barrier(parties), 0


def test_patches_validated_at_the_same_time_are_both_applied(herder: StandaloneHerder) -> None:
    meet(herder, 2)
    first = herder.patch_connector("a", {"demo.x": "1"})
    second = herder.patch_connector("a", {"tasks.max": "2"})
    first.result(SECONDS), second.result(SECONDS)
    assert herder.connector_info("a").result(SECONDS).config == {
        **SINK,
        "demo.x": "1",
        "tasks.max": "2",
    }


def test_patch_meeting_a_new_configuration_applies_before_or_after_it(
    herder: StandaloneHerder,
) -> None:
    meet(herder, 2)
    patch = herder.patch_connector("a", {"demo.x": "1"})
    put = herder.put_connector("a", {**SINK, "topics": "other"}, replace=True)
    patch.result(SECONDS), put.result(SECONDS)
    config = herder.connector_info("a").result(SECONDS).config
    assert config in ({**SINK, "topics": "other"}, {**SINK, "topics": "other", "demo.x": "1"})
