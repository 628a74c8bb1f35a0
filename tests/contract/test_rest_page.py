"""The files and the HTTP headers of `/ui` and `/docs`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fake_herder import FakeHerder
from rest_serving import error, serving

from connect_py.api.secret_keys import SECRET_KEY
from connect_py.herder.herder import WorkerInfo
from connect_py.metrics.samples import AnySample, OwnSample, Sample
from rest.app import RestOptions, create_app
from rest.basic_auth import BasicAuth

STATIC = Path(__file__).parents[2] / "rest" / "ui" / "static"
JSON = {"Content-Type": "application/json"}


class GroupHerder(FakeHerder):
    """Knows a group of one worker, and measurements of two connectors."""

    def workers(self) -> list[WorkerInfo]:
        return [WorkerInfo("http://h:1/", "h:1", leads=True, is_self=True)]

    def metrics(self) -> list[AnySample]:
        names = ("a", 'b"\n\\')
        clients = ("connector-consumer-a-0", "connector-consumer-a-b-0")
        samples = [
            OwnSample("connect_py_demo", "A test's own.", 1.0, {"connector": name})
            for name in names
        ]
        group = "consumer-fetch-manager-metrics"
        return [
            *samples,
            *(
                Sample(group, "records-lag", 7, {"client-id": each}, "kafka.consumer")
                for each in clients
            ),
        ]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(create_app(GroupHerder())) as client:
        yield client


def test_pages_and_their_files_stay_with_this_host(client: httpx.Client) -> None:
    for path in ("/ui", "/docs", *(f"/ui/{each.name}" for each in STATIC.iterdir())):
        answer = client.get(path)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_no_file_of_the_page_names_another_host() -> None:
    allowed = {"http://www.w3.org/2000/svg"}  # the name of a language, which no browser asks for
    for file in STATIC.iterdir():
        text = file.read_text()
        assert set(re.findall(r"https?://[\w./-]+", text)) <= allowed, file.name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text
        ), file.name


def test_files_outside_of_the_page_are_not_served(client: httpx.Client) -> None:
    for path in (
        "/ui/nothing.js",
        "/ui/..%2Fpage_files.py",
        "/ui/%2Fetc%2Fpasswd",
        "/ui/__init__.py",
    ):
        assert error(client.get(path))[0] == 404, path
    assert client.post("/ui").status_code == 405


def test_address_with_a_slash_leads_to_the_page(client: httpx.Client) -> None:
    answer = client.get("/ui/")
    assert (answer.status_code, answer.headers["location"]) == (308, "../ui")


def test_page_that_is_switched_off_is_unknown() -> None:
    with serving(create_app(FakeHerder(), RestOptions(page=False))) as client:
        for path in ("/ui", "/docs", "/ui/page.js", "/ui/worker.json"):
            assert error(client.get(path)) == (404, "HTTP 404 Not Found")
        assert client.get("/").json()["version"] == "4.1.1"


def test_browser_is_asked_for_a_login_by_pages_only() -> None:
    auth = BasicAuth({"ann": "secret"})
    with serving(create_app(FakeHerder(), RestOptions(auth=auth))) as client:
        for path in ("/ui", "/docs", "/ui/page.js", "/ui/worker.json"):
            refused = client.get(path)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Basic ")
            assert client.get(path, auth=("ann", "secret")).status_code == 200
        assert "www-authenticate" not in client.get("/connectors").headers


def test_page_learns_workers_and_which_values_are_secret(client: httpx.Client) -> None:
    worker = client.get("/ui/worker.json").json()
    assert worker["workers"] == [
        {"worker_id": "h:1", "url": "http://h:1/", "leader": True, "here": True}
    ]
    assert worker["secret_keys"] == SECRET_KEY.pattern


def test_measurements_of_one_connector_are_picked_out(client: httpx.Client) -> None:
    metrics = client.get("/ui/metrics.txt", params={"connector": 'b"\n\\', "worker": "h:1"}).text
    assert metrics == 'connect_py_demo{connector="b\\"\\n\\\\"} 1.0\n'
    lines = client.get("/ui/metrics.txt", params={"connector": "a"}).text.splitlines()
    assert [line.partition("{")[2] for line in lines] == [
        'connector="a"} 1.0',
        'client_id="connector-consumer-a-0"} 7.0',
    ]
    assert error(client.get("/ui/metrics.txt", params={"worker": "evil:80"}))[0] == 404


@pytest.fixture(scope="module")
def allowing() -> Iterator[httpx.Client]:
    with serving(create_app(FakeHerder(), RestOptions(origins=r"https://ours\.example"))) as client:
        yield client


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 204),  # no browser
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://proxy.example"}, 204),
        ({"Sec-Fetch-Site": "none"}, 204),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "https://other.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        # according to access.control.allow.origin
        ({"Origin": "https://ours.example", "Sec-Fetch-Site": "cross-site"}, 204),
    ],
)
def test_pages_of_other_sites_change_nothing(
    allowing: httpx.Client, headers: dict[str, str], status: int
) -> None:
    assert allowing.post("/connectors/a/restart", headers=headers).status_code == status
    assert allowing.get("/connectors", headers=headers).status_code == 200
    # browsers ask before they send it
    assert allowing.delete("/connectors/zz", headers=headers).status_code == 404


def test_page_of_the_worker_itself_may_change_things(client: httpx.Client) -> None:
    origin = f"http://{client.base_url.host}:{client.base_url.port}"
    assert client.post("/connectors/a/restart", headers={"Origin": origin}).status_code == 204
