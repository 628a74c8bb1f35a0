"""`GroupMember`: this worker's membership in the consumer group `{group.id}` on the control topic.

The owner of partition 0 is a candidate for leadership. It is the leader only if it also owns the
leader's transactional producer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from connect_py.kafka.authorization_errors import REFUSALS
from connect_py.kafka.client_log import client_log
from connect_py.storage.storage_clients import Settings

POLL_SLICE_SECONDS = 0.2  # a poll cannot be interrupted, so it may delay `stop` this long
LEAVE_SECONDS = 5.0


class GroupMember:
    """Joins the consumer group and polls it on a dedicated thread until it is stopped."""

    def __init__(
        self,
        topic: str,
        settings: Settings,
        on_change: Callable[[], None],
        on_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create the member without joining.

        Args:
            on_change: Called on the member's thread when `owns`, `joined`, or `problem` changes.
            on_refused: Called on the member's thread with a message if the broker does not
                authorize this worker to join.
        """
        self._on_refused = on_refused
        self._topic = topic
        self._settings = settings
        self._on_change = on_change
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group-member", daemon=True)
        self.owns = False  # True if this worker owns partition 0
        self.joined = False  # True if the group has assigned partitions to this worker
        self.problem: str | None = None  # reason why this worker cannot be a member

    def start(self) -> None:
        """Start joining in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Leave the group and stop the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(LEAVE_SECONDS)

    def _run(self) -> None:
        try:
            consumer = Consumer(self._settings, logger=client_log)
        except KafkaException as error:  # the combination of settings is invalid
            self._fail(f"failed to join the worker group: {error.args[0].str()}")
            return
        try:
            consumer.subscribe(
                [self._topic],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._revoked,
            )
            while not self._stopping.is_set():
                message = consumer.poll(POLL_SLICE_SECONDS)
                reported = None if message is None else message.error()
                if reported is not None:
                    self._handle_error(reported)
        except KafkaException as error:
            self._fail(f"failed to join the worker group: {error.args[0].str()}")
        finally:
            consumer.close()

    def _handle_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
            self._fail(
                f"the worker group '{self._settings['group.id']}' is in use by members with a "
                "different protocol, probably Java workers; stop all of them before starting "
                "this worker"
            )
        elif error.fatal():
            self._fail(f"failed to join the worker group: {error.str()}")
        else:
            client_log.warning("worker group: %s", error.str())
            if error.code() in REFUSALS:
                group = self._settings["group.id"]
                self._on_refused(
                    f"not authorized to join group '{group}': {error.str()} (required ACL: Read "
                    f"on Group '{group}')"
                )

    def _fail(self, problem: str) -> None:
        self.problem = problem
        self.owns = False
        self._on_change()

    def _assigned(self, consumer: Consumer, partitions: list[KafkaTopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)  # a separate consumer reads the control topic
            self.owns = True
        self.joined = True
        self._on_change()

    def _revoked(self, consumer: Consumer, partitions: list[KafkaTopicPartition]) -> None:
        if partitions:
            self.owns = False
            self._on_change()
