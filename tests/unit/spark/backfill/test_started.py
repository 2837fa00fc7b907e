"""What makes a stopped backfill begin with its first slice again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from helios import Catalog
from helios.config import load
from helios.plan import Context, Plan, compile_pipelines
from helios.script import load_script
from helios.spark.backfill.started import computed_from

SCRIPT = """
from helios import Iceberg

def priced(df):
    from rates_of_test_started import RATE
    return df.withColumn("price", df.price * RATE)

pipeline = Iceberg.source("a.s").incremental() >> priced >> Iceberg.sink("a.t")
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    catalog = Catalog.local(path=tmp_path / ".helios")
    catalog.create_namespace("a")
    catalog.create_table("a.s", pa.schema([("price", pa.float64())]))
    (tmp_path / "pipeline.py").write_text(SCRIPT)
    (tmp_path / "rates_of_test_started.py").write_text("RATE = 2\n")
    script = load_script(tmp_path / "pipeline.py")
    plans, problems = compile_pipelines(script.choose(None), Context(load(tmp_path), {"local": catalog}))
    assert [str(problem) for problem in problems] == []
    return plans[0]


@pytest.mark.parametrize("file", ["pipeline.py", "rates_of_test_started.py"])
def test_a_changed_file(plan: Plan, tmp_path: Path, file: str) -> None:
    before = computed_from(plan, ["checkpoint"])
    assert computed_from(plan, ["checkpoint"]) == before
    (tmp_path / file).write_text((tmp_path / file).read_text() + "# another rate\n")
    assert computed_from(plan, ["checkpoint"]) != before


def test_a_changed_file_that_the_script_does_not_import(plan: Plan, tmp_path: Path) -> None:
    before = computed_from(plan, ["checkpoint"])
    (tmp_path / "notes.py").write_text("# nothing\n")
    assert computed_from(plan, ["checkpoint"]) == before
