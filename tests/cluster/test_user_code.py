"""The user's own code and its Python on executors, which have neither the script nor Helios."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog
from tests.cluster.conftest import rows

pytestmark = pytest.mark.promise("cluster")

SCRIPT = """
    import threading
    from pyspark.sql.functions import udf
    from pyspark.sql.types import LongType

    import rules
    from helios import Catalog, Iceberg, Memory, param
    from rules import scale
    from units.metric import add

    lake = Catalog.local("lake", path=param("lake", ""))
    times = udf(lambda v: rules.scale(v), LongType())

    def batches_of(batches):
        import os
        import pyarrow as pa
        from latecomer import negate
        for batch in batches:
            ids = batch["id"].to_pylist()
            made = {"id": ids, "added": [add(i) for i in ids], "negated": [negate(i) for i in ids],
                    "folder": [os.getcwd()] * len(ids)}
            yield pa.RecordBatch.from_pydict(made)

    def in_arrow(df):
        return df.mapInArrow(batches_of, "id long, added long, negated long, folder string")

    def in_pandas(df):
        def frames_of(frames):
            for frame in frames:
                yield frame.assign(scaled=frame["id"].map(scale))
        return df.mapInPandas(frames_of, "id long, added long, negated long, folder string, scaled long")

    def in_udf(df):
        return df.withColumn("timed", times("id"))

    made = (
        Memory.source([{"id": i} for i in range(20)])
        >> in_arrow >> in_pandas >> in_udf >> Iceberg.sink("own.made", catalog=lake).overwrite()
    )
"""
MODULES = {
    "rules": """
        FACTOR = 10
        def scale(v):
            return int(v) * FACTOR
    """,
    "units.__init__": "",
    "units.metric": """
        from units.deep.base import OFFSET
        def add(v):
            return v + OFFSET
    """,
    "units.deep.__init__": "",
    "units.deep.base": "OFFSET = 3",
    # Nothing imports it before a task runs.
    "latecomer": """
        from units.deep.base import OFFSET
        def negate(v):
            return -v - OFFSET
    """,
}
NO_HELIOS = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "helios":
            raise ModuleNotFoundError("No module named 'helios'", name=name)
sys.meta_path.insert(0, Nothing())
"""


def python_without_helios(folder: Path) -> Path:
    """This Python with its packages, as on a machine where Helios was never installed."""
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(NO_HELIOS)
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{hidden}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return program


@pytest.mark.slow
def test_modules_beside_the_script_reach_the_executors_as_they_are_now(project: Any, tmp_path: Path) -> None:
    project.write(pipeline=SCRIPT, **MODULES)
    project.configure(**{"spark.pyspark.python": str(python_without_helios(tmp_path))})
    lake = Catalog.local("lake", path=tmp_path / "lake")
    project.drain("pipeline.py", "--set", f"lake={tmp_path / 'lake'}")
    columns = ("id", "added", "negated", "scaled", "timed")
    assert rows(lake, "own.made", *columns) == {(i, i + 3, -i - 3, i * 10, i * 10): 1 for i in range(20)}
    folders = {folder for (folder,) in rows(lake, "own.made", "folder")}
    assert all(folder.startswith(str(project.cluster.folder)) for folder in folders), folders

    project.write(**{"rules": MODULES["rules"].replace("10", "7"), "units.deep.base": "OFFSET = 4"})
    project.drain("pipeline.py", "--set", f"lake={tmp_path / 'lake'}")
    assert rows(lake, "own.made", *columns) == {(i, i + 4, -i - 4, i * 7, i * 7): 1 for i in range(20)}


@pytest.mark.slow
def test_a_pipeline_that_python_runs_has_its_modules_too(project: Any, tmp_path: Path) -> None:
    """`python pipeline.py`, without `helios run`."""
    last = "\nmade.named('made').run(once=True).await_termination()\n"
    script = dedent(SCRIPT).replace('param("lake", "")', repr(str(tmp_path / "lake"))) + last
    project.write(pipeline=script, **MODULES)
    path = project.folder / "pipeline.py"
    done = subprocess.run(
        [sys.executable, path.name], cwd=project.folder, env=project.env, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = rows(Catalog.local("lake", path=tmp_path / "lake"), "own.made", "id", "added", "negated", "scaled", "timed")
    assert made == {(i, i + 3, -i - 3, i * 10, i * 10): 1 for i in range(20)}


@pytest.mark.slow
def test_what_a_function_lacks_on_executors_is_told_with_its_line(project: Any, tmp_path: Path) -> None:
    script = """
        from helios import Catalog, Iceberg, Memory, param

        def lacking(df):
            def frames_of(frames):
                import a_package_that_nobody_has
                yield from frames
            return df.mapInPandas(frames_of, "id long")

        lake = Catalog.local("lake", path=param("lake", ""))
        made = Memory.source([{"id": 1}]) >> lacking >> Iceberg.sink("own.made", catalog=lake)
    """
    project.write(pipeline=script)
    done = project.run("pipeline.py", "--set", f"lake={tmp_path / 'lake'}")
    assert done.returncode == 1, done.stdout + done.stderr
    told = " ".join(done.stderr.split())
    assert "pipeline.py:6: lake.own.made: ModuleNotFoundError: No module named 'a_package_that_nobody_has'" in told
    assert "spark.pyspark.python" in told


@pytest.mark.landing
def test_java_of_helioss_own_reaches_the_executors(project: Any, tmp_path: Path) -> None:
    script = """
        from helios import Catalog, Iceberg, dedupe, param, watermark

        lake = Catalog.local("lake", path=param("lake", ""))
        once = (
            Iceberg.source("own.events", catalog=lake).incremental(start="earliest", max_files=1)
            >> watermark("ts", "1 minute")
            >> dedupe("id", within="1 hour")
            >> Iceberg.sink("own.once", catalog=lake)
        )
    """
    project.write(pipeline=script)
    lake = Catalog.local("lake", path=tmp_path / "lake")
    lake.create_namespace("own")
    lake.create_table("own.events", pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]))
    for minutes in ((0, 59), (61, 62), (600,)):
        at = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=m) for m in minutes]
        events = pa.table({"id": [1] * len(at), "ts": at}, schema=lake.load("own.events").iceberg.schema().as_arrow())
        lake.load("own.events").iceberg.append(events)
    project.drain("pipeline.py", "--set", f"lake={tmp_path / 'lake'}")
    kept = sorted(ts.minute + 60 * ts.hour for (ts,) in rows(lake, "own.once", "ts").elements())
    assert kept == [0, 61]
