"""Definitions of config keys with their type, default, validator, importance, and documentation.

The reference documentation and the validate endpoint are generated from these definitions. The
error messages are the same as in Java Kafka Connect because users and tools rely on their wording.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeAlias

from connect_py.api.errors import ConfigError

HIDDEN = "[hidden]"


class Type(Enum):
    """Type of a configuration value.

    Values are parsed to `bool`, `str`, `int`, `float`, `list[str]`, and `Password`.
    """

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"  # name of a plugin: Java class, Python class, or alias
    PASSWORD = "PASSWORD"


class Importance(Enum):
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(Enum):
    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class Password:
    """A secret that is printed as `[hidden]`."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT"

    def __reduce__(self) -> str:
        return "NO_DEFAULT"  # unpickles to the same object in other processes


NO_DEFAULT = _NoDefault()  # the key is required

Parsed: TypeAlias = Any  # a value of one of the Python types listed in `Type`, or None
Validator: TypeAlias = Callable[[str, Parsed], None]
"""Receives the key and the parsed value. Raises `ConfigValueError` if the value is invalid."""


class ConfigValueError(ConfigError):
    """A value is invalid.

    The message is `Invalid value x for configuration k: why`, as in Java Kafka Connect.
    """

    def __init__(self, key: str, value: object, why: str | None = None) -> None:
        super().__init__(key, why or "")
        printed = (
            "null" if value is None else HIDDEN if isinstance(value, Password) else _shown(value)
        )
        self.text = f"Invalid value {printed} for configuration {key}" + (f": {why}" if why else "")
        self.args = (self.text,)

    def __str__(self) -> str:
        return self.text


class MissingConfigError(ConfigError):
    """A required key is missing."""

    def __init__(self, key: str) -> None:
        super().__init__(key, "")
        self.args = (f'Missing required configuration "{key}" which has no default value.',)

    def __str__(self) -> str:
        return str(self.args[0])


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(str(v) for v in value) + "]"
    return str(value)


class Recommender(Protocol):
    """Recommends values for a key and determines whether it is visible.

    Both may depend on the values of other keys.
    """

    def valid_values(self, name: str, parsed: Mapping[str, Parsed]) -> Sequence[Parsed]: ...

    def visible(self, name: str, parsed: Mapping[str, Parsed]) -> bool: ...


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """Definition of one config key."""

    name: str
    type: Type
    default: Parsed
    validator: Validator | None
    importance: Importance
    doc: str
    group: str | None = None
    order_in_group: int = -1
    width: Width = Width.NONE
    display_name: str = ""
    dependents: tuple[str, ...] = ()
    recommender: Recommender | None = None
    internal: bool = False  # hidden in the documentation and in validate responses

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT


@dataclass(slots=True)
class ConfigValue:
    """Result of validating one key. `value` is None if it cannot be parsed."""

    name: str
    value: Parsed = None
    recommended_values: list[Parsed] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    visible: bool = True


