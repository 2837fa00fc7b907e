"""The doctor's looks at catalogs and storages, without servers."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from helios import Catalog, Storage
from helios.catalog.diagnosis import brief, diagnose, evidence
from helios.catalog.probe import (
    TooLong,
    catalog_credentials,
    reach,
    storage_addresses,
    storage_credentials,
    with_time_limit,
)

pytestmark = pytest.mark.promise("doctor")

SAID = {
    "OSError: AWS Error UNKNOWN (HTTP status 403): RequestTimeTooSkewed: The difference is too large": "clock",
    "ExpiredToken: The provided token has expired.": "expired token",
    "AWS Error NETWORK_CONNECTION: curlCode: 28, Timeout was reached; Details: Operation too slow": "timeout",
    "AWS Error NETWORK_CONNECTION: curlCode: 28, Timeout was reached; Details: Connection timed out": "connect timeout",
    "Could not resolve host: lake.minio": "dns",
    "AWS Error PermanentRedirect during ListObjectsV2 operation": "wrong region",
    "An error occurred (InvalidAccessKeyId) when calling the GetDatabases operation": "unknown key",
    "InvalidTokenId Message: The security token included in the request is invalid": "wrong session",
    "OAuthError: invalid_scope: 'a' is not 'b'": "wrong scope",
    "certificate verify failed: CERTIFICATE_VERIFY_FAILED": "tls",
    "No module named 'boto3'": "no boto3",
    "java.lang.ClassNotFoundException: org.apache.hadoop.fs.s3a.S3AFileSystem": "no jar",
    "AccessDenied (403)": "forbidden",
}


@pytest.mark.parametrize("said", SAID)
def test_what_servers_say_is_understood(said: str) -> None:
    found = diagnose(OSError(said))
    assert found is not None
    assert found.name == SAID[said]


def test_only_wrong_settings_are_the_users_fault() -> None:
    settings = diagnose(OSError("NoSuchBucket"))
    away = diagnose(ConnectionRefusedError(111, "Connection refused"))
    assert settings is not None
    assert away is not None
    assert (settings.wrong_settings, away.wrong_settings) == (True, False)


def test_the_evidence_is_the_shortest_error_that_tells_the_cause() -> None:
    outer = OSError("HTTPConnectionPool(...): Max retries exceeded (Connection refused)")
    outer.__cause__ = ConnectionRefusedError(111, "Connection refused")
    assert evidence(outer) == "ConnectionRefusedError: [Errno 111] Connection refused"


def test_an_error_in_brief_has_no_page_and_no_password() -> None:
    assert brief(OSError('refused Content: <?xml version="1.0"?><Error>')) == "OSError: refused"
    assert "pw" not in brief(OSError("at https://me:pw@host/x"))
    told = brief(OSError("When listing objects under key 'k': AWS Error NO_SUCH_BUCKET: gone"))
    assert told == "OSError: AWS Error NO_SUCH_BUCKET: gone"


def test_a_look_is_given_up_and_its_error_is_passed_on() -> None:
    began = time.monotonic()
    with pytest.raises(TooLong, match=r"no answer within 0\.2 s"):
        with_time_limit(threading.Event().wait, 0.2)
    assert time.monotonic() - began < 5
    with pytest.raises(ZeroDivisionError):
        with_time_limit(lambda: 1 / 0)
    assert with_time_limit(lambda: 7) == 7


def test_an_address_is_reached_or_told_why_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        reach(address)
    with pytest.raises(ConnectionRefusedError):
        reach(address)


def test_credentials_are_told_by_kind_and_origin_only(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage.s3(access_key_id="AKIAX", secret_access_key="shh")
    catalog = Catalog.rest("a", uri="https://a", credential="me:shh", warehouse="s3://b/c", storage=storage)
    assert str(catalog_credentials(catalog)).startswith("credential ***, given at ")
    assert str(storage_credentials(catalog)).startswith("access_key_id ***, secret_access_key ***, given at ")
    assert catalog_credentials(Catalog.rest("a", uri="https://a")) == "none are given"
    assert catalog_credentials(Catalog.local("a", path="/a")) is None
    glue = Catalog.glue("g", warehouse="s3://b/c", profile="team")
    assert catalog_credentials(glue) == "profile team"
    for name, value in {"AWS_ACCESS_KEY_ID": "AKIAX", "AWS_SECRET_ACCESS_KEY": "shh"}.items():
        monkeypatch.setenv(name, value)
    assert storage_credentials(glue) == "AWS's default chain: env"
    monkeypatch.setenv("AZURE_CLIENT_ID", "x")
    azure = Catalog.local("z", path="/z", warehouse="abfss://c@acc.dfs.core.windows.net/x", storage=Storage.adls("acc"))
    assert storage_credentials(azure) == "Azure's default chain: AZURE_CLIENT_ID in the environment"
    assert storage_addresses(Storage.adls("acc")) == ("https://acc.blob.core.windows.net",)
    assert "vends" in str(storage_credentials(Catalog.rest("a", uri="https://a", warehouse="s3://b/c")))
