"""Append mode, table partitions, files and their names."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import fcntl
import json
import os
import stat
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_staging_rows import (
    ORDERS_0,
    batch,
    config,
    field_ids,
    read,
    record,
    stage,
    stager,
    table,
    wanted_by,
)
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import IcebergType

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows, DataError
from connect_py.api.schema import (
    BYTES,
    INT32,
    INT64,
    STRING,
    Schema,
    Struct,
    Type,
    array,
    struct,
    timestamp,
)
from connectors.iceberg.conversion.partitioning import Partitioner, single_value_json
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.file_output import FileOutput, local_path, unsupported_reason
from connectors.iceberg.staging.row_buffer import MemoryBudget
from connectors.iceberg.staging.staged_file_name import StagedFileName, table_digits
from connectors.iceberg.staging.table_stager import TableStager
from connectors.iceberg.table.schema_change import ChangeKind
from connectors.iceberg.table.table import StagedFile

ROW = struct(("id", INT64), ("v", Schema(Type.STRING, optional=True)))
COLUMNS = [("id", "long"), ("v", "string")]


def row(offset: int, id_: int, v: str | None = "x", **more: Any) -> Any:
    return record(Struct(ROW, [id_, v]), offset, **more)


def spec(*fields: tuple[str, str, int]) -> list[dict[str, Any]]:
    return [
        {"name": name, "transform": transform, "source-id": source, "field-id": 1000 + i}
        for i, (name, transform, source) in enumerate(fields)
    ]


def test_every_record_is_a_row_and_tombstones_are_none(tmp_path: Path) -> None:
    made = stager(table(COLUMNS, required=["id"], folder=tmp_path))
    batches = batch([row(1, 1), record(None, 2), row(3, 1, None)]), batch([record(None, 4)])
    files = stage(made, *batches)
    assert read(files) == [{"id": 1, "v": "x"}, {"id": 1, "v": None}]
    assert sum(made.prepare(each).ignored for each in batches) == 2
    (file,) = files
    assert file.rows == 2
    assert file.size == Path(file.path).stat().st_size
    assert field_ids(file.path) == {"id": 1, "v": 2}
    assert not pq.read_schema(file.path).field("id").nullable


def test_staged_file_path_has_the_data_location_and_its_origin(tmp_path: Path) -> None:
    made = stager(table(COLUMNS, folder=tmp_path))
    (file,) = stage(made, batch([row(0, 1)]), cycle=17)
    folder, name = file.path.rsplit("/", 1)
    digits = table_digits(made.description.uuid)
    assert folder == f"{tmp_path}/data"
    assert StagedFileName.decode(name) == StagedFileName(
        "orders-sink", Epoch(7, "a1b2"), digits, 17, "0", 0
    )
    assert name.startswith(StagedFileName.epoch_prefix("orders-sink", Epoch(7, "a1b2"), digits))


@pytest.mark.parametrize("connector", ["a", "a-1", "a.b", "ä/ö x", "", "~00002d"])
def test_staged_file_names_decode_exactly_and_prefixes_never_overlap(connector: str) -> None:
    name = StagedFileName(connector, Epoch(3, "n.-x"), "0123456789ab", 4, "t-1", 5)
    assert StagedFileName.decode(name.encode()) == name
    assert name.encode() != name.encode()
    assert "/" not in name.encode()
    others = {"a", "a-1", "a.b", "a-"} - {connector}
    assert not any(name.encode().startswith(StagedFileName.prefix(other)) for other in others)
    assert StagedFileName.decode("00000-1-data.parquet") is None


def test_staged_file_and_its_folder_are_synced_before_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[tuple[int, int]] = []
    really = os.fsync

    def fsync(file: int) -> None:
        state = os.fstat(file)
        forced.append((state.st_ino, state.st_size))
        writable = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
        assert writable is stat.S_ISREG(state.st_mode), (
            "some file systems pass over a file that is open to be read"
        )
        really(file)

    monkeypatch.setattr(os, "fsync", fsync)
    output = FileOutput(table([("n", "long")], folder=tmp_path / "shop" / "orders"), {})
    folders = [tmp_path, tmp_path / "shop", tmp_path / "shop" / "orders"]
    assert [file for file, _ in forced] == [folder.stat().st_ino for folder in folders], (
        "each took a new name"
    )
    forced.clear()
    uri, size = output.write("one.parquet", pa.table({"n": pa.array(range(1000), pa.int64())}))
    assert forced[0] == (Path(uri).stat().st_ino, size)
    assert [file for file, _ in forced[1:]] == [Path(uri).parent.stat().st_ino]


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a%20b/c#d?e", "/a%20b/c#d?e"),
        ("file:/a", "/a"),
        ("/a%20b#c:d", "/a%20b#c:d"),
        ("s3://a/b", None),
        ("file://elsewhere/b", None),
    ],
)
def test_nothing_is_encoded_in_a_path_of_this_machine(uri: str, path: str | None) -> None:
    assert local_path(uri) == (None if path is None else Path(path))


@pytest.mark.parametrize(
    ("location", "properties", "says"),
    [
        (
            "s3://a/b",
            {"encryption.key-id": "k"},
            "encryption.key-id, but staged rows are not",
        ),
        ("s3://a/b#c", {}, "the part after # would be dropped"),
        ("file:///b#c", {}, None),
        ("s3://a/b%20c", {}, None),
    ],
)
def test_table_whose_rows_cannot_be_staged_is_told_why(
    location: str, properties: dict[str, str], says: str | None
) -> None:
    described = dataclasses.replace(table(COLUMNS), data_location=location, properties=properties)
    why = unsupported_reason(described)
    assert (why is None) if says is None else (why is not None and says in why)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES])
def test_failed_folder_sync_is_tolerated_but_file_sync_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    refused = {stat.S_IFDIR: code}

    def fsync(file: int) -> None:
        if found := refused.get(stat.S_IFMT(os.fstat(file).st_mode)):
            raise OSError(found, os.strerror(found))

    monkeypatch.setattr(os, "fsync", fsync)
    output = FileOutput(table([("n", "long")], folder=tmp_path / "shop" / "orders"), {})
    rows = pa.table({"n": pa.array([1], pa.int64())})
    output.write("one.parquet", rows)
    refused[stat.S_IFREG] = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        output.write("two.parquet", rows)


def test_a_file_uri_is_written_locally(tmp_path: Path) -> None:
    description = table(COLUMNS, folder=Path(f"file://{tmp_path}"))
    description = type(description).from_json(
        {
            **description.to_json(),
            "location": f"file://{tmp_path}",
            "data_location": f"file://{tmp_path}/d",
        }
    )
    (file,) = stage(stager(description), batch([row(0, 1)]))
    assert file.path.startswith(f"file://{tmp_path}/d/connect-py-")
    assert Path(file.path.removeprefix("file://")).exists()


def test_bad_rows_are_named_and_their_batch_is_not_kept(tmp_path: Path) -> None:
    made = stager(table([("id", "int"), ("v", "string")], folder=tmp_path))
    with pytest.raises(BadRows) as raised:
        made.prepare(batch([row(0, 1), row(1, 2**40), row(2, 3)]))
    assert list(raised.value.errors) == [1]
    assert str(raised.value.errors[1]) == "table db.orders, column id: does not fit column type int"
    assert isinstance(raised.value.errors[1], DataError)
    assert made.close_cycle(1, ORDERS_0) == []


def test_values_that_are_no_rows_are_bad_rows(tmp_path: Path) -> None:
    made = stager(table(COLUMNS, folder=tmp_path))
    with pytest.raises(BadRows):
        made.prepare(batch([record("text", 0, schema=STRING)]))
    with pytest.raises(BadRows):
        made.prepare(batch([record(5, 0)]))


def partitions(files: list[StagedFile]) -> dict[tuple[str | None, ...], list[Any]]:
    return {tuple(f.partition): pq.read_table(f.path).column(0).to_pylist() for f in files}


def test_rows_are_split_by_the_table_s_partitions(tmp_path: Path) -> None:
    value = struct(
        ("ts", Schema(Type.INT64, name="org.apache.kafka.connect.data.Timestamp", optional=True)),
        ("n", INT32),
    )
    description = table(
        [("n", "int"), ("ts", "timestamptz")],
        folder=tmp_path,
        spec=spec(("ts_day", "day", 2), ("n", "identity", 1)),
    )
    day = 86_400_000
    values = [(0, 1), (day, 1), (1, 1), (None, 1), (-1, 2), (day + 5, 1)]
    files = stage(
        stager(description),
        batch([record(Struct(value, list(v)), i) for i, v in enumerate(values)]),
    )
    assert partitions(files) == {
        ('"1970-01-01"', "1"): [1, 1],
        ('"1970-01-02"', "1"): [1, 1],
        (None, "1"): [1],
        ('"1969-12-31"', "2"): [2],
    }


UUIDS = pa.array([bytes(range(16)), bytes(16), b"\xff" * 16, None], pa.binary(16))
VALUES: list[tuple[str, pa.Array]] = [
    ("int", pa.array([0, 34, -7, None], pa.int32())),
    ("long", pa.array([0, 2**40, -1, None])),
    ("string", pa.array(["iceberg", "", "ä" * 9, None])),
    ("binary", pa.array([b"abc", b"", b"\xff" * 9, None])),
    ("date", pa.array([0, 17_486, -1, None], pa.int32()).view(pa.date32())),
    ("timestamp", pa.array([0, 1_510_871_468_000_001, -1, None]).view(pa.timestamp("us"))),
    ("timestamptz", pa.array([0, 1_510_871_468_000_001, -1, None]).view(pa.timestamp("us", "UTC"))),
    ("timestamp_ns", pa.array([0, 1_510_871_468_000_000_001, -1, None]).view(pa.timestamp("ns"))),
    (
        "timestamptz_ns",
        pa.array([0, 1_510_871_468_000_000_001, -1, None]).view(pa.timestamp("ns", "UTC")),
    ),
    ("time", pa.array([0, 81_068_000_000, 1, None]).view(pa.time64("us"))),
    (
        "decimal(9, 2)",
        pa.array([Decimal("14.20"), Decimal("-0.05"), Decimal("0.00"), None], pa.decimal128(9, 2)),
    ),
    ("uuid", pa.ExtensionArray.from_storage(pa.uuid(), UUIDS)),
]
TRANSFORMS = ["identity", "bucket[16]", "truncate[3]", "year", "month", "day", "hour", "void"]


def _type_of_c(type_: str) -> IcebergType:
    return IcebergSchema.model_validate_json(table([("c", type_)]).schema).find_type("c")


COMBINATIONS = [
    pytest.param(type_, data, transform, id=f"{transform} of {type_}")
    for type_, data in VALUES
    for transform in TRANSFORMS
    if parse_transform(transform).can_transform(
        IcebergSchema.model_validate_json(table([("c", type_)]).schema).find_type("c")
    )
]


@pytest.mark.parametrize(("type_", "data", "transform"), COMBINATIONS)
def test_transforms_on_columns_equal_those_of_pyiceberg_value_by_value(
    type_: str, data: pa.Array, transform: str
) -> None:
    schema_json = table([("c", type_)]).schema
    source = IcebergSchema.model_validate_json(schema_json).find_type("c")
    reference = parse_transform(transform)
    one = reference.transform(source)
    result = str(reference.result_type(source))
    storage = data.storage if isinstance(data, pa.ExtensionArray) else data
    if pa.types.is_temporal(storage.type):
        storage = storage.view(pa.int32() if storage.type.bit_width == 32 else pa.int64())
    expected = {}
    for value in storage.to_pylist():
        made = None if value is None else one(value)
        key = None if made is None else single_value_json(made, result)
        expected.setdefault((key,), []).append(value)
    rows = pa.table({"c": data, "i": storage})
    spec_json = json.dumps({"spec-id": 3, "fields": spec(("p", transform, 1))})
    got = {
        values: part.column("i").to_pylist()
        for values, part in Partitioner(schema_json, spec_json).split(rows)
    }
    assert got == expected


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (5, "int", "5"),
        ('a"b', "string", '"a\\"b"'),
        (-1, "date", '"1969-12-31"'),
        (True, "boolean", "true"),
        (1, "timestamp", '"1970-01-01T00:00:00.000001"'),
        (1, "timestamptz", '"1970-01-01T00:00:00.000001+00:00"'),
        (1, "timestamp_ns", '"1970-01-01T00:00:00.000000001"'),
        (-1, "timestamptz_ns", '"1969-12-31T23:59:59.999999999+00:00"'),
        (3_600_000_000, "time", '"01:00:00.000000"'),
        (Decimal("14.20"), "decimal(9, 2)", '"14.20"'),
        (b"\x00\xff", "binary", '"00ff"'),
        (bytes(16), "uuid", '"00000000-0000-0000-0000-000000000000"'),
    ],
)
def test_partition_values_are_written_as_iceberg_s_json(value: Any, type_: str, text: str) -> None:
    assert single_value_json(value, type_) == text


def test_void_and_nested_partition_fields_work(tmp_path: Path) -> None:
    inner = struct(("k", STRING))
    value = struct(("id", INT64), ("in", inner))
    nested = {
        "type": "struct",
        "fields": [{"id": 9, "name": "k", "required": False, "type": "string"}],
    }
    description = table(
        [("id", "long"), ("in", nested)],
        folder=tmp_path,
        spec=spec(("in.k", "identity", 9), ("id_null", "void", 1)),
    )
    rows = [record(Struct(value, [i, Struct(inner, [k])]), i) for i, k in enumerate("aba")]
    assert partitions(stage(stager(description), batch(rows))) == {
        ('"a"', None): [0, 2],
        ('"b"', None): [1],
    }


def test_rows_beyond_the_memory_budget_spill_and_keep_their_order(tmp_path: Path) -> None:
    made = stager(table(COLUMNS, folder=tmp_path), memory=200)
    for start in range(0, 100, 10):
        made.add(made.prepare(batch([row(start + i, start + i) for i in range(10)])))
    assert made.buffered_bytes <= 200
    assert made._buffer._spill_file is not None
    files = made.close_cycle(1, ORDERS_0)
    assert [r["id"] for r in read(files)] == list(range(100))
    assert made._buffer._spill_file is None


def test_large_rows_are_cut_into_several_files(tmp_path: Path) -> None:
    made = stager(table(COLUMNS, folder=tmp_path), ext__target_file_size_bytes=str(1 << 20))
    files = stage(made, batch([row(i, i, "y" * 100_000) for i in range(30)]))
    assert len(files) == 3
    assert [r["id"] for r in read(files)] == list(range(30))


def test_rows_buffered_during_table_evolution_use_the_new_schema(tmp_path: Path) -> None:
    item = {"type": "struct", "fields": [{"id": 5, "name": "a", "required": False, "type": "int"}]}
    old_list = {"type": "list", "element-id": 4, "element-required": False, "element": item}
    old = table([("id", "int"), ("v", "string"), ("l", old_list)], folder=tmp_path)
    made = stager(old, memory=10, tables__evolve_schema_enabled="true")
    narrow = struct(("id", INT32), ("v", STRING), ("l", array(struct(("a", INT32)))))
    element = narrow["l"].value_schema
    assert element is not None
    first = batch([record(Struct(narrow, [1, "x", [Struct(element, [1])]]), 0)])
    assert wanted_by(made, first.value) == ()
    made.add(made.prepare(first))
    wide_item = struct(("a", INT64), ("b", STRING))
    wide = struct(("id", INT64), ("v", STRING), ("l", array(wide_item)), ("n", STRING))
    second = batch([record(Struct(wide, [2**40, "y", [Struct(wide_item, [2, "q"])], "new"]), 1)])
    kinds = [(c.kind, ".".join(c.path)) for c in wanted_by(made, second.value)]
    assert kinds == [
        (ChangeKind.WIDEN, "id"),
        (ChangeKind.WIDEN, "l.element.a"),
        (ChangeKind.ADD, "l.element.b"),
        (ChangeKind.ADD, "n"),
    ]
    new_item = {
        "type": "struct",
        "fields": [
            {"id": 5, "name": "a", "required": False, "type": "long"},
            {"id": 6, "name": "b", "required": False, "type": "string"},
        ],
    }
    new_list = {**old_list, "element": new_item}
    made.evolve(
        table(
            [("id", "long"), ("v", "string"), ("l", new_list), ("n", "string")],
            folder=tmp_path,
            schema_id=1,
        )
    )
    assert wanted_by(made, second.value) == ()
    files = stage(made, second)
    assert read(files) == [
        {"id": 1, "v": "x", "l": [{"a": 1, "b": None}], "n": None},
        {"id": 2**40, "v": "y", "l": [{"a": 2, "b": "q"}], "n": "new"},
    ]
    assert {f.schema_id for f in files} == {1}


def test_discard_forgets_rows_but_leaves_reported_files(tmp_path: Path) -> None:
    made = stager(table(COLUMNS, folder=tmp_path))
    (file,) = stage(made, batch([row(0, 1)]))
    made.add(made.prepare(batch([row(1, 2)])))
    made.discard()
    assert Path(file.path).exists()
    assert made.close_cycle(2, ORDERS_0) == []


def test_a_failing_storage_leaves_no_files_and_keeps_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stager(table(COLUMNS, folder=tmp_path, spec=spec(("id", "identity", 1))))
    made.add(made.prepare(batch([row(i, i) for i in range(3)])))
    write = made._files.output.write
    calls = []

    def failing(name: str, rows: pa.Table) -> tuple[str, int]:
        calls.append(name)
        if len(calls) == 2:
            raise OSError("disk full")
        return write(name, rows)

    monkeypatch.setattr(made._files.output, "write", failing)
    with pytest.raises(OSError, match="disk full"):
        made.close_cycle(1, ORDERS_0)
    assert list((tmp_path / "data").iterdir()) == []
    assert len(made.close_cycle(1, ORDERS_0)) == 3


def test_write_properties_choose_the_parquet_compression_codec(tmp_path: Path) -> None:
    key = "write.parquet.compression-codec"
    description = table(COLUMNS, folder=tmp_path, properties={key: "gzip"})
    for props, codec in (
        ({}, "GZIP"),
        ({"tables__write_props__write__parquet__compression_codec": "snappy"}, "SNAPPY"),
    ):
        (file,) = stage(stager(description, **props), batch([row(0, 1)]))
        assert pq.read_metadata(file.path).row_group(0).column(0).compression == codec


def test_moments_uuids_and_decimals_have_the_parquet_types_of_iceberg(tmp_path: Path) -> None:
    value = struct(("ts", timestamp()), ("u", STRING), ("d", STRING), ("b", BYTES))
    columns = [("ts", "timestamptz"), ("u", "uuid"), ("d", "decimal(9, 2)"), ("b", "fixed[2]")]
    made = stager(table(columns, folder=tmp_path))
    text = "00000000-0000-0000-0000-00000000000a"
    (file,) = stage(made, batch([record(Struct(value, [1, text, "1.25", b"ab"]), 0)]))
    schema = pq.ParquetFile(file.path).schema
    shown = {
        schema.column(i).name: (schema.column(i).physical_type, str(schema.column(i).logical_type))
        for i in range(4)
    }
    assert shown["ts"][0] == "INT64"
    assert "isAdjustedToUTC=true" in shown["ts"][1]
    assert shown["u"] == ("FIXED_LEN_BYTE_ARRAY", "UUID")
    assert shown["d"] == ("INT32", "Decimal(precision=9, scale=2)")
    assert shown["b"][0] == "FIXED_LEN_BYTE_ARRAY"
    read_back = pq.read_table(file.path).to_pylist()[0]
    assert read_back["ts"] == dt.datetime(1970, 1, 1, 0, 0, 0, 1000, dt.UTC)


def test_a_configuration_has_one_key_per_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no key column nope"):
        stager(table(COLUMNS, keys=["nope"], folder=tmp_path))
    assert config().tables == ("db.orders",)


def test_batches_of_several_kafka_partitions_are_told_apart(tmp_path: Path) -> None:
    made = stager(table(COLUMNS, folder=tmp_path))
    (mixed,) = Batch.of([row(3, 1), row(8, 2, partition=1), record(None, 4), row(5, 3)])
    made.add(made.prepare(mixed))
    assert [r["id"] for r in read(made.close_cycle(1, ORDERS_0))] == [1, 3]


def test_a_null_struct_with_required_fields_is_written(tmp_path: Path) -> None:
    deep = struct(("m", struct(("k", STRING))), ("n", INT32), optional=True)
    value = struct(("s", deep), ("l", array(deep, optional=True)))
    fields = [
        {
            "id": 10,
            "name": "m",
            "required": True,
            "type": {
                "type": "struct",
                "fields": [{"id": 11, "name": "k", "required": True, "type": "string"}],
            },
        },
        {"id": 12, "name": "n", "required": True, "type": "int"},
    ]
    inner = {"type": "struct", "fields": fields}
    items = {
        "type": "list",
        "element-id": 20,
        "element-required": False,
        "element": json.loads(json.dumps(inner).replace('"id": 1', '"id": 3')),
    }
    made = stager(table([("s", inner), ("l", items)], folder=tmp_path))
    full = Struct(deep, [Struct(deep["m"], ["x"]), 1])
    rows = [
        record(Struct(value, v), i)
        for i, v in enumerate([[None, None], [full, [None, full]], [None, []]])
    ]
    shown = {"m": {"k": "x"}, "n": 1}
    assert read(stage(made, batch(rows))) == [
        {"s": None, "l": None},
        {"s": shown, "l": [None, shown]},
        {"s": None, "l": []},
    ]


def test_storage_that_is_not_local_is_written_through_pyiceberg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.iceberg.staging.file_output.local_path", lambda uri: None)
    (tmp_path / "data").mkdir()
    description = table(COLUMNS, folder=tmp_path)
    made = stager(description)
    made.add(made.prepare(batch([row(0, 1)])))
    (file,) = made.close_cycle(1, ORDERS_0)
    assert file.size == Path(file.path).stat().st_size
    assert read([file]) == [{"id": 1, "v": "x"}]
    made._files.output.remove(file.path)
    assert not Path(file.path).exists()


def test_schemaless_rows_of_changing_types_go_to_one_table(tmp_path: Path) -> None:
    made = stager(table([("id", "long"), ("v", "string"), ("f", "double")], folder=tmp_path))
    batches = Batch.of(
        [
            record(v, i)
            for i, v in enumerate(
                [{"id": 1}, {"id": 2, "v": 5}, {"id": 3, "v": "x", "f": 1}, {"f": 1.5}]
            )
        ]
    )
    files = stage(made, *batches)
    assert read(files) == [
        {"id": 1, "v": None, "f": None},
        {"id": 2, "v": "5", "f": None},
        {"id": 3, "v": "x", "f": 1.0},
        {"id": None, "v": None, "f": 1.5},
    ]


def test_unwritable_column_stays_null_and_rows_with_it_are_bad(tmp_path: Path) -> None:
    made = stager(table([*COLUMNS, ("doc", "geometry(srid:4326)")], folder=tmp_path))
    assert read(stage(made, batch([row(0, 1)]))) == [{"id": 1, "v": "x"}]
    with pytest.raises(BadRows) as raised:
        made.prepare(batch([record({"id": 1, "doc": {"a": 1}}, 1)]))
    assert "geometry(srid:4326) cannot be written" in str(raised.value.errors[0])


def test_the_table_with_the_most_rows_goes_to_disk_first(tmp_path: Path) -> None:
    budget = MemoryBudget(10_000)
    big, small = (
        TableStager(table(COLUMNS, folder=tmp_path / name), config(), Epoch(7, "a1b2"), "0", budget)
        for name in ("big", "small")
    )
    big.add(big.prepare(batch([row(0, 1, "y" * 9_000)])))
    small.add(small.prepare(batch([row(1, 2, "z" * 2_000)])))
    assert big.buffered_bytes == 0
    assert 2_000 <= small.buffered_bytes == budget.used < 3_000
    assert [r["id"] for r in read(big.close_cycle(1, ORDERS_0))] == [1]
    small.discard()
    big.discard()
    assert budget.used == 0
