"""`takes`: the names of the arguments of an operation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from connectors.iceberg.operation_request import OperationRequest

OperationFunction: TypeAlias = Callable[[OperationRequest], Any]


def takes(*names: str) -> Callable[[OperationFunction], OperationFunction]:
    """Let an operation refuse arguments with other names than these."""

    def wrap(function: OperationFunction) -> OperationFunction:
        @functools.wraps(function)
        def checked(request: OperationRequest) -> Any:
            request.refuse_unknown(names, function.__name__.replace("_", "-"))
            return function(request)

        return checked

    return wrap
