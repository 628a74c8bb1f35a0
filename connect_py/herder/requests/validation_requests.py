"""`ValidationRequests`: validates configurations on a thread pool."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from connect_py.clock import Clock
from connect_py.futures import pass_on
from connect_py.herder.herder import Config, ConfigInfos, ConfigKeyInfo, StagedFuture
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.herder.validation.validator import Validator

THREADS = 4  # threads for validations and other blocking requests


class ValidationRequests:
    """Validates configurations without blocking the herder's thread. Thread-safe."""

    def __init__(self, validator: Validator, pool: ThreadPoolExecutor, clock: Clock) -> None:
        self._validator = validator
        self._pool = pool
        self._clock = clock

    def validate(self, config: Config) -> Future[ConfigInfos]:
        """See `Herder.validate`. The returned future reports this validation's stages."""
        stages, waiting = StageBoard(self._clock), ExitStack()
        waiting.enter_context(
            stages.stage("waiting for a new thread to become available for connector validation")
        )

        def validate() -> ConfigInfos:
            waiting.close()
            return self._validator.validate(config, stages)

        result: StagedFuture[ConfigInfos] = StagedFuture(stages.current)
        self._pool.submit(validate).add_done_callback(partial(pass_on, result))
        return result

    def plugin_config(self, plugin: str, version: str | None) -> Future[list[ConfigKeyInfo]]:
        """See `Herder.plugin_config`."""
        return self._pool.submit(self._validator.plugin_config, plugin, version)


def request_pool() -> ThreadPoolExecutor:
    """Create the herder's thread pool for requests that may block."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="validate")
