"""Failover, freshness, and messages of servers that are away; sockets of this machine stand for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from helios.catalog.diagnosis import DIAGNOSES, diagnose
from helios.catalog.spec import Catalog
from helios.errors import ConfigError, RunError

pytestmark = pytest.mark.promise("replicas")

AWAY = "http://127.0.0.1:1"


class _Empty(BaseHTTPRequestHandler):
    """A REST catalog without namespaces, as the protocol has it."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = b'{"defaults": {}, "overrides": {}}' if "config" in self.path else b'{"namespaces": []}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Empty", (_Empty,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}", asked
        httpd.shutdown()
        thread.join()


def test_the_next_replica_is_asked_and_remembered(server: tuple[str, list[str]]) -> None:
    uri, asked = server
    catalog = Catalog.rest("prod", uri=[AWAY, uri])
    assert catalog.namespaces() == []
    assert catalog.namespaces() == []
    assert [path.split("?")[0] for path in asked] == ["/v1/config", "/v1/namespaces", "/v1/namespaces"]


def test_all_replicas_away_is_one_message() -> None:
    with pytest.raises(RunError) as error:
        Catalog.rest("prod", uri=[AWAY, "http://127.0.0.1:2"]).namespaces()
    assert "nothing listens at its address" in error.value.what
    assert "all replicas were tried" in error.value.what
    assert error.value.fix == "check its host and port, and that the server is up."


def test_a_replica_that_refuses_is_the_only_one_that_was_tried(server: tuple[str, list[str]]) -> None:
    uri, _ = server
    with pytest.raises(ConfigError) as error:
        Catalog.rest("prod", uri=[f"{uri}/config/nothing", AWAY]).load("a.b")
    assert "replicas" not in error.value.what


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("HTTP status code: 403, no body", "forbidden"),
        ("Server said 503", "away"),
        ("Failed to resolve 'prod-403.example.com' ([Errno -2] Name or service not known)", "dns"),
        ("logs-401/x: Connection refused (host='a', port=419)", "refused"),
        ("An error occurred (ExpiredToken) when calling the operation", "expired token"),
        ("AWS Error ACCESS_DENIED during HeadObject operation", "forbidden"),
        ("AuthorizationHeaderMalformed: the region 'us-east-1' is wrong; expecting 'eu-west-1'", "wrong region"),
        ("AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation", "no bucket"),
        ("SignatureDoesNotMatch", "wrong secret"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "tls"),
        ("java.lang.ClassNotFoundException: org.apache.iceberg.aws.s3.S3FileIO", "no jar"),
        ("No module named 'boto3'", "no boto3"),
        ("[Errno -2] Name or service not known", "dns"),
        ("Read timed out. (read timeout=60)", "timeout"),
    ],
)
def test_symptoms_have_causes_also_when_they_are_wrapped(said: str, name: str) -> None:
    try:
        try:
            raise OSError(said)
        except OSError as inner:
            raise ValueError("wrapped") from inner
    except ValueError as error:
        found = diagnose(error)
    assert found is not None
    assert found.name == name


def test_what_nobody_knows_is_no_diagnosis() -> None:
    assert diagnose(ValueError("the moon is full")) is None


def test_every_diagnosis_is_named_once_and_has_a_fix() -> None:
    names = [row.name for row in DIAGNOSES]
    assert len(names) == len(set(names))
    assert all(row.cause and row.fix and not row.fix.endswith(".") for row in DIAGNOSES)
