"""Expression language for conditions on records: a safe subset of Python's syntax.

    value.op == 'u' and value.after.qty > 3
    topic in ('orders', 'lines') or matches(header['kind'], 'a.*')

The available names are `key`, `value`, `topic`, and `header`. Dots and brackets access members of
structs, maps, and lists; a missing member is None. The operators are comparisons, `and`, `or`,
`not`, `in`, `+ - * / // %`, and conditional expressions (`x if condition else y`). Only the
functions in `FUNCTIONS` can be called. Loops are not supported.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from connect_py.api.errors import DataError
from connect_py.api.record import ConnectRecord
from connect_py.java.patterns import JavaPattern
from connect_py.java.regex import JavaRegexError
from transforms.plain_values import plain

MAX_LENGTH: Final = 10_000  # characters in an expression

Scope = Mapping[str, Any]
Compiled = Callable[[Scope], Any]

NAMES: Final = frozenset({"key", "value", "topic", "header"})


def _matches(text: Any, pattern: str) -> bool:
    return isinstance(text, str) and JavaPattern(pattern).matches(text)


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "lower": lambda text: None if text is None else str(text).lower(),
    "upper": lambda text: None if text is None else str(text).upper(),
    "len": lambda value: 0 if value is None else len(value),
    "str": lambda value: str(value),
    "int": lambda value: int(value),
    "abs": lambda value: abs(value),
    "startswith": lambda text, start: isinstance(text, str) and text.startswith(start),
    "endswith": lambda text, end: isinstance(text, str) and text.endswith(end),
    "matches": _matches,
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: b is not None and a in b,
    ast.NotIn: lambda a, b: b is None or a not in b,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class ExpressionError(ValueError):
    """Error in an expression's source."""


class Expression:
    """A compiled expression."""

    def __init__(self, source: str) -> None:
        """Compile an expression; raise ExpressionError if it is invalid or not supported."""
        if len(source) > MAX_LENGTH:
            raise ExpressionError(f"the expression is longer than {MAX_LENGTH} characters")
        try:
            tree = ast.parse(source.strip(), mode="eval")
            self._run = _compiled(tree.body)
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise ExpressionError(f"invalid expression: {error}") from error
        self._source = source

    def __call__(self, record: ConnectRecord) -> Any:
        """Evaluate the expression for a record; raise DataError if an operation fails."""
        scope = {
            "key": plain(record.key),
            "value": plain(record.value),
            "topic": record.topic,
            "header": {h.key: plain(h.value) for h in record.headers},
        }
        try:
            return self._run(scope)
        except (TypeError, ValueError, ArithmeticError, IndexError, JavaRegexError) as error:
            raise DataError(f"{self._source}: {error}") from error


def _compiled(node: ast.expr) -> Compiled:
    compile_node = _NODES.get(type(node))
    if compile_node is None:
        raise ExpressionError(f"unsupported expression: {ast.unparse(node)}")
    return compile_node(node)


def _constant(node: ast.Constant) -> Compiled:
    value = node.value
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ExpressionError(f"unsupported constant: {value!r}")
    return lambda scope: value


def _name(node: ast.Name) -> Compiled:
    words = {"true": True, "false": False, "null": None}
    if node.id in words:
        word = words[node.id]
        return lambda scope: word
    if node.id not in NAMES:
        raise ExpressionError(f"unknown name {node.id}; expected one of {', '.join(sorted(NAMES))}")
    return lambda scope: scope[node.id]


def _attribute(node: ast.Attribute) -> Compiled:
    inside, name = _compiled(node.value), node.attr
    return lambda scope: _member(inside(scope), name)


def _subscript(node: ast.Subscript) -> Compiled:
    inside, index = _compiled(node.value), _compiled(node.slice)
    return lambda scope: _member(inside(scope), index(scope))


def _member(value: Any, name: Any) -> Any:
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, list | str) and isinstance(name, int):
        return value[name] if -len(value) <= name < len(value) else None
    return None


def _boolean(node: ast.BoolOp) -> Compiled:
    parts = [_compiled(v) for v in node.values]
    if isinstance(node.op, ast.And):
        return lambda scope: all(part(scope) for part in parts)
    return lambda scope: any(part(scope) for part in parts)


def _unary(node: ast.UnaryOp) -> Compiled:
    inside = _compiled(node.operand)
    if isinstance(node.op, ast.Not):
        return lambda scope: not inside(scope)
    if isinstance(node.op, ast.USub):
        return lambda scope: -inside(scope)
    raise ExpressionError(f"unsupported expression: {ast.unparse(node)}")


def _comparison(node: ast.Compare) -> Compiled:
    parts = [_compiled(v) for v in (node.left, *node.comparators)]
    tests = [_COMPARISONS[type(op)] for op in node.ops]
    ordering = (operator.lt, operator.le, operator.gt, operator.ge)

    def compare(scope: Scope) -> bool:
        values = [part(scope) for part in parts]
        for test, left, right in zip(tests, values, values[1:], strict=False):
            if test in ordering and (left is None or right is None):
                return False
            if not test(left, right):
                return False
        return True

    return compare


def _arithmetic(node: ast.BinOp) -> Compiled:
    left, right = _compiled(node.left), _compiled(node.right)
    if isinstance(node.op, ast.Mult):
        return lambda scope: _product(left(scope), right(scope))
    function = _ARITHMETIC.get(type(node.op))
    if function is None:
        raise ExpressionError(f"unsupported expression: {ast.unparse(node)}")

    def calculate(scope: Scope) -> Any:
        first, second = left(scope), right(scope)
        if isinstance(first, str) and function is operator.mod:
            raise TypeError("% requires numbers")
        return function(first, second)

    return calculate


def _product(left: Any, right: Any) -> Any:
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise TypeError("* requires numbers")
    return left * right


def _choice(node: ast.IfExp) -> Compiled:
    test, yes, no = _compiled(node.test), _compiled(node.body), _compiled(node.orelse)
    return lambda scope: yes(scope) if test(scope) else no(scope)


def _call(node: ast.Call) -> Compiled:
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS or node.keywords:
        names = ", ".join(sorted(FUNCTIONS))
        raise ExpressionError(f"unsupported call {ast.unparse(node)}; supported functions: {names}")
    function, arguments = FUNCTIONS[node.func.id], [_compiled(a) for a in node.args]
    return lambda scope: function(*(argument(scope) for argument in arguments))


def _sequence(node: ast.List | ast.Tuple) -> Compiled:
    items = [_compiled(item) for item in node.elts]
    return lambda scope: [item(scope) for item in items]


_NODES: Final[Mapping[type[ast.expr], Callable[[Any], Compiled]]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _unary,
    ast.Compare: _comparison,
    ast.BinOp: _arithmetic,
    ast.IfExp: _choice,
    ast.Call: _call,
    ast.List: _sequence,
    ast.Tuple: _sequence,
}
