"""`ConfigDef`: every configuration key defined once, with its type, default, validator, importance
and a sentence.

Reference documentation and the validate endpoint come from these definitions. Texts of errors are
Connect's, because users and tools match on them.
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
    """The types of configuration values; Python forms: `bool`, `str`, `int`, `float`, `list[str]`,
    and `Password`."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"  # a plugin name: Java class, Python class or alias, as text
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
    """A secret: prints as `[hidden]`; `value` is the text."""

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
        return "NO_DEFAULT"  # stays the one object when definitions travel between processes


NO_DEFAULT = _NoDefault()  # the key is required

Parsed: TypeAlias = Any  # one of the Python forms of `Type`, or None
Validator: TypeAlias = Callable[[str, Parsed], None]
"""Takes key and parsed value; raises `ConfigValueError` when the value is not acceptable."""


class ConfigValueError(ConfigError):
    """A value is not acceptable, in Connect's words: `Invalid value x for configuration k: why`."""

    def __init__(self, key: str, value: object, why: str | None = None) -> None:
        super().__init__(key, why or "")
        shown = (
            "null" if value is None else HIDDEN if isinstance(value, Password) else _shown(value)
        )
        self.text = f"Invalid value {shown} for configuration {key}" + (f": {why}" if why else "")
        self.args = (self.text,)

    def __str__(self) -> str:
        return self.text


class MissingConfigError(ConfigError):
    """A required key is absent."""

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
    """Suggests values for a key, given the other parsed values; and says whether the key should be
    shown."""

    def valid_values(self, name: str, parsed: Mapping[str, Parsed]) -> Sequence[Parsed]: ...

    def visible(self, name: str, parsed: Mapping[str, Parsed]) -> bool: ...


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """The definition of one key."""

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
    internal: bool = False  # not shown in documentation or by validate

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT


@dataclass(slots=True)
class ConfigValue:
    """The outcome of validating one key: parsed value (None when unparsable), errors,
    recommendations."""

    name: str
    value: Parsed = None
    recommended_values: list[Parsed] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    visible: bool = True


class ConfigDef:
    """An ordered collection of `ConfigKey`."""

    def __init__(self, keys: Iterable[ConfigKey] = ()) -> None:
        self.keys: dict[str, ConfigKey] = {}
        for key in keys:
            self.add(key)

    def add(self, key: ConfigKey) -> ConfigDef:
        """Add a definition; ConfigError when the name is taken."""
        if key.name in self.keys:
            raise ConfigError(key.name, "is defined twice")
        self.keys[key.name] = key
        return self

    def define(
        self,
        name: str,
        type: Type,  # noqa: A002 - Connect's word
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
        """Add a key and return self. Without `default` the key is required.

        `default` may be text, which is parsed, or an already parsed value; None means "no value".
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
        """Parse every defined key; unknown keys are left alone.

        Raises:
            ConfigValueError: A value does not parse or is refused by its validator.
            MissingConfigError: A required key is absent.
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
        """Parse leniently and collect what is wrong, key by key, in order of definition.

        An unparsable value is also shown to the validator as null, as Connect does, so it may have
        two errors.
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


def parse(name: str, value: object, type: Type) -> Parsed:  # noqa: A002 - Connect's word
    """Parse one value the way Kafka's ConfigDef does: blanks around it are cut, None stays None.

    Raises:
        ConfigValueError: The text is not of that type.
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


def to_text(value: Parsed, type: Type) -> str | None:  # noqa: A002 - Connect's word
    """The text that answers show for a parsed value: lists joined by commas, secrets hidden."""
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
    """A number of at least `low`; null is refused."""

    def check(name: str, value: Parsed) -> None:
        if value is None:
            raise ConfigValueError(name, None, "Value must be non-null")
        if value < low:
            raise ConfigValueError(name, value, f"Value must be at least {low}")

    return check


def between(low: float, high: float) -> Validator:
    """A number in [low, high]; null is refused."""

    def check(name: str, value: Parsed) -> None:
        at_least(low)(name, value)
        if value > high:
            raise ConfigValueError(name, value, f"Value must be no more than {high}")

    return check


def one_of(*choices: str, case_insensitive: bool = False) -> Validator:
    """One of these texts."""

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
    """A text that is present and not empty, or a list with items."""
    if value is not None and len(value) == 0:
        raise ConfigValueError(
            name, "" if isinstance(value, str) else value, "String must be non-empty"
        )


def regex(name: str, value: Parsed) -> None:
    """A regular expression that compiles."""
    if value is None:
        raise ConfigValueError(name, None, "Invalid regex: null")
    try:
        re.compile(value)
    except re.error as error:
        raise ConfigValueError(name, value, f"Invalid regex: {error}") from error


def unique_items(name: str, value: Parsed) -> None:
    """A list without duplicates and without empty items."""
    if not value:
        return
    if len(set(value)) != len(value):
        raise ConfigError("", f"Configuration '{name}' values must not be duplicated.")
    if any(item == "" for item in value):
        raise ConfigError("", f"Configuration '{name}' values must not be empty.")


def all_of(*validators: Validator) -> Validator:
    """Every one of these must accept."""

    def check(name: str, value: Parsed) -> None:
        for validator in validators:
            validator(name, value)

    return check


def with_prefix(props: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The properties below a prefix, without it."""
    return {key[len(prefix) :]: value for key, value in props.items() if key.startswith(prefix)}
