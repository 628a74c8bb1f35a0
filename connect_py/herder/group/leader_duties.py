"""`GroupDuties`: the leader's duties other than assigning connectors and tasks."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.clock import Clock
from connect_py.config.worker_config import DistributedConfig
from connect_py.herder.group.group_stores import GroupStores
from connect_py.herder.group.session_keys import successor
from connect_py.herder.local_work.status_publisher import worker_id_of
from connect_py.herder.local_work.task_set import tasks_to_run
from connect_py.model import State, Status
from connect_py.storage.control_records import NO_ITEMS, Item, Items

FLUSH_SECONDS = 5.0


class GroupDuties:
    """Implements `LeaderDuties`. Used only on the leader's thread."""

    def __init__(self, config: DistributedConfig, stores: GroupStores, clock: Clock) -> None:
        self._config = config
        self._stores = stores
        self._clock = clock
        # configured connectors and tasks, and the config topic offset up to which they were read
        self._configured: tuple[Items, int] = (NO_ITEMS, -2)

    def configured(self) -> tuple[Items, int]:
        state = self._stores.config.snapshot()
        if self._configured[1] != state.offset:
            tasks = (task for name in state.configs for task in tasks_to_run(state, name))
            self._configured = frozenset((*state.configs, *tasks)), state.offset
        return self._configured

    def before_round(self, lost: Mapping[Item, str], generation: int) -> None:
        written = False
        for item, url in lost.items():
            status = self._stores.status.get(item)
            if status is not None and status.state is not State.UNASSIGNED:
                self._stores.status.put(
                    item, Status(State.UNASSIGNED, worker_id_of(url), generation)
                )
                written = True
        if written:
            self._stores.status.flush(FLUSH_SECONDS)

    def housekeeping(self) -> None:
        algorithm, bits, ttl_ms = (
            self._config[f"inter.worker.key.{name}"]
            for name in ("generation.algorithm", "size", "ttl.ms")
        )
        key = successor(
            self._stores.config.snapshot().session_key,
            algorithm,
            bits,
            ttl_ms,
            self._clock.time_ms(),
        )
        if key is not None:
            self._stores.config.put_session_key(key)
