"""Concurrent changes of a configuration: none is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path

import pytest
from fixtures.herder_fake_worker import FakeWorker, herder_without_broker

from connect_py.herder.connect_herder import ConnectHerder
from connect_py.herder.local_work.status_publisher import StatusPublisher
from connect_py.worker.worker import ConnectorValidation

SECONDS = 30.0
SINK: dict[str, str | None] = {"name": "a", "connector.class": "DemoSink", "topics": "t"}


class ConcurrentValidations:
    """Makes the next validations wait for each other."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(1)
        self._remaining = 0

    def expect(self, count: int) -> None:
        self._barrier, self._remaining = threading.Barrier(count), count

    def wait(self) -> None:
        self._remaining -= 1
        if self._remaining >= 0:
            self._barrier.wait(SECONDS)


class SlowlyValidatingWorker(FakeWorker):
    def __init__(self, listener: StatusPublisher, validations: ConcurrentValidations) -> None:
        super().__init__(listener)
        self._validations = validations

    def validate_connector(
        self, class_name: str, props: Mapping[str, str | None]
    ) -> Future[ConnectorValidation]:
        self._validations.wait()
        return super().validate_connector(class_name, props)


@pytest.fixture
def validations() -> ConcurrentValidations:
    return ConcurrentValidations()


@pytest.fixture
def herder(tmp_path: Path, validations: ConcurrentValidations) -> Iterator[ConnectHerder]:
    herder = herder_without_broker(
        tmp_path, lambda publisher: SlowlyValidatingWorker(publisher, validations)
    )
    herder.start()
    herder.put_connector("a", SINK, replace=False).result(SECONDS)
    yield herder
    assert herder.stop(SECONDS)


def test_patches_validated_at_the_same_time_are_both_applied(
    herder: ConnectHerder, validations: ConcurrentValidations
) -> None:
    validations.expect(2)
    first = herder.patch_connector("a", {"demo.x": "1"})
    second = herder.patch_connector("a", {"tasks.max": "2"})
    first.result(SECONDS), second.result(SECONDS)
    assert herder.connector_info("a").result(SECONDS).config == {
        **SINK,
        "demo.x": "1",
        "tasks.max": "2",
    }


def test_patch_applies_before_or_after_a_concurrent_configuration(
    herder: ConnectHerder, validations: ConcurrentValidations
) -> None:
    validations.expect(2)
    patch = herder.patch_connector("a", {"demo.x": "1"})
    put = herder.put_connector("a", {**SINK, "topics": "other"}, replace=True)
    patch.result(SECONDS), put.result(SECONDS)
    config = herder.connector_info("a").result(SECONDS).config
    assert config in ({**SINK, "topics": "other"}, {**SINK, "topics": "other", "demo.x": "1"})
