"""Base class for the transformations that replace change events with rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed, Type, one_of
from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.record import Headers, R
from connect_py.api.schema import STRING, Struct
from connect_py.api.transformation import Transformation
from transforms.debezium.delete_handling import LEGACY_MODES, MODES, DeleteHandling
from transforms.debezium.envelope import DELETE, ENVELOPE_SUFFIX, OP
from transforms.debezium.field_reference import FieldReference

log = logging.getLogger(__name__)

IDLE_VALUES = 1000  # number of values passed through before a warning is logged

_MODE = "delete.tombstone.handling.mode"
_DROP_TOMBSTONES = "drop.tombstones"
_DELETE_MODE = "delete.handling.mode"
_OPERATION_HEADER = "operation.header"
_OPERATION_HEADER_NAME = "__debezium-operation"
_ADD_SOURCE_FIELDS = "add.source.fields"


def _field_references(name: str, value: Parsed) -> None:
    try:
        FieldReference.parse_all(value or [], "")
    except ValueError as error:
        raise ConfigValueError(name, value, str(error)) from error


class Unwrapping(Transformation[R]):
    """Base class with the options for deletes, tombstones, and added fields."""

    config_def = (
        ConfigDef()
        .define(
            _MODE,
            Type.STRING,
            default="tombstone",
            validator=one_of(*MODES, case_insensitive=True),
            importance=Importance.MEDIUM,
            doc="Handling of delete events and tombstones. drop drops both. tombstone converts "
            "deletes to null values with the schema of the row. rewrite converts deletes to rows "
            "marked with __deleted. delete-to-tombstone converts deletes to tombstones. "
            "rewrite-with-tombstone is the same as rewrite, but retains existing tombstones, which "
            "all other modes drop.",
        )
        .define(
            _DROP_TOMBSTONES,
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc=f"Deprecated, used only if {_MODE} is not set. Drop tombstones.",
        )
        .define(
            _DELETE_MODE,
            Type.STRING,
            default="drop",
            validator=one_of(*LEGACY_MODES, case_insensitive=True),
            importance=Importance.LOW,
            doc=f"Deprecated, used only if {_MODE} is not set. drop drops delete events, rewrite "
            "converts them to rows marked with __deleted, and none converts them to null values.",
        )
        .define(
            "add.fields",
            Type.LIST,
            default="",
            validator=_field_references,
            importance=Importance.LOW,
            doc="Fields from the event to add to the row, each as field or struct.field, "
            "optionally followed by :new-name.",
        )
        .define(
            "add.fields.prefix",
            Type.STRING,
            default="__",
            importance=Importance.LOW,
            doc="Prefix for the names of the fields that add.fields adds.",
        )
        .define(
            "add.headers",
            Type.LIST,
            default="",
            validator=_field_references,
            importance=Importance.LOW,
            doc="Fields from the event to add as headers, in the format of add.fields.",
        )
        .define(
            "add.headers.prefix",
            Type.STRING,
            default="__",
            importance=Importance.LOW,
            doc="Prefix for the names of the headers that add.headers adds.",
        )
        .define(
            _OPERATION_HEADER,
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Deprecated: use add.headers=op. Add the operation as the header "
            f"{_OPERATION_HEADER_NAME}.",
        )
        .define(
            _ADD_SOURCE_FIELDS,
            Type.LIST,
            default="",
            importance=Importance.LOW,
            doc="Deprecated: use add.fields. Fields from the source struct to add to the row.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        try:
            props = self.config_def.parse(configs)
        except ConfigError as error:
            raise ConnectError("Unable to validate config.") from error
        self.handling = _delete_handling(configs, props)
        self.add_fields = FieldReference.parse_all(
            props["add.fields"], props["add.fields.prefix"]
        ) + tuple(
            FieldReference("source", name, f"__{name}")
            for name in props[_ADD_SOURCE_FIELDS]
            if name
        )
        self.add_headers = FieldReference.parse_all(
            props["add.headers"], props["add.headers.prefix"]
        )
        if props[_OPERATION_HEADER]:
            self.add_headers += (FieldReference(None, OP, _OPERATION_HEADER_NAME),)
        for key in (_OPERATION_HEADER, _ADD_SOURCE_FIELDS):
            if props[key]:
                log.warning("%s is deprecated, use add.headers and add.fields", key)
        self._values_before_envelope: int | None = 0  # None after the first envelope or the warning
        self.configure_further(props)

    def configure_further(self, props: Mapping[str, Parsed]) -> None:
        """Apply the subclass's options."""

    def note_envelope(self) -> None:
        """Record that an envelope was received, which suppresses the warning."""
        self._values_before_envelope = None

    def note_passing(self, values: int) -> None:
        """Count values that are not envelopes; warn once if many precede the first envelope."""
        if self._values_before_envelope is None:
            return
        self._values_before_envelope += values
        if self._values_before_envelope >= IDLE_VALUES:
            log.warning(
                "the first %d values were passed through unchanged, because they are not change "
                "events with a schema (named ...%s); for schemaless events, use DebeziumTransform "
                "from org.apache.iceberg.connect.transforms",
                self._values_before_envelope,
                ENVELOPE_SUFFIX,
            )
            self._values_before_envelope = None

    def event_headers(self, headers: Headers, event: Struct) -> Headers:
        """Return an event's headers, followed by the added headers."""
        for reference in self.add_headers:
            schema = reference.schema(event.schema)
            if schema is not None:
                headers = headers.add(reference.new_name, reference.value(event), schema)
        return headers

    def tombstone_headers(self, headers: Headers) -> Headers:
        """Return the headers of a retained tombstone, to which only the operation can be added."""
        for reference in self.add_headers:
            if reference.field == OP:
                headers = headers.add(reference.new_name, DELETE, STRING)
        return headers


def _delete_handling(configs: Mapping[str, str], props: Mapping[str, Parsed]) -> DeleteHandling:
    legacy = [key for key in (_DROP_TOMBSTONES, _DELETE_MODE) if key in configs]
    if legacy:
        log.warning("%s: deprecated, use %s", ", ".join(legacy), _MODE)
    if legacy and _MODE not in configs:
        return DeleteHandling(LEGACY_MODES[props[_DELETE_MODE].lower()], props[_DROP_TOMBSTONES])
    return MODES[props[_MODE].lower()]
