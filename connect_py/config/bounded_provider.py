"""`BoundedProvider`: a config provider that may hang; its caller then goes on with an error."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Mapping, Set
from typing import Final

from connect_py.api.config_provider import ConfigData, ConfigProvider
from connect_py.api.errors import ConfigError

ANSWER_SECONDS: Final = 15.0


class BoundedProvider(ConfigProvider):
    """Asks the provider on a thread of its own. A path that hangs is asked again once its earlier
    question has ended.

    Safe for several threads if the provider is.
    """

    def __init__(
        self, name: str, provider: ConfigProvider, seconds: float = ANSWER_SECONDS
    ) -> None:
        self._name = name
        self._provider = provider
        self._seconds = seconds
        self._lock = threading.Lock()
        self._hanging: dict[str, _Question] = {}  # by path: no caller waits for these any more

    def configure(self, params: Mapping[str, str]) -> None:
        self._provider.configure(params)

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        """What the provider answers, or raises; ConfigError when it does neither in time."""
        with self._lock:
            earlier = self._hanging.get(path)
            if earlier is not None and not earlier.ended.is_set():
                raise ConfigError(
                    "", f"config provider {self._name} still does not answer an earlier question"
                )
            self._hanging.pop(path, None)
        question = _Question(self._provider, path, keys)
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run,
            args=(question.ask,),
            name=f"config-provider-{self._name}",
            daemon=True,
        ).start()
        if not question.ended.wait(self._seconds):
            with self._lock:
                self._hanging[path] = question
            raise ConfigError(
                "", f"config provider {self._name} did not answer within {self._seconds:g} s"
            )
        return question.answer()


class _Question:
    """One call of a provider."""

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
            raise TypeError("the provider answered nothing")
        return self._data
