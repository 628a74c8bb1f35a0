"""`InProcessTaskHost`: a task on a thread of this process, for tests and debuggers."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from connect_py.clock import Clock
from connect_py.metrics.task_report import TaskReport
from connect_py.model import TargetState
from connect_py.task.messages import FromTask, TaskSpec
from connect_py.task.task_control import TaskControl
from connect_py.task.task_main import TaskMain
from connect_py.worker.task_host import TaskHostListener, pass_on


class InProcessTaskHost:
    """Satisfies `TaskHost`, except that `cancel` can only stop listening to a task that hangs."""

    def __init__(self, spec: TaskSpec, listener: TaskHostListener, clock: Clock) -> None:
        self._spec = spec
        self._listener = listener
        self._silenced = False
        self._control = TaskControl(spec.target, self._handle)
        self._main = TaskMain(spec, self._control, clock)
        self._thread = threading.Thread(target=self._main.execute, name=f"task-thread-{spec.id}", daemon=True)

    @property
    def spec(self) -> TaskSpec:
        return self._spec

    @property
    def report(self) -> TaskReport:
        return self._main.report()

    def start(self) -> None:
        self._thread.start()

    def set_target_state(self, target: TargetState) -> None:
        self._control.set_target(target)

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        """Levels of this process are its own business."""

    def extend_lease(self, until: float | None) -> None:
        """A thread of the worker does not outlive it."""

    def stop(self) -> None:
        self._control.stop()

    def cancel(self) -> None:
        self._silenced = True
        self._control.stop()

    def wait(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _handle(self, message: FromTask) -> None:
        if self._silenced:
            return
        pass_on(message, self._spec.id, self._listener, self._control.answer)
