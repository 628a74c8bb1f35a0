"""Time limit for calls to config providers, which may hang."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Mapping, Set
from typing import Final

from connect_py.api.config_provider import ConfigData, ConfigProvider
from connect_py.api.errors import ConfigError

ANSWER_SECONDS: Final = 15.0


class BoundedProvider(ConfigProvider):
    """Config provider that calls another provider with a time limit.

    Each call runs on a separate thread. While a call for a path hangs, further calls for this path
    fail immediately. Thread-safe if the other provider is thread-safe.
    """

    def __init__(
        self, name: str, provider: ConfigProvider, seconds: float = ANSWER_SECONDS
    ) -> None:
        self._name = name
        self._provider = provider
        self._seconds = seconds
        self._lock = threading.Lock()
        # calls that timed out and may still be running, keyed by path
        self._hanging: dict[str, _Call] = {}

    def configure(self, params: Mapping[str, str]) -> None:
        self._provider.configure(params)

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        """Return the provider's result or raise its error. Raises ConfigError on timeout."""
        with self._lock:
            earlier = self._hanging.get(path)
            if earlier is not None and not earlier.ended.is_set():
                raise ConfigError(
                    "", f"config provider {self._name} has not completed an earlier request"
                )
            self._hanging.pop(path, None)
        call = _Call(self._provider, path, keys)
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run,
            args=(call.ask,),
            name=f"config-provider-{self._name}",
            daemon=True,
        ).start()
        if not call.ended.wait(self._seconds):
            with self._lock:
                self._hanging[path] = call
            raise ConfigError(
                "", f"config provider {self._name} did not respond within {self._seconds:g} s"
            )
        return call.answer()


class _Call:
    """One call to a provider, and its outcome."""

    def __init__(self, provider: ConfigProvider, path: str, keys: Set[str]) -> None:
        self._provider = provider
        self._path = path
        self._keys = keys
        self.ended = threading.Event()
        self._data: ConfigData | None = None
        self._error: Exception | None = None

    def ask(self) -> None:
        try:
            self._data = self._provider.get(self._path, self._keys)
        except Exception as error:  # noqa: BLE001 - `answer` raises it
            self._error = error
        finally:
            self.ended.set()

    def answer(self) -> ConfigData:
        if self._error is not None:
            raise self._error
        if self._data is None:
            raise TypeError("the provider returned None")
        return self._data
