"""What a cluster lacks is told before anything is written: executors, and folders that they see."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from helios import Catalog
from tests.cluster.conftest import rows
from tests.suite.waiting import PATIENCE

pytestmark = pytest.mark.promise("cluster")

# Each process has another folder at this path, as each machine of a cluster has at most paths.
OWN = "/proc/self/cwd"
SCRIPT = f"""
    from helios import Catalog, Iceberg, Memory, param

    own = Catalog.local("own", path="{OWN}/lake")
    shared = Catalog.local("shared", path=param("shared", ""))
    rows = Memory.source([{{"id": 1}}])
    copied = rows >> Iceberg.sink("a.t", catalog=own)
    kept = rows >> Iceberg.sink("a.t", catalog=shared).checkpoint("{OWN}/progress")
    well = rows >> Iceberg.sink("a.u", catalog=shared)
"""


@pytest.mark.slow
def test_folders_that_executors_do_not_see_are_refused(project: Any) -> None:
    project.write(pipeline=SCRIPT)
    done = project.run("pipeline.py", "--set", f"shared={project.elsewhere / 'shared'}")
    assert done.returncode == 2, done.stdout + done.stderr
    told = " ".join(done.stderr.split())
    assert f"catalog 'own' (local) keeps its tables in {OWN}/lake/warehouse, and not every executor of" in told
    assert "of 4 tasks on 127.0.0.1 did not. Nothing was written. Fix: give a folder that every machine sees" in told
    assert "Storage.s3" in told
    assert f"pipeline shared.a.t keeps its progress in {OWN}/progress, and not every executor of" in told
    assert '.checkpoint("/shared/checkpoints/...")' in told
    for refused in ("lake/warehouse", "progress", "shared/warehouse/a/t"):
        assert not [file for file in (project.elsewhere / refused).rglob("*") if file.is_file()]
    shared = Catalog.local("shared", path=project.elsewhere / "shared")
    assert rows(shared, "a.u") == {(1,): 1}
    assert not list((project.elsewhere / "shared" / "warehouse").glob("helios-shared-*"))


@pytest.mark.slow
def test_a_cluster_that_gives_no_executor_is_told_of(project: Any) -> None:
    project.write(pipeline=SCRIPT)
    project.configure(**{"spark.executor.memory": "64g"})
    driver = project.start("pipeline.py:well", "--set", f"shared={project.elsewhere / 'shared'}")
    event = driver.await_event("waiting")
    assert "there is no executor on spark://127.0.0.1" in event["message"]
    assert "spark.executor.memory = 64g" in event["message"]
    driver.process.send_signal(signal.SIGTERM)
    assert driver.process.wait(PATIENCE) == 0, driver.said
    assert driver.events("stopped")
