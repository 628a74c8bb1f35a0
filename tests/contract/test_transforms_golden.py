"""Results of the original Java transformations for real change events, compared with both forms of
ours.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from transforms_chain import ColumnRunner, Outcome, apply_rows, configured, transformation_class

from connect_py.api.batch import Batch, Origin
from connect_py.api.errors import ConnectError
from connect_py.api.record import Header, Headers, RecordOrigin, SinkRecord, TimestampType
from connect_py.api.schema import Schema, Struct, Value
from connect_py.converters.json.json_converter import JsonConverter
from transforms.debezium import timezone_converter

CORPUS = Path(__file__).parents[1] / "fixtures/corpus/debezium-postgres"
INDEX: Mapping[str, Any] = json.loads((CORPUS / "golden/index.json").read_text())
CONTEXT = "__debezium.context."
LEGACY = "unwrap-legacy-keys"
BY_ROWS = {"changed-then-drop-fields"}  # a header determines the columns of each row
FLOATS = ("c_real", "c_double")
# Debezium 3.2 ignores the legacy keys; we honour them
EXPECTED_AS = {LEGACY: "unwrap-rewrite-with-tombstone"}


def _built(name: str) -> bool:
    try:
        for props in INDEX[name]["transforms"]:
            transformation_class(props["type"])
    except KeyError:
        return False
    return True


WINTER = 1_795_190_000.0  # time of the recordings: a time of day is shown in the current zone


@pytest.fixture(autouse=True)
def a_day_in_winter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone_converter.time, "time", lambda: WINTER)


NAMES = [name for name in INDEX if _built(name) and name != "unwrap-bad-mode"]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _header(name: str, text: str | None) -> Header:
    if name in ("__debezium.newkey", "__debezium.oldkey"):
        return Header(name, None if text is None else json.loads(text))
    return Header(name, text)


def _converter(settings: Mapping[str, str], *, is_key: bool) -> JsonConverter:
    converter = JsonConverter()
    converter.configure(settings, is_key=is_key)
    return converter


def _records(entry: Mapping[str, Any]) -> list[SinkRecord]:
    """The input of a golden as a task would see it, topic by topic."""
    topics = re.compile(entry["topics"])
    key_reader = _converter(entry["converter"], is_key=True)
    value_reader = _converter(entry["converter"], is_key=False)
    records = []
    for line in _lines(CORPUS / entry["input"]):
        topic = line["topic"]
        if not topics.fullmatch(topic):
            continue
        key, value = (
            None if line[side] is None else line[side].encode() for side in ("key", "value")
        )
        key_schema, key_value = key_reader.to_connect(topic, key)
        value_schema, value_value = value_reader.to_connect(topic, value)
        records.append(
            SinkRecord(
                topic,
                line["partition"],
                key_schema,
                key_value,
                value_schema,
                value_value,
                line["timestamp"],
                Headers(_header(name, text) for name, text in line["headers"]),
                origin=RecordOrigin(topic, line["partition"], line["offset"], key, value),
            )
        )
    return sorted(records, key=lambda r: (r.topic, r.origin.partition, r.origin.offset))


def _state(schema: Schema | None, value: Value) -> str:
    if value is None:
        return "A" if schema is None else "B"
    return "C" if schema is None else "D"


def _header_lines(headers: Headers) -> list[list[str | None]]:
    lines = []
    for header in headers:
        if header.key.startswith(CONTEXT):
            continue
        if header.schema is None:
            label = "MAP" if isinstance(header.value, dict) else "STRING"
        else:
            name = f" {header.schema.name}" if header.schema.name else ""
            label = f"{header.schema.type.name}{name}{'?' if header.schema.optional else ''}"
        text = header.value
        if isinstance(text, dict | list):
            text = json.dumps(text, separators=(",", ":"))
        lines.append([header.key, label, None if text is None else str(text)])
    return lines


def _read(text: str | bytes | None) -> Any:
    """Parse JSON as Python values. Java's schemaless maps are unordered; floats keep their
    notation.

    Our converter reads NaN and the infinities, for which Java's returns 0.0.
    """

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {
            k: "0.0" if v in ("NaN", "Infinity", "-Infinity") and k in FLOATS else v
            for k, v in pairs
        }

    return None if text is None else json.loads(text, parse_float=str, object_pairs_hook=members)


def _shown(outcome: Outcome, entry: Mapping[str, Any]) -> dict[str, Any]:
    """An outcome in the form of a golden line."""
    if outcome is None:
        return {"out": None}
    if isinstance(outcome, ConnectError):
        return {"error": {"class": outcome.java_name, "message": str(outcome)}}
    if isinstance(outcome, Exception):
        raise outcome
    settings = {**entry["converter"], "replace.null.with.default": "false"}
    texts = [
        _converter(settings, is_key=is_key).from_connect(outcome.topic, schema, value)
        for is_key, schema, value in (
            (True, outcome.key_schema, outcome.key),
            (False, outcome.value_schema, outcome.value),
        )
    ]
    return {
        "out": {
            "topic": outcome.topic,
            "partition": outcome.partition,
            "key_state": _state(outcome.key_schema, outcome.key),
            "key": _read(texts[0]),
            "value_state": _state(outcome.value_schema, outcome.value),
            "value": _read(texts[1]),
            "headers": _header_lines(outcome.headers),
        }
    }


def _golden(name: str) -> dict[tuple[str, int, int], dict[str, Any]]:
    lines = {}
    for line in _lines(CORPUS / f"golden/{EXPECTED_AS.get(name, name)}.jsonl.gz"):
        expected = {key: line[key] for key in ("out", "error") if key in line}
        if expected.get("out") is not None:
            expected["out"].pop("value_schema_name", None)
            for side in ("key", "value"):
                expected["out"][side] = _read(expected["out"][side])
        lines[line["topic"], line["partition"], line["offset"]] = expected
    return lines


def _by_rows(name: str, records: list[SinkRecord]) -> dict[tuple[str, int, int], Outcome]:
    chain = [configured(props) for props in INDEX[name]["transforms"]]
    return {(r.topic, r.origin.partition, r.origin.offset): apply_rows(chain, r) for r in records}


def _by_columns(
    name: str, records: list[SinkRecord]
) -> tuple[dict[tuple[str, int, int], Outcome], ColumnRunner, int]:
    runner = ColumnRunner([configured(props) for props in INDEX[name]["transforms"]])
    outcomes: dict[tuple[str, int, int], Outcome] = {}
    for batch in Batch.of(records):
        topic = batch.origin.topic
        outcomes |= {(topic, *place): outcome for place, outcome in runner.run(batch).items()}
    kept = sum(isinstance(outcome, SinkRecord) for outcome in outcomes.values())
    return (
        {(r.topic, r.origin.partition, r.origin.offset): None for r in records} | outcomes,
        runner,
        kept,
    )


@pytest.mark.parametrize("name", NAMES)
def test_row_form_gives_what_java_gave(name: str) -> None:
    records, golden = _records(INDEX[name]), _golden(name)
    assert len(records) == INDEX[name]["records"]
    for place, outcome in _by_rows(name, records).items():
        assert _shown(outcome, INDEX[name]) == golden[place], place


@pytest.mark.parametrize("name", NAMES)
def test_batch_form_gives_what_java_gave_and_stays_columns(name: str) -> None:
    records, golden = _records(INDEX[name]), _golden(name)
    outcomes, runner, kept = _by_columns(name, records)
    for place, outcome in outcomes.items():
        assert _shown(outcome, INDEX[name]) == golden[place], place
    assert runner.columnar_rows == kept or name in BY_ROWS


def _converted(records: list[SinkRecord], settings: Mapping[str, str]) -> Iterator[Batch]:
    """The same records as batches that come straight from the batch form of the converter."""
    for topic in dict.fromkeys(record.topic for record in records):
        rows = [record for record in records if record.topic == topic]
        origin = Origin(
            topic,
            pa.array([r.origin.partition for r in rows], pa.int32()),
            pa.array([r.origin.offset for r in rows], pa.int64()),
            TimestampType.CREATE_TIME,
            [r.origin.key for r in rows],
            [r.origin.value for r in rows],
        )
        runs = [
            _converter(settings, is_key=is_key).to_batch(topic, data)
            for is_key, data in ((True, origin.keys), (False, origin.values))
        ]
        ends = sorted({run.stop for side in runs for run in side})
        for start, stop in zip([0, *ends], ends, strict=False):
            key, value = (
                next(
                    r.column.slice(start - r.start, stop - r.start)
                    for r in side
                    if r.start <= start < r.stop
                )
                for side in runs
            )
            yield Batch(
                topic,
                key,
                value,
                pa.array([r.timestamp for r in rows[start:stop]], pa.int64()),
                [r.headers for r in rows[start:stop]],
                origin.slice(start, stop),
            )


@pytest.mark.parametrize("name", NAMES)
def test_batches_straight_from_the_converter_give_what_java_gave(name: str) -> None:
    entry = INDEX[name]
    records, golden = _records(entry), _golden(name)
    runner = ColumnRunner([configured(props) for props in entry["transforms"]])
    outcomes: dict[tuple[str, int, int], Outcome] = {}
    for batch in _converted(records, entry["converter"]):
        topic = batch.origin.topic
        outcomes |= {(topic, *place): outcome for place, outcome in runner.run(batch).items()}
    for record in records:
        place = (record.topic, record.origin.partition, record.origin.offset)
        assert _shown(outcomes.get(place), entry) == golden[place], place
    kept = sum(isinstance(outcome, SinkRecord) for outcome in outcomes.values())
    assert runner.columnar_rows == kept or name in BY_ROWS


def test_unknown_delete_mode_is_refused_in_javas_words() -> None:
    props = INDEX["unwrap-bad-mode"]["transforms"][0]
    (line,) = _lines(CORPUS / "golden/unwrap-bad-mode.jsonl.gz")
    with pytest.raises(ConnectError) as caught:
        configured(props)
    assert line["config_error"] == f"{caught.value.java_name}: {caught.value}"


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_columns_named_by_a_header_are_dropped_as_in_java(form: str) -> None:
    name = "changed-then-drop-fields"
    entry = {**INDEX[name], "transforms": INDEX[name]["transforms"][1:]}
    changed, golden = _golden("changed-record-state"), _golden(name)
    records = []
    for record in _records(entry):
        headers = changed[record.topic, record.origin.partition, record.origin.offset]["out"][
            "headers"
        ]
        lists = (Header(n, None if text is None else json.loads(text)) for n, _, text in headers)
        records.append(record.replace(headers=Headers(lists)))
    chain = [configured(props) for props in entry["transforms"]]
    outcomes: dict[tuple[str, int, int], Outcome]
    if form == "rows":
        outcomes = {
            (r.topic, r.origin.partition, r.origin.offset): apply_rows(chain, r) for r in records
        }
    else:
        runner = ColumnRunner(chain)
        outcomes = {
            (b.origin.topic, *p): o for b in Batch.of(records) for p, o in runner.run(b).items()
        }
    for place, expected in golden.items():
        if place[0] != "pgs.public.no_pk_full":
            continue
        shown = _shown(outcomes.get(place), entry)
        for side in (shown, expected):
            if side["out"] is not None:
                side["out"].pop("headers")
        assert shown == expected, place


def _comparable(found: Any) -> Any:
    """Return outcomes and values in a form in which equal values are equal, unlike NaN and
    errors.
    """
    if isinstance(found, SinkRecord):
        return [_comparable(v) for v in (found.value, found.key, found.headers)] + [
            found.replace(key=None, value=None, headers=Headers())
        ]
    if isinstance(found, Exception):
        return type(found), str(found)
    if isinstance(found, Struct):
        return found.schema, _comparable(found.values)
    if isinstance(found, dict):
        return {key: _comparable(value) for key, value in found.items()}
    if isinstance(found, list | tuple | Headers):
        return [_comparable(item) for item in found]
    return "NaN" if found != found else found


@pytest.mark.parametrize(
    ("recording", "schemas", "topics"),
    [
        ("json-schema.jsonl.gz", "true", r"pgs\.(public|inventory)\..*"),
        ("json-plain.jsonl.gz", "false", r"pgj\.(public|inventory)\..*"),
    ],
)
@pytest.mark.parametrize(
    "props",
    [
        {"type": "org.apache.iceberg.connect.transforms.DebeziumTransform"},
        {
            "type": "io.debezium.transforms.ExtractNewRecordState",
            "add.fields": "op",
            "add.headers": "ts_ms",
        },
    ],
    ids=["iceberg", "debezium"],
)
def test_recorded_columns_give_what_recorded_rows_give(
    recording: str, schemas: str, topics: str, props: dict[str, str]
) -> None:
    settings = {"schemas.enable": schemas}
    records = _records({"input": recording, "topics": topics, "converter": settings})
    expected = {
        (r.topic, r.origin.partition, r.origin.offset): apply_rows([configured(props)], r)
        for r in records
    }
    runner = ColumnRunner([configured(props)])
    outcomes: dict[tuple[str, int, int], Outcome] = {}
    for batch in _converted(records, settings):
        outcomes |= {
            (batch.origin.topic, *place): outcome for place, outcome in runner.run(batch).items()
        }
    for place, outcome in expected.items():
        assert _comparable(outcomes.get(place)) == _comparable(outcome), place
    kept = sum(isinstance(outcome, SinkRecord) for outcome in outcomes.values())
    assert runner.columnar_rows == kept
