"""Which engine a plan says, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog, Iceberg, Memory, dedupe, select, step, where, with_columns
from helios.config import load
from helios.errors import ConfigError
from helios.plan import Context, Plan, compile_pipelines
from helios.plan.native import choice

pytestmark = pytest.mark.promise("engine")

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog.local(path=tmp_path / ".helios")
    made.create_namespace("a")
    made.create_table("a.s", COLUMNS)
    return made


def planned(catalog: Catalog, pipeline: Any, native: str = "auto") -> tuple[Plan | None, list[str]]:
    config = replace(load(Path(dict(catalog.options)["path"])), native=native)
    plans, problems = compile_pipelines([pipeline], Context(config=config, catalogs={"local": catalog}))
    return (plans[0] if plans else None), [str(problem) for problem in problems]


FLAT = Iceberg.source("a.s").select("id", "name")
SINK = Iceberg.sink("a.t")


def test_a_simple_append_is_native_unless_that_is_switched_off(catalog: Catalog) -> None:
    sink = SINK.partition_by("name").sort_by("id desc")
    pipeline = FLAT.incremental(poll=1) >> where("name LIKE 'a%' AND id > 3") >> sink
    plan, problems = planned(catalog, pipeline)
    assert problems == []
    assert plan is not None
    assert "\n  engine    native, and spark for batches of less than 8 MB\n" in str(plan)
    assert plan.as_json()["engine"] == {"native": True, "why": None, "from_bytes": 8 << 20}
    plan, _ = planned(catalog, pipeline, "require")
    assert plan is not None
    assert "\n  engine    native\n" in str(plan)
    assert plan.as_json()["engine"] == {"native": True, "why": None, "from_bytes": 0}
    plan, _ = planned(catalog, pipeline, "off")
    assert plan is not None
    assert "engine" not in str(plan)
    assert plan.as_json()["engine"] == {"native": False, "why": 'native = "off"', "from_bytes": None}


def test_a_plain_upsert_is_native_too(catalog: Catalog) -> None:
    plan, problems = planned(catalog, FLAT.incremental(poll=1) >> SINK.upsert("ID", order_by="`Name`"), "require")
    assert problems == []
    assert plan is not None
    assert plan.engine.native


@pytest.mark.parametrize(
    ("pipeline", "why"),
    [
        (Iceberg.source("a.s") >> SINK, "column tags is a array<string>"),
        (
            FLAT >> where("upper(name) = 'A'") >> SINK,
            "UPPER(name) is an expression that the native engine does not support",
        ),
        (FLAT >> where(f"CAST(id AS DOUBLE) IN ({', '.join(map(str, range(11)))})") >> SINK, "of 1 to 10 values"),
        (
            Iceberg.source("a.s").where("name = 'a'").select("id") >> SINK,
            "the source filters by name, which it does not select",
        ),
        (FLAT >> select("id + 1 AS n", "n + 1 AS m") >> SINK, "n is not one of the columns before this step"),
        (FLAT >> step(lambda df: df) >> SINK, "is a step that the native engine does not support"),
        (FLAT >> dedupe("id") >> SINK, "dedupe(id) is a step that the native engine does not support"),
        (FLAT >> SINK.overwrite("id > 0"), "it writes by overwrite where id > 0"),
        (FLAT >> with_columns(x="CAST(id AS DOUBLE)") >> SINK.partition_by("x"), "does not support for double"),
        (FLAT >> SINK.audit({"some": "count(*) > 0"}).publish(), "the sink has an audit"),
        (FLAT >> SINK.route(by="name"), "the sink has a route"),
        (FLAT.incremental(poll=1).changes("id") >> SINK, "it reads changes"),
        (Memory.source([{"id": 1}]) >> SINK, "and neither an Iceberg table nor files"),
        (FLAT >> SINK.upsert("id", order_by="id", history=True), "the upsert keeps versions"),
        (FLAT >> SINK.upsert("id", order_by="name", delete_when="name = ''"), "the upsert deletes"),
        (FLAT >> SINK.upsert("id", order_by="id + 1"), "the upsert is ordered by id + 1, which is not a column"),
        (FLAT >> SINK.upsert("id", order_by="name", store_order=False), "the table does not store name"),
        (
            FLAT >> SINK.upsert("id").format_version(2),
            "the table has format v2, whose deletes the engine does not write",
        ),
        (FLAT >> SINK.upsert("id").write_mode("copy-on-write"), "changed rows are written copy-on-write"),
        (
            FLAT >> with_columns(x="CAST(id AS DOUBLE)") >> SINK.upsert("x"),
            "the upsert compares x, a double",
        ),
    ],
)
def test_a_plan_says_why_it_is_spark(catalog: Catalog, pipeline: Any, why: str) -> None:
    plan, problems = planned(catalog, pipeline)
    assert problems == []
    assert plan is not None
    line = next(line for line in str(plan).splitlines() if line.startswith("  engine    spark, because "))
    assert line.endswith(why)
    _, problems = planned(catalog, pipeline, "require")
    assert [why in problem and 'native = "require"' in problem for problem in problems] == [True]


def test_without_the_extra_it_is_spark(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    plan, _ = planned(catalog, FLAT >> SINK)
    assert plan is not None
    assert str(plan.engine) == "spark, because helios-iceberg[native] is not installed"


def test_the_configuration_names_one_of_three(tmp_path: Path) -> None:
    file = tmp_path / "helios.toml"
    assert load(tmp_path).native == "auto"
    file.write_text('[spark]\nnative = "off"\n')
    assert load(tmp_path).native == "off"
    file.write_text('[spark]\nnative = "on"\n')
    with pytest.raises(ConfigError, match="must be one of auto, off, require, not 'on'"):
        load(tmp_path)
