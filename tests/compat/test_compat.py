"""What the first commit of issue 28 wrote, the new code continues from: the same rows, each once, in the same formats.

The states are made by that commit's own code, out of this repository's history (see `make_states.py`), and copied
between the moments at which a driver can die: before a batch's first commit, between its commits, and behind the last
one, which Spark's log does not have yet. Only what is public is used of the code under test: `helios`, its command
line, and what lies on disk.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from helios import Pipeline
from tests.compat import stored
from tests.compat.cases import CASES, CLEAN, FRESH, LANDED, Lake
from tests.streaming.conftest import shared_spark

__all__ = ["shared_spark"]

BEFORE = "b827570953d281408851a4d8a2a249d4dc86b42f"
"""The first commit of issue 28."""

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.compat,
    pytest.mark.timeout(900),
    pytest.mark.promise("formats"),
    pytest.mark.sampled(6),
]  # the first test waits for the states


@dataclass(frozen=True)
class States:
    """The images that the older code has left."""

    folder: Path

    def lake(self, case: str) -> Lake:
        return Lake(self.folder / "live" / case)

    def restore(self, case: str, image: str) -> Lake:
        """Puts an image back to where it was taken."""
        lake, kept = self.lake(case), self.folder / "kept" / case / image
        for path in (lake.inbox, lake.checkpoints.parents[1]):
            shutil.rmtree(path, ignore_errors=True)
        # The catalog's file is open in the JVM and in PyIceberg's pool: its rows are put back, not the file.
        shutil.copytree(kept, lake.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("catalog.db*"))
        with closing(sqlite3.connect(lake.database, timeout=60)) as db:
            db.execute("ATTACH ? AS kept", (str(kept / lake.database.relative_to(lake.folder)),))
            for table in ("iceberg_tables", "iceberg_namespace_properties"):
                db.execute(f"DELETE FROM {table}")
                db.execute(f"INSERT INTO {table} SELECT * FROM kept.{table}")
            db.commit()
        return lake

    def told(self, case: str, image: str) -> Any:
        """What the older code told of an image without a JVM."""
        return json.loads((self.folder / "kept" / case / f"{image}.json").read_text())


@pytest.fixture(scope="module")
def states(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[States]:
    """The states of the cases that this run tests: each takes some seconds."""
    tested = [item.callspec.params for item in request.session.items if "states" in getattr(item, "fixturenames", ())]
    folder = tmp_path_factory.mktemp("compat")
    old = folder / "old"
    _unpack(old)
    # Nothing of the older code counts for the coverage of the new one.
    env = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE")}
    command = [sys.executable, str(HERE / "make_states.py"), str(folder), *dict.fromkeys(one["name"] for one in tested)]
    done = subprocess.run(
        command, env={**env, "PYTHONPATH": str(old)}, cwd=folder, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    yield States(folder)
    shutil.rmtree(folder)


def _unpack(into: Path) -> None:
    """Unpacks the package as that commit has it."""
    there = _git("cat-file", "-e", f"{BEFORE}^{{commit}}")
    if there.returncode:
        why = there.stderr.decode().strip()
        pytest.skip(f"commit {BEFORE} is not in this clone, which `git fetch --unshallow` repairs: {why}")
    archived = _git("archive", "--format=tar", BEFORE, "helios")
    assert archived.returncode == 0, archived.stderr.decode()
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as tar:
        tar.extractall(into, filter="data")


def _git(*command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *command], cwd=HERE.parents[1], check=False, capture_output=True)


def run(pipeline: Pipeline, spark: SparkSession) -> None:
    assert pipeline.run(once=True, spark=spark).await_termination(120)


IMAGES = [(name, image) for name, case in CASES.items() for image in case.only or case.images()]


@pytest.mark.parametrize(("name", "image"), IMAGES, ids=[f"{name}-{image}".replace(" ", "-") for name, image in IMAGES])
@pytest.mark.cases(landing="append-clean")
def test_it_goes_on_with_the_same_rows(states: States, shared_spark: SparkSession, name: str, image: str) -> None:
    case, lake = CASES[name], states.restore(name, image)
    pipeline = case.pipeline(lake)
    assert lake.told(pipeline) == states.told(name, image)
    before = {table: _snapshots(lake, table) for table in lake.tables()}
    if case.followed:
        case.feed(lake, 3)
    run(pipeline, shared_spark)
    for target in case.targets:
        assert lake.rows(target.table, target.columns) == target.reference(case.runs(image)), target.table
        again = {batch: count for batch, count in stored.batches(lake.tables()[target.table]).items() if count > 1}
        assert not again, f"{target.table} has batches that were written again"
    for table, there in before.items():
        assert _snapshots(lake, table)[: len(there)] == there, f"{table} has lost snapshots"
    if image == LANDED and not case.followed:
        assert {table: _snapshots(lake, table) for table in lake.tables()} == before


def _snapshots(lake: Lake, table: str) -> list[int]:
    return [snapshot.snapshot_id for snapshot in lake.tables()[table].metadata.snapshots]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.stored])
def test_it_stores_the_same(states: States, shared_spark: SparkSession, name: str) -> None:
    case = CASES[name]
    old = stored.record(states.restore(name, CLEAN))
    lake = states.restore(name, FRESH)
    first, *others = case.fed
    assert first == (0,)
    for batches in others:
        run(case.pipeline(lake), shared_spark)
        for batch in batches:
            case.feed(lake, batch)
    assert stored.record(lake) == old