class ConfigDef:
    """An ordered collection of `ConfigKey` objects."""

    def __init__(self, keys: Iterable[ConfigKey] = ()) -> None:
        self.keys: dict[str, ConfigKey] = {}
        for key in keys:
            self.add(key)

    def add(self, key: ConfigKey) -> ConfigDef:
        """Add a definition and return self. Raises ConfigError if the key is already defined."""
        if key.name in self.keys:
            raise ConfigError(key.name, "is defined twice")
        self.keys[key.name] = key
        return self

    def define(
        self,
        name: str,
        type: Type,  # noqa: A002 - Connect's name
        *,
        default: Parsed = NO_DEFAULT,
        validator: Validator | None = None,
        importance: Importance = Importance.MEDIUM,
        doc: str,
        group: str | None = None,
        order: int | None = None,
        width: Width = Width.NONE,
        display_name: str | None = None,
        dependents: Iterable[str] = (),
        recommender: Recommender | None = None,
        internal: bool = False,
    ) -> ConfigDef:
        """Add a key and return self. Without `default`, the key is required.

        `default` is either a string to be parsed or a parsed value. None means that the key has no
        value by default.
        """
        parsed = default
        if isinstance(default, str) and type is not Type.STRING:
            parsed = parse(name, default, type)
        if order is None:
            order = (
                -1 if group is None else 1 + sum(1 for k in self.keys.values() if k.group == group)
            )
        key = ConfigKey(
            name,
            type,
            parsed,
            validator,
            importance,
            doc,
            group,
            order,
            width,
            display_name or name,
            tuple(dependents),
            recommender,
            internal,
        )
        return self.add(key)

    def __iter__(self) -> Any:
        return iter(self.keys.values())

    def parse(self, props: Mapping[str, str | None]) -> dict[str, Parsed]:
        """Parse all defined keys. Unknown keys are ignored.

        Raises:
            ConfigValueError: A value cannot be parsed or is rejected by its validator.
            MissingConfigError: A required key is missing.
        """
        return {key.name: self._parse_one(key, props) for key in self.keys.values()}

    def _parse_one(self, key: ConfigKey, props: Mapping[str, str | None]) -> Parsed:
        if key.name in props:
            value = parse(key.name, props[key.name], key.type)
        elif not key.has_default:
            raise MissingConfigError(key.name)
        else:
            value = key.default
        if key.validator is not None:
            key.validator(key.name, value)
        return value

    def validate(self, props: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """Parse all defined keys, and return their values and errors in definition order.

        If a value cannot be parsed, its validator receives None, as in Java Kafka Connect. Such a
        value may therefore have two errors.
        """
        values: dict[str, ConfigValue] = {}
        parsed: dict[str, Parsed] = {}
        for key in self.keys.values():
            outcome = values[key.name] = ConfigValue(key.name)
            if key.name in props:
                try:
                    outcome.value = parse(key.name, props[key.name], key.type)
                except ConfigError as error:
                    outcome.errors.append(str(error))
            elif key.has_default:
                outcome.value = key.default
            else:
                outcome.errors.append(str(MissingConfigError(key.name)))
            if key.validator is not None:
                try:
                    key.validator(key.name, outcome.value)
                except ConfigError as error:
                    outcome.errors.append(str(error))
            parsed[key.name] = outcome.value
        for key in self.keys.values():
            if key.recommender is not None:
                values[key.name].recommended_values = list(
                    key.recommender.valid_values(key.name, parsed)
                )
                values[key.name].visible = key.recommender.visible(key.name, parsed)
        return values


_INTEGER_RANGES = {
    Type.SHORT: (-(2**15), 2**15 - 1),
    Type.INT: (-(2**31), 2**31 - 1),
    Type.LONG: (-(2**63), 2**63 - 1),
}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?")


def parse(name: str, value: object, type: Type) -> Parsed:  # noqa: A002 - Connect's name
    """Parse a value as Kafka's ConfigDef does. Surrounding whitespace is ignored. None stays None.

    Raises:
        ConfigValueError: The value does not have this type.
    """
    if value is None:
        return None
    text = value.strip() if isinstance(value, str) else value
    if type is Type.BOOLEAN:
        if isinstance(text, bool):
            return text
        if isinstance(text, str) and text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise ConfigValueError(name, value, "Expected value to be either true or false")
    if type is Type.PASSWORD:
        return text if isinstance(text, Password) else Password(str(text))
    if type is Type.LIST:
        if isinstance(text, list):
            return text
        return [] if text == "" else re.split(r"\s*,\s*", str(text))
    if type in _INTEGER_RANGES:
        low, high = _INTEGER_RANGES[type]
        if isinstance(text, int) and not isinstance(text, bool):
            number = text
        elif isinstance(text, str) and _INTEGER.fullmatch(text):
            number = int(text)
        else:
            raise ConfigValueError(name, value, f"Not a number of type {type.value}")
        if not low <= number <= high:
            raise ConfigValueError(name, value, f"Not a number of type {type.value}")
        return number
    if type is Type.DOUBLE:
        if isinstance(text, int | float) and not isinstance(text, bool):
            return float(text)
        if isinstance(text, str) and _DOUBLE.fullmatch(text):
            return float(text.rstrip("fFdD") if not text.endswith("Infinity") else text)
        raise ConfigValueError(name, value, "Not a number of type DOUBLE")
    return str(text)


def to_text(value: Parsed, type: Type) -> str | None:  # noqa: A002 - Connect's name
    """Return the string that represents a parsed value in responses.

    List items are joined with commas, and secrets are hidden.
    """
    if value is None or isinstance(value, _NoDefault):
        return None
    if type is Type.PASSWORD:
        return HIDDEN
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(str(v) for v in value)
    return str(value)


def at_least(low: float) -> Validator:
    """Return a validator that requires a number of at least `low`. It rejects null."""

    def check(name: str, value: Parsed) -> None:
        if value is None:
            raise ConfigValueError(name, None, "Value must be non-null")
        if value < low:
            raise ConfigValueError(name, value, f"Value must be at least {low}")

    return check


def between(low: float, high: float) -> Validator:
    """Return a validator that requires a number in [low, high]. It rejects null."""

    def check(name: str, value: Parsed) -> None:
        at_least(low)(name, value)
        if value > high:
            raise ConfigValueError(name, value, f"Value must be no more than {high}")

    return check


def one_of(*choices: str, case_insensitive: bool = False) -> Validator:
    """Return a validator that requires one of several strings."""

    def check(name: str, value: Parsed) -> None:
        if case_insensitive:
            if value is None or value.lower() not in {c.lower() for c in choices}:
                listed = ", ".join(c.upper() for c in choices)
                raise ConfigValueError(
                    name, value, f"String must be one of (case insensitive): {listed}"
                )
        elif value not in choices:
            raise ConfigValueError(name, value, f"String must be one of: {', '.join(choices)}")

    return check


def non_empty(name: str, value: Parsed) -> None:
    """Check that a value, if present, is not an empty string or list."""
    if value is not None and len(value) == 0:
        raise ConfigValueError(
            name, "" if isinstance(value, str) else value, "String must be non-empty"
        )


def regex(name: str, value: Parsed) -> None:
    """Check that a value is a valid regular expression."""
    if value is None:
        raise ConfigValueError(name, None, "Invalid regex: null")
    try:
        re.compile(value)
    except re.error as error:
        raise ConfigValueError(name, value, f"Invalid regex: {error}") from error


def unique_items(name: str, value: Parsed) -> None:
    """Check that a list has no duplicates and no empty items."""
    if not value:
        return
    if len(set(value)) != len(value):
        raise ConfigError("", f"Configuration '{name}' values must not be duplicated.")
    if any(item == "" for item in value):
        raise ConfigError("", f"Configuration '{name}' values must not be empty.")


def all_of(*validators: Validator) -> Validator:
    """Return a validator that accepts a value if all given validators accept it."""

    def check(name: str, value: Parsed) -> None:
        for validator in validators:
            validator(name, value)

    return check


def with_prefix(props: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the properties that start with a prefix, with the prefix removed."""
    return {key[len(prefix) :]: value for key, value in props.items() if key.startswith(prefix)}
