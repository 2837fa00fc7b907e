"""What a cluster lacks is told before anything is written: executors, and folders that they see."""

from __future__ import annotations

import signal
from typing import Any

import pytest

# Each process has another folder at this path, as each machine of a cluster has at most paths.
OWN = "/proc/self/cwd"
SCRIPT = f"""
    from helios import Catalog, Iceberg, Memory, param

    lake = Catalog.local("lake", path=param("lake", "{OWN}/lake"))
    copied = Memory.source([{{"id": 1}}]) >> Iceberg.sink("a.t", catalog=lake)
    kept = Memory.source([{{"id": 1}}]) >> Iceberg.sink("a.u", catalog=lake).checkpoint("{OWN}/progress")
"""


def test_folders_that_executors_do_not_see_are_refused(project: Any) -> None:
    project.write(pipeline=SCRIPT)
    done = project.run("pipeline.py")
    assert done.returncode == 2, done.stdout + done.stderr
    told = " ".join(done.stderr.split())
    assert f"catalog 'lake' (local) keeps its tables in {OWN}/lake/warehouse, and not every executor of" in told
    assert "of 4 tasks on 127.0.0.1 did not. Nothing was written. Fix: give a folder that every machine sees" in told
    assert "Storage.s3" in told
    assert not [file for file in (project.elsewhere / "lake" / "warehouse").rglob("*") if file.is_file()]

    done = project.run("pipeline.py:kept", "--set", f"lake={project.elsewhere / 'shared'}")
    assert done.returncode == 2, done.stdout + done.stderr
    told = " ".join(done.stderr.split())
    assert f"pipeline lake.a.u keeps its progress in {OWN}/progress, and not every executor of" in told
    assert '.checkpoint("/shared/checkpoints/...")' in told
    assert not [file for file in (project.elsewhere / "progress").rglob("*") if file.is_file()]


@pytest.mark.slow
def test_a_cluster_that_gives_no_executor_is_told_of(project: Any) -> None:
    project.write(pipeline=SCRIPT)
    project.configure(**{"spark.executor.memory": "64g"})
    driver = project.start("pipeline.py:copied", "--set", f"lake={project.elsewhere / 'shared'}")
    event = driver.await_event("waiting")
    assert "there is no executor on spark://127.0.0.1" in event["message"]
    assert "spark.executor.memory = 64g" in event["message"]
    driver.process.send_signal(signal.SIGTERM)
    assert driver.process.wait(60) == 0, driver.said
    assert driver.events("stopped")
