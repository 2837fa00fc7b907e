"""The flights example on a cluster, beside the same on `local[2]`: nothing that matters lies on the driver's disk."""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from helios import Catalog, Storage
from tests.cluster.conftest import command_lines, executors, rows
from tests.services.fixtures import named_skip
from tests.services.minio import Minio
from tests.services.rest import Rest

pytestmark = pytest.mark.promise("cluster")

EXAMPLES = Path(__file__).parents[2] / "examples"
COUNTS = {"nyc.flights": 51_955, "nyc.delays": 9_771}
SECRET = "helios-tests-secret"
STORED = """
    default_catalog = "lake"
    [catalogs.lake]
    type = "rest"
    uri = "{uri}"
    warehouse = "s3://flights/warehouse"
    storage = "minio"
    [storages.minio]
    type = "s3"
    endpoint = "{endpoint}"
    access_key_id = "{access_key}"
    secret_access_key = "${{LAKE_SECRET}}"
"""
SHARED = """
    default_catalog = "lake"
    [catalogs.lake]
    type = "local"
    path = "{path}"
"""


def land(folder: Path, month: int) -> None:
    spec = importlib.util.spec_from_file_location("land_flights", EXAMPLES / "land_flights.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    made.land(folder, month, month)


def watched(project: Any, data: Path) -> Counter[str]:
    """Drains the example with a driver whose temporary files are its own; what processes were told is looked at."""
    temporary = project.elsewhere / "temporary"
    temporary.mkdir()
    project.env["TMPDIR"] = str(temporary)
    driver = project.start("flights.py", "--once", "--set", f"data={data}")
    seen: Counter[str] = Counter()
    while driver.process.poll() is None:
        seen["executors"] += len(executors(project.cluster))
        seen["secrets"] += sum(SECRET in line for line in command_lines())
        time.sleep(0.2)
    assert driver.process.returncode == 0, driver.said
    shutil.rmtree(temporary)
    del project.env["TMPDIR"]
    return seen


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_flights_on_a_storage_and_on_a_shared_path_are_those_of_local(project: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"  # the source's files: all processes of this machine see them
    script = shutil.copyfile(EXAMPLES / "flights.py", project.folder / "flights.py").name
    shared, local = (Catalog.local("lake", path=tmp_path / name) for name in ("shared", "local"))
    with named_skip(), Minio() as minio, Rest(f"s3://{minio.bucket('flights')}/warehouse", minio) as rest:
        project.env["LAKE_SECRET"] = SECRET
        keys = minio.addresses()
        assert keys["secret_key"] == SECRET
        stored = Catalog.rest(
            "lake",
            uri=rest.uri,
            warehouse="s3://flights/warehouse",
            storage=Storage.s3(
                endpoint=minio.endpoint, access_key_id=minio.access_key, secret_access_key=minio.secret_key
            ),
        )
        for month in (1, 2):
            land(data, month)
            project.configure(STORED.format(uri=rest.uri, **keys))
            seen = watched(project, data)
            assert seen["executors"] > 0
            assert seen["secrets"] == 0
            project.configure(SHARED.format(path=tmp_path / "shared"))
            project.drain(script, "--set", f"data={data}")
            project.configure(SHARED.format(path=tmp_path / "local"))
            project.drain(script, "--set", f"data={data}", "--master", "local[2]")
        for table, count in COUNTS.items():
            expected = rounded(rows(local, table))
            assert sum(expected.values()) == count
            assert rounded(rows(shared, table)) == expected
            assert rounded(rows(stored, table)) == expected


def rounded(multiset: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Averages of doubles depend on the order of their sum."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row, times in multiset.items():
        found[tuple(round(value, 6) if isinstance(value, float) else value for value in row)] += times
    return found
