"""`accepts`: declares the argument names of an operation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from connectors.iceberg.operation_request import OperationRequest

OperationFunction: TypeAlias = Callable[[OperationRequest], Any]


def accepts(*names: str) -> Callable[[OperationFunction], OperationFunction]:
    """Return a decorator that rejects arguments with other names."""

    def wrap(function: OperationFunction) -> OperationFunction:
        @functools.wraps(function)
        def checked(request: OperationRequest) -> Any:
            request.refuse_unknown(names, function.__name__.replace("_", "-"))
            return function(request)

        return checked

    return wrap
