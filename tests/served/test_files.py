"""Files on an object store, whose storage the configuration names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helios import Catalog
from tests.services.minio import Minio

pytestmark = [pytest.mark.jars("aws", "s3a"), pytest.mark.promise("s3", "files")]

SCRIPT = """
from helios import Files, Iceberg

source = Files.source("s3://{bucket}/in/*.json", schema="id bigint", storage="landing")
pipeline = source.incremental(poll=1) >> Iceberg.sink("a.t")
"""
CONFIG = """
[storages.landing]
type = "s3"
endpoint = "{endpoint}"
access_key_id = "{key}"
secret_access_key = "{secret}"
"""


@pytest.fixture
def here(minio: Minio, tmp_path: Path) -> Path:
    """A folder with a script that reads a bucket; the target is in the embedded catalog."""
    bucket = minio.bucket("landing")
    (tmp_path / "pipeline.py").write_text(SCRIPT.format(bucket=bucket))
    declare(minio, tmp_path, minio.secret_key)
    for number in range(3):
        body = json.dumps({"id": number}).encode()
        minio.client().put_object(Bucket=bucket, Key=f"in/{number}.json", Body=body)
    return tmp_path


def declare(minio: Minio, folder: Path, secret: str) -> None:
    settings = CONFIG.format(endpoint=minio.endpoint, key=minio.access_key, secret=secret)
    (folder / "helios.toml").write_text(settings)


def helios(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "helios", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def ids(folder: Path) -> list[int]:
    catalog = Catalog.local(path=folder / ".helios")
    return sorted(catalog.load("a.t").iceberg.scan().to_arrow()["id"].to_pylist())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_storage_by_its_name(minio: Minio, here: Path) -> None:
    plan = helios(here, "plan", "pipeline.py", "--json")
    assert plan.returncode == 0, plan.stderr
    assert {"aws", "s3a"} <= set(json.loads(plan.stdout)[0]["jars"])
    assert minio.secret_key not in plan.stdout
    for _ in range(2):
        done = helios(here, "run", "pipeline.py", "--once")
        assert done.returncode == 0, done.stderr
        assert minio.secret_key not in done.stdout + done.stderr
    assert ids(here) == [0, 1, 2]


def test_a_wrong_key_is_told(minio: Minio, here: Path) -> None:
    declare(minio, here, "not-the-secret-of-this-key")
    done = helios(here, "run", "pipeline.py", "--once")
    assert done.returncode == 1
    assert "pipeline.py:4: Files.source(s3://" in done.stderr, done.stderr
    assert "may not do this" in done.stderr
    assert "Exception" not in done.stderr
