"""One scenario of requests to the real Java worker and to ours; whatever differs is listed here,
with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from java_worker import JavaWorker
from side_by_side import Difference, SideBySide, side_by_side
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

J = {"Content-Type": "application/json"}
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
TRANSFORMS = "org.apache.kafka.connect.transforms"
GROUP = "side-by-side"
TOPIC = "lines"
LINES = 5
FILE = "/etc/hostname"  # any small existing file
# Kafka's, the Iceberg sink's, ours
VERSIONS = "|".join(map(re.escape, ("4.1.1", "1.11.0", version("connect-py"))))
CROSS_ORIGIN = {
    "access.control.allow.origin": r"https://.*\\.example\\.com,http://ui",
    "access.control.allow.methods": "PUT",
}
COMPATIBILITY = Path(__file__).parents[2] / "docs" / "compatibility.md"

pytestmark = [pytest.mark.timeout(360), pytest.mark.long]


# --- the differences: each is a row of docs/compatibility.md, under its first cell

UNTYPED = "errors of routing and of media types have no `Content-Type`"
PAGES = "a malformed path or media type is answered by the server's own page"
ENCODED = "names with an encoded slash or per cent sign cannot be addressed"
NO_NUMBER = "`OPTIONS` knows a task that is no number"
PARSER = "what follows the first words of a parser's complaint"
TWO_FAULTS = "of two faults in a body, the one that comes first is reported"
NO_CLASS = "a configuration without a class is shown in the error"
AVAILABLE = "available connectors are listed with all that the loader knows"
RENAMED = "`PATCH` stores another `name`"
BRACES = "a name with braces is created, and answered with 500"
TRACES = "traces are Java's"
PLUGIN_VERSIONS = "plugins of Kafka have version 4.1.1"  # `VERSIONS` are taken for equal
OTHER_PLUGINS = "plugins of others that come with us"
ORDER = "definitions have `order`"
DOCUMENTATION = "texts of documentation"
TOPICS = "`topics` may repeat or lack names"
EXPRESSIONS = "why a regular expression is wrong"
HASHED = "keys of converters come in the order of a hash"
NULLS = "a null for a key of the connector is not reported"
BATCH_SIZE = "`batch.size` of FileStreamSource may be 0"
PROVIDERS = "`config.providers` of a connector's configuration are looked at"
MEMBERS = (
    "members of a source partition in another order make a partition of its own, and the "
    "first is forgotten"
)
KEYS_NAMED = "not every error of a refused configuration names its key"
SCHEMA_CONTENT = "`schema.content` of JsonConverter comes with 4.3"

DEFINITIONS = (
    Difference(DOCUMENTATION, "*", "*.documentation"),
    Difference(ORDER, "*", "*.order_in_group", java="<missing>"),
)
BODIES = (
    Difference(PARSER, "*", "body.explanation"),
    Difference(
        NO_CLASS,
        "*",
        "body.message",
        "*Connector config {*} contains no connector type",
        "*Connector config contains no connector type",
    ),
)


def test_documentation_lists_exactly_the_known_rest_api_differences() -> None:
    """One row for each in the table of the documentation, and none more."""
    text = COMPATIBILITY.read_text()
    section = text.split("## Answers of the REST API", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")][2:]
    listed = {value for name, value in globals().items() if name.isupper() and value in rows}
    assert sorted(listed) == sorted(rows)


# --- two workers


@pytest.fixture(scope="module")
def pair(
    kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SideBySide]:
    """A Java worker and one of ours, each on a separate broker, with the same names."""
    root = tmp_path_factory.mktemp("side-by-side")
    with KafkaBroker() as java_broker:
        for broker in (java_broker, kafka_broker):
            fill_topic(broker)
        java = JavaWorker(root / "java", java_broker.bootstrap_servers, GROUP, CROSS_ORIGIN)
        ours = WorkerProcess(root / "ours", kafka_broker.bootstrap_servers, GROUP, CROSS_ORIGIN)
        with side_by_side(java, ours, {rf"\b({VERSIONS})\b": "<version>"}) as pair:
            yield pair


def fill_topic(broker: KafkaBroker) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    producer = Producer(servers)
    for number in range(LINES):
        producer.produce(TOPIC, f"line {number}".encode())
    producer.flush(30)


def sink(**changes: Any) -> dict[str, Any]:
    return {
        "connector.class": "FileStreamSink",
        "topics": TOPIC,
        "file": "/dev/null",
        "value.converter": STRINGS,
        **changes,
    }


def source(**changes: Any) -> dict[str, Any]:
    return {
        "connector.class": SOURCE,
        "file": FILE,
        "topic": "lines-out",
        "value.converter": STRINGS,
        "topic.creation.default.replication.factor": 1,
        "topic.creation.default.partitions": 1,
        **changes,
    }


# --- HTTP


def test_cross_origin_requests_get_the_same_answers_as_java(pair: SideBySide) -> None:
    untyped = Difference(
        UNTYPED, "* /nope*", "header content-type", "<missing>", "application/json"
    )
    with pair.differing_only_in(untyped) as ask:
        for origin in (
            "https://a.example.com",
            "https://A.EXAMPLE.COM",
            "https://a.example.com.evil",
            "http://ui",
            "x",
        ):
            preflight = {"Origin": origin, "Access-Control-Request-Method": "PUT"}
            ask("OPTIONS", "/connectors", headers=preflight, name=f"before a call from {origin}")
            for method, path in (
                ("GET", "/connectors"),
                ("GET", "/nope"),
                ("DELETE", "/connectors/zz"),
            ):
                ask(method, path, headers={"Origin": origin}, name=f"from {origin}")


def test_every_path_and_method_answers_the_same_as_java(pair: SideBySide) -> None:
    with pair.differing_only_in(
        Difference(UNTYPED, "*", "header content-type", "<missing>", "application/json"),
        Difference(PAGES, "*", "header content-type", "text/html*", "application/json"),
        Difference(PAGES, "*", "body", "a page", "{'message': 'HTTP 400 Bad Request'}"),
        Difference(PAGES, "OPTIONS *", "body", "<missing>", "{'message': 'HTTP 400 Bad Request'}"),
        Difference(PAGES, "*", "header vary", "<missing>", "Origin"),
        Difference(ENCODED, "* /connectors/a%2*b", "status", "400"),
        Difference(NO_NUMBER, "OPTIONS /connectors/zz/tasks/*/status", "status", "200", "404"),
    ) as ask:
        for path in (
            "/",
            "/health",
            "/health/",
            "/nope",
            "/connectors",
            "/connectors/",
            "/connectors/zz/fence",
            "//",
            "/connectors//status",
            "/connectors/zz/tasks/0",
            "/connectors/zz/tasks/x/status",
            "/connectors/zz/tasks/01/status",
            "/connectors/zz/tasks/%2B1/status",
            "/connectors/zz/tasks/-1/status",
            "/connectors/zz/tasks/4294967296/status",
            "/connectors/zz;a=b/status",
            "/connectors/zz/tasks-config",
            "/CONNECTORS",
            "/connectors/z+z",
            "/connectors/z%20z/status",
            "/connectors/z%C3%A9/status",
            "/connectors/%zz",
            "/connectors/%FF",
            "/connectors/a%2Fb",
            "/connectors/a%25b",
        ):
            for method in ("GET", "HEAD", "OPTIONS"):
                ask(method, path)
        for path in (
            "",
            "/config",
            "/status",
            "/restart",
            "/pause",
            "/resume",
            "/stop",
            "/tasks",
            "/tasks/0/status",
            "/tasks/0/restart",
            "/topics",
            "/topics/reset",
            "/offsets",
        ):
            ask("OPTIONS", f"/connectors/zz{path}")
        for path in (
            "/connector-plugins",
            "/connector-plugins/x/config",
            "/connector-plugins/x/config/validate",
        ):
            ask("OPTIONS", path)
        for path in ("/admin/loggers", "/admin/loggers/zz"):
            ask("OPTIONS", path)
        ask("OPTIONS", "/connectors", headers={"Accept": "application/json"}, name="json")
        for method in ("POST", "PUT", "DELETE", "PATCH", "TRACE", "FOO"):
            ask(method, "/")
            ask(method, "/nope")
            ask(method, "/connectors" if method != "POST" else "/connectors/zz", headers=J)
            ask(method, "/connectors/zz/status", headers=J)


BODY_ENDPOINTS = (
    ("POST", "/connectors"),
    ("PUT", "/connectors/zz/config"),
    ("PATCH", "/connectors/zz/config"),
    ("PATCH", "/connectors/zz/offsets"),
    ("PUT", "/connector-plugins/FileStreamSink/config/validate"),
    ("PUT", "/admin/loggers/some.logger"),
)
BODILESS_ENDPOINTS = (
    ("PUT", "/connectors/zz/pause"),
    ("PUT", "/connectors/zz/resume"),
    ("PUT", "/connectors/zz/stop"),
    ("POST", "/connectors/zz/restart"),
    ("POST", "/connectors/zz/tasks/0/restart"),
    ("PUT", "/connectors/zz/topics/reset"),
    ("DELETE", "/connectors/zz"),
    ("DELETE", "/connectors/zz/offsets"),
)


def test_media_types_are_accepted_and_refused_the_same_as_java(pair: SideBySide) -> None:
    with pair.differing_only_in(
        Difference(UNTYPED, "*", "header content-type", "<missing>", "application/json"),
        Difference(PAGES, "* (garbage*)", "status", "400", "415"),
        *BODIES[:1],
    ) as ask:
        browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
        for accept in (
            "text/html",
            "application/xml",
            "text/plain",
            "garbage",
            "*/*",
            "application/*",
            "",
            "application/json;q=0",
            browser,
            "application/json;charset=utf-8",
        ):
            for path in ("/connectors", "/nope", "/connectors/zz"):
                ask("GET", path, headers={"Accept": accept}, name=f"Accept: {accept}")
            ask("PUT", "/connectors/zz/pause", headers={"Accept": accept}, name=f"Accept: {accept}")
        for method, path in (*BODY_ENDPOINTS, *BODILESS_ENDPOINTS):
            for kind in (
                "application/x-www-form-urlencoded",
                "text/plain",
                "application/merge-patch+json",
                "application/json; charset=utf-8",
                "APPLICATION/JSON",
                "garbage",
            ):
                ask(method, path, headers={"Content-Type": kind}, body=b"", name=f"{kind}, empty")
                ask(method, path, headers={"Content-Type": kind}, body=b"{bad", name=kind)
            ask(method, path, body=b"{bad", name="no type")
            ask(method, path, name="nothing")


BAD_JSON = (
    "",
    " \n",
    "null",
    "{bad",
    "[]",
    "[1]",
    '"text"',
    "1",
    "1.5",
    "true",
    "{} {}",
    "{} x",
    "{} }",
    "{} -1",
    "{}\n\n",
    '{"a":NaN}',
    '{"a":tru}',
    '{"a":01}',
    "{'a':1}",
    '{"a":1,}',
    '{"a"',
    '{"a":"\x01"}',
    '{"a":"',
    "//c\n{}",
    '{"config":{"a":{"y":1}}}',
    '{"config":{"a":[1]}}',
    '{"a":{"y":1}}',
    '{"a":[1]}',
    '{"a" 1}',
    '{"a":-}',
    '{"a":1.}',
    '{"a":"\\x"}',
    "[",
    '{"a":+1}',
    "{",
    "}",
    '{"name":{"a":1}}',
    '{"config":[]}',
    '{"config":"x"}',
    '{"config":1}',
    '{"foo":1}',
    '{"offsets":{}}',
    '{"offsets":[1]}',
    '{"offsets":[{"foo":1}]}',
    '{"offsets":[null]}',
    '{"level":{"a":1}}',
    '{"level":[]}',
)


def test_bodies_that_are_no_json_or_the_wrong_json(pair: SideBySide) -> None:
    with pair.differing_only_in(
        *BODIES,
        Difference(
            TWO_FAULTS,
            "* ('[')",
            "body.message",
            "Cannot deserialize value*",
            "Unexpected end-of-input",
        ),
    ) as ask:
        for method, path in BODY_ENDPOINTS:
            for text in BAD_JSON:
                ask(method, path, headers=J, body=text, name=repr(text))
            ask(method, path, headers=J, body=b'{"a":"\xff"}', name="bad utf-8")
            ask(method, path, headers=J, body="\ufeff{}".encode(), name="byte order mark")
            ask(method, path, headers=J, body="{}".encode("utf-16"), name="utf-16")


# --- lifecycle of connectors


def test_sink_lifecycle_requests_answer_the_same_as_java(pair: SideBySide) -> None:
    with pair.differing_only_in(
        *BODIES,
        Difference(RENAMED, "PATCH /connectors/a/config (other name)", "status", "200", "400"),
    ) as ask:
        config = sink(**{"tasks.max": 2, "x.flag": True, "x.number": 1.50})
        ask("POST", "/connectors", json_body={"name": " a\t", "config": config})
        pair.wait_for_states("a", "RUNNING", "RUNNING", "RUNNING")
        read_all(pair, "running")
        pair.wait_for_topics("a", TOPIC)
        ask("GET", "/connectors/a/topics", name="used")
        ask("GET", "/connectors/a/tasks/1/status")
        ask("GET", "/connectors/a/tasks/7/status")
        ask("HEAD", "/connectors/a")
        for query in (
            "expand=status",
            "expand=info",
            "expand=status&expand=info",
            "expand=info&expand=status",
            "expand=info,status",
            "expand",
            "expand=",
            "expand=STATUS",
        ):
            ask("GET", f"/connectors?{query}")
        ask("POST", "/connectors", json_body={"name": "a", "config": sink()}, name="again")
        ask(
            "POST",
            "/connectors",
            json_body={"name": "a", "config": {"connector.class": SINK}},
            name="invalid again",
        )

        ask("PUT", "/connectors/a/config", json_body=sink(name="a"), name="replace")
        pair.wait_for_states("a", "RUNNING", "RUNNING")
        read_all(pair, "replaced")
        ask("PUT", "/connectors/a/config", json_body=sink(name="z"), name="other name")
        ask("PUT", "/connectors/a/config", json_body=sink(name=None), name="null name")
        pair.wait_for_states("a", "RUNNING", "RUNNING")
        ask(
            "PUT",
            "/connectors/a/config",
            json_body={"name": "a", "config": sink()},
            name="as for POST",
        )
        ask("PUT", "/connectors/a/config", json_body={}, name="empty")
        ask(
            "PATCH",
            "/connectors/a/config",
            json_body={"x.number": 7, "file": None, "nothing": None},
        )
        pair.wait_for_states("a", "RUNNING", "RUNNING")
        # either answers the PATCH before it has made tasks of it
        pair.wait_for_task_config("a", {"x.number": "7"})
        read_all(pair, "patched")
        ask("PATCH", "/connectors/a/config", json_body={"topics": None}, name="invalid")
        ask("PATCH", "/connectors/a/config", json_body={"name": None}, name="null name")
        ask("PATCH", "/connectors/a/config", json_body={"name": "other"}, name="other name")
        ask("PUT", "/connectors/a/config", json_body=sink(), name="restored")
        ask("PATCH", "/connectors/a/config", json_body={}, name="empty")
        pair.wait_for_states("a", "RUNNING", "RUNNING")
        pair.wait_for_task_config("a", {"x.number": None})

        ask("PUT", "/connectors/a/pause")
        pair.wait_for_states("a", "PAUSED", "PAUSED")
        read_all(pair, "paused")
        ask("PUT", "/connectors/a/pause", name="again")
        ask("POST", "/connectors/a/restart", name="paused")
        pair.wait_for_states("a", "PAUSED", "PAUSED")
        ask("PUT", "/connectors/a/resume")
        pair.wait_for_states("a", "RUNNING", "RUNNING")
        ask("PUT", "/connectors/a/stop")
        pair.wait_for_states("a", "STOPPED")
        read_all(pair, "stopped")
        ask("PUT", "/connectors/a/stop", name="again")
        ask("POST", "/connectors/a/restart?includeTasks=true", name="stopped")
        pair.wait_for_states("a", "STOPPED")
        ask("PUT", "/connectors/a/pause", name="stopped")
        pair.wait_for_states("a", "PAUSED")
        read_all(pair, "stopped, then paused")
        ask("PUT", "/connectors/a/resume", name="from stopped")
        pair.wait_for_states("a", "RUNNING", "RUNNING")

        for query in ("", "?includeTasks=yes", "?includeTasks=true", "?onlyFailed=TRUE"):
            ask("POST", f"/connectors/a/restart{query}")
            pair.wait_for_states("a", "RUNNING", "RUNNING")
        ask("POST", "/connectors/a/restart?onlyFailed=true&includeTasks=true")
        for task in ("0", "7", "x", "-1"):
            ask("POST", f"/connectors/a/tasks/{task}/restart")
        pair.wait_for_states("a", "RUNNING", "RUNNING")

        ask("PUT", "/connectors/a/topics/reset")
        pair.wait_for_topics("a")
        ask("GET", "/connectors/a/topics", name="reset")
        ask("DELETE", "/connectors/a")
        pair.wait_until_deleted("a")
        read_all(pair, "deleted")
        ask("DELETE", "/connectors/a", name="again")


def read_all(pair: SideBySide, name: str) -> None:
    """Everything that can be read of connector a."""
    for path in ("", "/config", "/status", "/tasks", "/tasks/0/status"):
        pair.ask("GET", f"/connectors/a{path}", name=name)


def test_source_lifecycle_requests_answer_the_same_as_java(pair: SideBySide) -> None:
    with pair.differing_only_in() as ask:
        ask("POST", "/connectors", json_body={"name": "source", "config": source()})
        pair.wait_for_states("source", "RUNNING", "RUNNING")
        pair.wait_for_topics("source", "lines-out")
        for path in ("", "/config", "/status", "/tasks", "/topics"):
            ask("GET", f"/connectors/source{path}")
        ask("PUT", "/connectors/source/stop")
        pair.wait_for_states("source", "STOPPED")
        ask("PUT", "/connectors/source/config", json_body=sink(), name="becomes a sink")
        ask("GET", "/connectors/source", name="a sink")
        ask("GET", "/connectors/source/status", name="a sink")
        ask("DELETE", "/connectors/source")


def test_unknown_connectors_get_the_same_answers_as_java(pair: SideBySide) -> None:
    with pair.differing_only_in() as ask:
        for path in ("", "/config", "/status", "/tasks", "/tasks/0/status", "/topics", "/offsets"):
            ask("GET", f"/connectors/zz{path}")
        for path in ("/pause", "/resume", "/stop", "/topics/reset"):
            ask("PUT", f"/connectors/zz{path}")
        for path in (
            "/restart",
            "/restart?includeTasks=true",
            "/restart?onlyFailed=true",
            "/tasks/0/restart",
        ):
            ask("POST", f"/connectors/zz{path}")
        ask("PATCH", "/connectors/zz/config", json_body={"a": "b"})
        ask("PATCH", "/connectors/zz/offsets", json_body={"offsets": []}, name="none")
        ask(
            "PATCH",
            "/connectors/zz/offsets",
            json_body={"offsets": [{"partition": {}, "offset": {}}]},
            name="one",
        )
        ask("DELETE", "/connectors/zz")
        ask("DELETE", "/connectors/zz/offsets")


def test_invalid_configurations_are_refused_the_same_as_java(pair: SideBySide) -> None:
    with pair.differing_only_in(
        *BODIES,
        Difference(
            AVAILABLE,
            "POST /connectors (*)",
            "body.message",
            "Failed to find any class *, available *: PluginDesc{*",
            "Failed to find any class *, available connectors are: *",
        ),
        Difference(
            KEYS_NAMED,
            "POST /connectors (null value)",
            "body.message",
            "*\nNull value *",
            "*\nerrors.tolerance: Null value *",
        ),
        Difference(
            KEYS_NAMED,
            "POST /connectors (version that is not there)",
            "body.message",
            "*\nPlugin *",
            "*\nconnector.plugin.version: Plugin *",
        ),
        Difference(
            KEYS_NAMED,
            "POST /connectors (group of the workers)",
            "body.message",
            "*\nConsumer group *",
            "*\nconsumer.override.group.id: Consumer group *",
        ),
    ) as ask:
        for name, body in {
            "no name": {"config": sink(name="b3")},
            "blank name": {"name": " ", "config": sink()},
            "null name": {"name": None, "config": sink()},
            "control character": {"name": "a\x01b", "config": sink()},
            "no class": {"name": "x", "config": {"topics": TOPIC}},
            "null class": {"name": "x", "config": {"connector.class": None}},
            "empty class": {"name": "x", "config": {"connector.class": ""}},
            "unknown class": {"name": "x", "config": {"connector.class": "no.such.Class"}},
            "a class that is no connector": {
                "name": "x",
                "config": {"connector.class": "java.lang.String"},
            },
            "a converter": {"name": "x", "config": {"connector.class": STRINGS}},
            "no topics": {"name": "x", "config": {"connector.class": SINK}},
            "both kinds of topics": {"name": "x", "config": sink(**{"topics.regex": "a.*"})},
            "bad numbers": {
                "name": "x",
                "config": sink(**{"tasks.max": "0", "errors.retry.timeout": "x"}),
            },
            "no config": {"name": "x"},
            "null config": {"name": "x", "config": None},
            "bad initial state": {"name": "x", "config": sink(), "initial_state": "bogus"},
            "null value": {"name": "x", "config": sink(**{"errors.tolerance": None})},
            "bad version": {"name": "x", "config": sink(**{"connector.plugin.version": "["})},
            "version that is not there": {
                "name": "x",
                "config": sink(**{"connector.plugin.version": "99"}),
            },
            "bad converter": {"name": "x", "config": sink(**{"key.converter": "no.such.Class"})},
            "group of the workers": {
                "name": "x",
                "config": sink(**{"consumer.override.group.id": GROUP}),
            },
        }.items():
            ask("POST", "/connectors", json_body=body, name=name)
        ask("PUT", "/connectors/%20/config", json_body=sink())
        ask("GET", "/connectors")


def test_initial_states_names_and_failures_answer_the_same_as_java(pair: SideBySide) -> None:
    with pair.differing_only_in(
        Difference(BRACES, "POST /connectors (a{b})", "status", "500", "201"),
        Difference(
            TRACES,
            "*",
            "*.trace",
            "org.apache.kafka.connect.errors.ConnectException: Couldn't find or create*",
            "*Couldn't find or create file '/no/such/folder/lines.txt' for FileStreamSinkTask*",
        ),
    ) as ask:
        for state, settled in {
            "STOPPED": ["STOPPED"],
            "paused": ["PAUSED"],
            "running": ["RUNNING", "RUNNING"],
        }.items():
            body = {"name": "held", "config": sink(), "initial_state": state}
            ask("POST", "/connectors", json_body=body, name=state)
            pair.wait_for_states("held", *settled)
            ask("GET", "/connectors/held/status", name=state)
            ask("DELETE", "/connectors/held", name=state)
            pair.wait_until_deleted("held")
        addressable = ("a b", "é", "a+b", "a?b#c", "a;b", "a[b]", "a'b\"c", "a&b=c:d,e@f!g~h")
        # the others stay: Java cannot name them
        for name in (*addressable, "a/b", "a%b", "a%41b", "a\\b", "a{b}"):
            body = {"name": name, "config": sink(), "initial_state": "STOPPED"}
            ask("POST", "/connectors", json_body=body, name=name)
            if name in addressable:
                path = f"/connectors/{quote(name)}"
                pair.wait_for_states(quote(name), "STOPPED")
                ask("GET", f"{path}/status")
                ask("PUT", f"{path}/config", json_body=sink())
                ask("DELETE", path)
        ask("PUT", "/connectors/failing/config", json_body=sink(file="/no/such/folder/lines.txt"))
        pair.wait_for_states("failing", "RUNNING", "FAILED")
        ask("GET", "/connectors/failing/status")
        ask("GET", "/connectors/failing/tasks/0/status")
        ask("POST", "/connectors/failing/restart?onlyFailed=true")
        ask("POST", "/connectors/failing/restart?onlyFailed=true&includeTasks=true")
        pair.wait_for_states("failing", "RUNNING", "FAILED")
        ask("DELETE", "/connectors/failing")


# --- plugins and validation


SHARED_TRANSFORMATIONS = (
    "Cast$Key",
    "Cast$Value",
    "DropHeaders",
    "ExtractField$Value",
    "Filter",
    "Flatten$Value",
    "HeaderFrom$Value",
    "HoistField$Value",
    "InsertField$Key",
    "InsertField$Value",
    "InsertHeader",
    "MaskField$Value",
    "RegexRouter",
    "ReplaceField$Value",
    "SetSchemaMetadata$Value",
    "TimestampConverter$Value",
    "TimestampRouter",
    "ValueToKey",
)


def test_connector_plugins_and_their_configs_are_the_same_as_java(pair: SideBySide) -> None:
    with pair.differing_only_in(
        *DEFINITIONS,
        Difference(OTHER_PLUGINS, "GET /connector-plugins", "body[sink *", java="<missing>"),
        Difference(
            OTHER_PLUGINS, "GET /connector-plugins?connectorsOnly=*", "body[*", java="<missing>"
        ),
        Difference(SCHEMA_CONTENT, "*/Json*/config", "body[schema.content]", java="<missing>"),
    ) as ask:
        ask("GET", "/connector-plugins")
        for value in ("false", "", "1"):
            ask("GET", f"/connector-plugins?connectorsOnly={value}")
        for plugin in (
            "FileStreamSink",
            "FileStreamSinkConnector",
            SINK,
            SOURCE,
            "filestreamsink",
            "no.such.Class",
            "Json",
            "JsonConverter",
            STRINGS,
            "SimpleHeaderConverter",
            "Filter",
            "RecordIsTombstone",
            "InsertField",
            "InsertField$Key",
            "Key",
            "RegexRouter",
            "TopicNameMatches",
            "HasHeaderKey",
            "FileConfigProvider",
            "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
            *(f"{TRANSFORMS}.{name}" for name in SHARED_TRANSFORMATIONS),
        ):
            ask("GET", f"/connector-plugins/{plugin}/config")
        for kind in ("Boolean", "ByteArray", "Double", "Float", "Integer", "Long", "Short"):
            ask(
                "GET",
                f"/connector-plugins/org.apache.kafka.connect.converters.{kind}Converter/config",
            )
        for spec in ("latest", "LATEST", "", "99", "[", "x%20y", "[1,2)"):
            ask("GET", f"/connector-plugins/FileStreamSink/config?version={spec}")


SINGLE_VALUES = {
    "tasks.max": "abc",
    "tasks.max.enforce": "yes",
    "errors.retry.timeout": "1.5",
    "errors.retry.delay.max.ms": "99999999999999999999",
    "errors.tolerance": "some",
    "errors.log.enable": "1",
    "config.action.reload": "sometimes",
    "errors.deadletterqueue.topic.replication.factor": "70000",
    "key.converter": "no.such.Class",
    "value.converter": SINK,
    "header.converter": STRINGS,
    "connector.plugin.version": "98",
    "key.converter.plugin.version": "99",
    "transforms": "a,a",
    "predicates": "p, p",
    "file": "",
    "unknown.key": "x",
    "consumer.override.max.poll.records": "5",
    "consumer.override.no.such.key": "x",
    "producer.override.acks": "1",
    "admin.override.client.id": "x",
    "consumer.override.group.id": GROUP,
    "value.converter.schemas.enable": "zzz",
    "offsets.storage.topic": "x",
    "consumer.override.sasl.jaas.config": 'm.PlainLoginModule required username="a" password="b";',
}


def test_sink_configurations_are_validated_the_same_as_java(pair: SideBySide) -> None:
    path, full = "/connector-plugins/{}/config/validate", {"name": "v", **sink()}
    alias = {**full, "transforms": "a", "predicates": "p"}
    regex = {"name": "v", "connector.class": SINK, "topics.regex": "d.*"}
    with pair.differing_only_in(
        *DEFINITIONS,
        *BODIES[1:],
        Difference(
            AVAILABLE,
            "* (unknown class)",
            "body.message",
            "*Failed to find any class *: PluginDesc{*",
            "*Failed to find any class *, available connectors are: *",
        ),
        Difference(
            OTHER_PLUGINS, "*", "body.configs[*].value.recommended_values[*", java="<missing>"
        ),
        Difference(SCHEMA_CONTENT, "*", "body.configs[*.schema.content]", java="<missing>"),
        Difference(HASHED, "* (json converter)", "body.configs order"),
        Difference(HASHED, "* (json converter)", "body.groups order"),
        Difference(PROVIDERS, "* (providers)", "status", "500", "200"),
        Difference(EXPRESSIONS, "*", "body.configs[*].value.errors[*: Invalid regex: *"),
        Difference(TOPICS, "* (doubled topics)", "*"),
        Difference(NULLS, "* (file null)", "*"),
    ) as ask:
        for name, plugin, config in (
            ("good", "FileStreamSink", full),
            ("nothing", "FileStreamSink", {}),
            ("no class", "FileStreamSink", {"name": "v"}),
            ("unknown class", "FileStreamSink", {"connector.class": "no.such.FileStreamSink"}),
            ("other class", SINK, full),
            ("ending of the class", "Sink", {**full, "connector.class": SINK}),
        ):
            ask("PUT", path.format(plugin), json_body=config, name=name)
        for name, config in {
            "no name": sink(),
            "blank name": {**full, "name": " "},
            "no topics": {"name": "v", "connector.class": SINK},
            "blank topics": {**full, "topics": "  "},
            "topics and regex": {**full, "topics.regex": "a"},
            "regex": regex,
            "bad regex": {**regex, "topics.regex": "("},
            "doubled topics": {**full, "topics": "a, a ,b,"},
            "dead letters among topics": {**full, "errors.deadletterqueue.topic.name": TOPIC},
            "dead letters match": {**regex, "errors.deadletterqueue.topic.name": "dlq"},
            "name of the worker group": {**full, "name": GROUP},
            "override of the wrong type": {**full, "consumer.override.max.poll.records": "x"},
            "providers": {
                **full,
                "config.providers": "f",
                "config.providers.f.class": "x",
                "file": "${no:such:key}",
            },
            "json converter": {
                **full,
                "key.converter": "JsonConverter",
                "value.converter": JSON_CONVERTER,
                "value.converter.schemas.enable": "zzz",
                "header.converter": "SimpleHeaderConverter",
            },
            "overrides with dead letters": {
                **full,
                "errors.deadletterqueue.topic.name": "dlq",
                "producer.override.linger.ms": "5",
                "consumer.override.fetch.min.bytes": "7",
                "admin.override.retries": "3",
            },
            "aliases without types": alias,
            "empty alias": {**full, "transforms": "a,"},
            "transformation": {
                **alias,
                "transforms.a.type": f"{TRANSFORMS}.InsertField$Value",
                "transforms.a.static.field": "x",
                "transforms.a.predicate": "p",
                "transforms.a.negate": "maybe",
                "predicates.p.type": "TopicNameMatches",
                "predicates.p.pattern": "(",
                "transforms.b.x": "1",
            },
            "transformation with what is missing": {
                **alias,
                "transforms.a.type": "RegexRouter",
                "predicates.p.type": "TopicNameMatches",
            },
            "unknown classes of aliases": {
                **alias,
                "transforms.a.type": "no.such.Class",
                "predicates.p.type": STRINGS,
            },
            "negate alone": {
                **full,
                "transforms": "a",
                "transforms.a.type": "Filter",
                "transforms.a.negate": "true",
            },
            "versions of aliases": {
                **alias,
                "transforms.a.type": "Filter",
                "transforms.a.plugin.version": "99",
                "predicates.p.type": "RecordIsTombstone",
                "predicates.p.plugin.version": "99",
            },
            "two transformations": {
                **full,
                "transforms": "b,a",
                "transforms.a.type": f"{TRANSFORMS}.ReplaceField$Value",
                "transforms.a.renames": "x",
                "transforms.b.type": "RegexRouter",
                "transforms.b.regex": "(",
            },
            **{f"{key}={value}": {**full, key: value} for key, value in SINGLE_VALUES.items()},
            **{
                f"{key} null": {**full, key: None}
                for key in (
                    "tasks.max",
                    "transforms",
                    "topics",
                    "file",
                    "name",
                    "connector.class",
                    "unknown.key",
                    "errors.tolerance",
                    "value.converter",
                    "connector.plugin.version",
                )
            },
        }.items():
            ask("PUT", path.format("FileStreamSink"), json_body=config, name=name)


def test_source_configurations_are_validated_the_same_as_java(pair: SideBySide) -> None:
    plain = {"name": "v", "connector.class": SOURCE, "topic": "t"}
    values = {
        "exactly.once.support": "required",
        "transaction.boundary": "connector",
        "transaction.boundary.interval.ms": "-1",
        "topic.creation.groups": "g,g",
        "offsets.storage.topic": " ",
        "topic.creation.default.partitions": "x",
        "consumer.override.client.id": "x",
        "admin.override.client.id": "x",
        "producer.override.client.id": "x",
    }
    admin = {"admin.override.client.id": "x"}
    with pair.differing_only_in(
        *DEFINITIONS,
        Difference(OTHER_PLUGINS, "*", "*.recommended_values[io.*", java="<missing>"),
        Difference(BATCH_SIZE, "* (small batches)", "*"),
    ) as ask:
        for name, config in {
            "source": plain,
            "no topic": {"name": "v", "connector.class": SOURCE},
            "small batches": {**plain, "batch.size": "0"},
            **{f"{key}={value}": {**plain, key: value} for key, value in values.items()},
            "topic creation": {**plain, "topic.creation.default.replication.factor": "1", **admin},
            "offsets topic": {
                **plain,
                "offsets.storage.topic": "o",
                "consumer.override.client.id": "x",
                **admin,
            },
        }.items():
            ask(
                "PUT",
                "/connector-plugins/FileStreamSource/config/validate",
                json_body=config,
                name=name,
            )


# --- offsets, loggers, calls between workers


def test_sink_offset_requests_answer_the_same_as_java(pair: SideBySide) -> None:
    partition = {"kafka_topic": TOPIC, "kafka_partition": 0}
    entry = {"partition": partition, "offset": {"kafka_offset": 2}}
    one = {"kafka_offset": 1}
    path = "/connectors/lines-to-file/offsets"
    with pair.differing_only_in() as ask:
        ask("PUT", "/connectors/lines-to-file/config", json_body=sink())
        pair.wait_for_states("lines-to-file", "RUNNING", "RUNNING")
        pair.wait_for_offsets(
            "lines-to-file",
            [({"kafka_partition": 0, "kafka_topic": TOPIC}, {"kafka_offset": LINES})],
        )
        ask("GET", path, name="running")
        ask("PATCH", path, json_body={"offsets": [entry]}, name="running")
        ask("DELETE", path, name="running")
        ask("PUT", "/connectors/lines-to-file/stop")
        pair.wait_for_states("lines-to-file", "STOPPED")
        pair.repeat_until_ok("PATCH", path, {"offsets": [entry]})  # the group may not be empty yet
        for name, offsets in {
            "good": [entry],
            "texts": [
                {
                    "partition": {"kafka_topic": TOPIC, "kafka_partition": "0"},
                    "offset": {"kafka_offset": "3"},
                }
            ],
            "more members": [{"partition": {**partition, "x": 1}, "offset": {**one, "y": [1]}}],
            "twice": [entry, {**entry, "offset": {"kafka_offset": 4}}],
            "beyond the end": [{**entry, "offset": {"kafka_offset": 999}}],
            "none": [],
            "nothing": [{}],
            "null entry": [None],
            "null partition": [{"partition": None, "offset": one}],
            "no topic": [{"partition": {"kafka_partition": 0}, "offset": one}],
            "no partition": [{"partition": {"kafka_topic": TOPIC}, "offset": one}],
            "null topic": [{"partition": {**partition, "kafka_topic": None}, "offset": one}],
            "null number": [{"partition": {**partition, "kafka_partition": None}, "offset": one}],
            "text for a number": [
                {"partition": {**partition, "kafka_partition": "x"}, "offset": one}
            ],
            "fraction": [{"partition": {**partition, "kafka_partition": 1.5}, "offset": one}],
            "no offset": [{"partition": partition, "offset": {}}],
            "null offset": [{"partition": partition, "offset": {"kafka_offset": None}}],
            "text for an offset": [{"partition": partition, "offset": {"kafka_offset": "x"}}],
            "negative": [{"partition": partition, "offset": {"kafka_offset": -1}}],
            "unknown topic": [{"partition": {**partition, "kafka_topic": "none"}, "offset": one}],
            "unknown partition": [
                {"partition": {**partition, "kafka_partition": 7}, "offset": one}
            ],
            "reset of one": [{"partition": partition, "offset": None}],
            "again": [entry],
        }.items():
            ask("PATCH", path, json_body={"offsets": offsets}, name=name)
            ask("GET", path, name=name)
        ask("PATCH", path, json_body={}, name="no member")
        ask("PATCH", path, json_body={"offsets": None}, name="null")
        ask("DELETE", path)
        ask("GET", path, name="reset")
        ask("DELETE", path, name="again")
        ask("PATCH", path, json_body={"offsets": [{**entry, "offset": None}]}, name="no group")
        ask("PUT", "/connectors/lines-to-file/pause")
        pair.wait_for_states("lines-to-file", "PAUSED")
        ask("DELETE", path, name="paused")
        ask("DELETE", "/connectors/lines-to-file")


def test_source_offset_requests_answer_the_same_as_java(pair: SideBySide) -> None:
    path, file = "/connectors/rewound/offsets", {"filename": FILE}
    with pair.differing_only_in(
        Difference(MEMBERS, "GET * (the same in another order)", "body.offsets[*"),
    ) as ask:
        ask("PUT", "/connectors/rewound/config", json_body=source())
        pair.wait_for_states("rewound", "RUNNING", "RUNNING")
        pair.wait_for_offsets("rewound", [(file, {"position": len(Path(FILE).read_bytes())})])
        ask("GET", path, name="running")
        ask("DELETE", path, name="running")
        ask("PUT", "/connectors/rewound/stop")
        pair.wait_for_states("rewound", "STOPPED")
        for name, offsets in {
            "good": [{"partition": file, "offset": {"position": 0}}],
            "more members": [{"partition": file, "offset": {"position": 1, "z": "é"}}],
            "another file": [{"partition": {"filename": "/x"}, "offset": {"position": 7}}],
            "no position": [{"partition": file, "offset": {}}],
            "text": [{"partition": file, "offset": {"position": "1"}}],
            "fraction": [{"partition": file, "offset": {"position": 1.5}}],
            "negative": [{"partition": file, "offset": {"position": -1}}],
            "null position": [{"partition": file, "offset": {"position": None}}],
            "list": [{"partition": file, "offset": {"position": 3, "z": [1]}}],
            "map": [{"partition": file, "offset": {"position": 3, "z": {"a": 1}}}],
            "null partition": [{"partition": None, "offset": {"position": 1}}],
            "no partition": [{"offset": {"position": 1}}],
            "reset of what is not there": [{"partition": {"filename": "/y"}, "offset": None}],
        }.items():
            ask("PATCH", path, json_body={"offsets": offsets}, name=name)
            ask("GET", path, name=name)
        ask(
            "PATCH",
            path,
            json_body={"offsets": [{"partition": {"filename": "/x"}, "offset": None}]},
            name="of one",
        )
        # Java may list null for a moment
        pair.wait_for_offsets("rewound", [(file, {"position": 1, "z": "é"})])
        for name, members in {
            "several": ("zz", "filename", "aa"),
            "the same in another order": ("aa", "filename", "zz"),
        }.items():
            several = {"partition": dict.fromkeys(members, "/p"), "offset": {"position": len(name)}}
            ask("PATCH", path, json_body={"offsets": [several]}, name=name)
            ask("GET", path, name=name)
        ask("DELETE", path)
        pair.wait_for_offsets("rewound", [])
        ask("DELETE", "/connectors/rewound")


def test_logger_requests_answer_the_same_as_java(pair: SideBySide) -> None:
    untyped = Difference(UNTYPED, "*", "header content-type", "<missing>", "application/json")
    with pair.differing_only_in(untyped) as ask:
        for logger in ("root", "ROOT", "none.such"):
            ask("GET", f"/admin/loggers/{logger}")
        for name, body in {
            "bad": {"level": "HIGH"},
            "none": {},
            "null": {"level": None},
            "empty": {"level": ""},
            "number": {"level": 7},
            "other members": {"x": 1},
        }.items():
            ask("PUT", "/admin/loggers/root", json_body=body, name=name)
        ask("PUT", "/admin/loggers/made.here", json_body={"level": " debug ", "x": 1})
        ask("GET", "/admin/loggers/made.here")
        ask("GET", "/admin/loggers/made")
        ask("PUT", "/admin/loggers/made.here", json_body={"level": "debug"}, name="again")
        ask("PUT", "/admin/loggers/made.there", json_body={"level": "INFO"}, name="as inherited")
        ask("PUT", "/admin/loggers/made", json_body={"level": "trace"}, name="both")
        ask("PUT", "/admin/loggers/made?scope=worker", json_body={"level": "off"})
        ask("GET", "/admin/loggers/made", name="off")
        ask("PUT", "/admin/loggers/made?scope=elsewhere", json_body={"level": "all"})
        ask("PUT", "/admin/loggers/made?scope=Cluster", json_body={"level": "fatal"})
        ask("PUT", "/admin/loggers/made?scope=cluster", json_body={"level": "HIGH"}, name="bad")
        ask("DELETE", "/admin/loggers/made", headers=J)
        ask("POST", "/admin/loggers", headers=J)


def test_internal_requests_between_workers_answer_the_same_as_java(pair: SideBySide) -> None:
    algorithm, signature = (
        "X-Connect-Request-Signature-Algorithm",
        {"X-Connect-Authorization": "AAAA"},
    )
    with pair.differing_only_in(*BODIES[1:]) as ask:
        for method, path, body in (
            ("PUT", "/connectors/zz/fence", None),
            ("POST", "/connectors/zz/tasks", b"[]"),
        ):
            for name, headers in {
                "unsigned": J,
                "wrong signature": {**J, **signature, algorithm: "HmacSHA256"},
                "unknown algorithm": {**J, **signature, algorithm: "none"},
                "no algorithm": {**J, **signature},
            }.items():
                ask(method, path, headers=headers, body=body, name=name)
        ask("POST", "/connectors?forward=false", json_body={"name": "x", "config": {}})
