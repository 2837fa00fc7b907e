"""A kind of source is one description: what plans, stamps and positions call it, its jars, and how it is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from helios import Files, Iceberg, Memory, Storage, select, union, where
from helios.config import load
from helios.errors import DeclarationError
from helios.model.flow import Source
from helios.model.values import duration
from helios.plan import Context, Plan, ReadPath, compile_pipelines, components_before_compiling
from helios.sources import kinds
from helios.sources.common.kind import SourceKind
from helios.sources.kinds import source_kind

pytestmark = pytest.mark.promise("own-source")

SINK = Iceberg.sink("a.t")
ORDERS = Iceberg.source("a.orders").incremental() >> select("id AS n")


@dataclass(frozen=True, kw_only=True)
class Counter(Source):
    """A toy: the numbers from 0 on."""

    kind: ClassVar[str] = "counter"

    def incremental(self, poll: float | str | timedelta = 60, *, max_rows: int | None = None) -> Self:
        return replace(self, poll=duration(poll, "poll"), max_rows=max_rows)

    def label(self) -> str:
        return "Counter()"


COUNTER = Counter(declared_schema="n bigint")


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives the toy its kind, as an entry point does."""

    def given(**fields: Any) -> None:
        made = SourceKind(declared=Counter, reader="toy:Reader", **fields)
        monkeypatch.setattr(kinds, "_by_name", lambda name: made if name == "counter" else kinds._built_in(name))

    return given


def test_files_of_an_object_store_have_a_place_and_its_jars(planned: Any) -> None:
    source = Files.source("s3://in/orders", "csv", schema="id bigint")
    context = Context(config=load(Path.cwd(), env={}))
    for given in (None, Storage.s3(region="eu-west-1")):
        pipeline = replace(source, storage=given) >> SINK
        plan = planned(pipeline)
        assert plan.reads[0].store_folder == ("s3a://in/orders", given)
        assert {"aws", "s3a"} <= set(plan.components)
        assert {"aws", "s3a"} <= set(components_before_compiling([pipeline], context))
    assert planned(Files.source("/in", "csv", schema="id bigint") >> SINK).reads[0].store_folder is None


@pytest.mark.parametrize(
    ("path", "storage", "message"),
    [
        ("s3://in/orders", "landing", "storage 'landing' is not declared"),
        ("s3://in/orders", Storage.gcs(), "the storage is of the kind gcs, but the path is not"),
        ("/in/orders", Storage.s3(), "the storage is of the kind s3, but the path is not"),
    ],
)
def test_a_storage_that_does_not_fit_its_path(problems: Any, path: str, storage: Any, message: str) -> None:
    (problem,) = problems(Files.source(path, "csv", schema="id bigint", storage=storage) >> SINK)
    assert message in problem


@pytest.mark.parametrize(
    ("source", "kind", "name", "ledger_name"),
    [
        (Iceberg.source("a.orders"), "iceberg", "local.a.orders", "local.a.orders"),
        (Files.source("in/*.csv", schema="id bigint"), "files", "in/*.csv", "in/*.csv"),
        (Memory.source([{"id": 1}, {"id": 2}]), "memory", "Memory.source(2 rows)", "memory"),
    ],
)
def test_what_plans_stamps_and_positions_call_a_source(
    planned: Any, source: Source, kind: str, name: str, ledger_name: str
) -> None:
    """Stamps and checkpoints of earlier versions have these names."""
    (read,) = planned(source >> SINK).reads
    assert (read.kind, read.name, read.ledger_name) == (kind, name, ledger_name)
    (tree,) = json.loads(planned(source >> SINK).to_json())["sources"]
    assert (tree["kind"], tree["name"]) == (kind, name)


def test_a_source_without_a_table_says_nothing_of_one(planned: Any) -> None:
    (tree,) = planned(Memory.source([{"id": 1}]) >> SINK).as_json()["sources"]
    assert sorted(tree) == ["followed", "kind", "name", "pushed", "schema", "snapshot", "uuid"]


def test_an_unknown_kind_is_an_error(context: Context) -> None:
    plans, problems = compile_pipelines([COUNTER.incremental() >> where("x > 1") >> Iceberg.sink("nope.a.t")], context)
    assert plans == []
    told = " ".join(map(str, problems))
    assert (
        "Counter is not a kind of source that Helios knows. Fix: use one of change_log, debezium, files, iceberg,"
        in told
    )
    assert "catalog 'nope' is not declared" in told
    with pytest.raises(DeclarationError, match="Counter is not a kind of source"):
        source_kind(COUNTER)
    assert components_before_compiling([COUNTER >> SINK], context) == ("iceberg", "sqlite")


def test_a_description_makes_a_kind_of_source(kind: Callable[..., None], planned: Callable[[Any], Plan]) -> None:
    kind(jars=("kafka",))
    plan = planned(COUNTER.incremental(poll=5, max_rows=7) >> where("n > 1") >> SINK)
    assert (plan.path, plan.components) == (ReadPath.RANGES, ("iceberg", "sqlite", "kafka"))
    assert plan.schema is not None
    assert plan.schema.names == ("n",)
    assert plan.trigger is not None
    assert (plan.trigger.every, plan.trigger.max_rows, plan.trigger.bound) == (5.0, 7, "incremental(max_rows=)")
    assert (plan.reads[0].kind, plan.reads[0].name, plan.pushed_predicates(0)) == ("counter", "Counter()", ())
    assert "path      snapshot ranges: stateless: each batch reads what is new in its sources" in str(plan)
    assert plan.as_json()["sources"][0]["kind"] == "counter"


def test_the_jars_of_a_kind_are_known_ahead(kind: Callable[..., None], context: Context) -> None:
    kind(jars=("kafka",))
    assert components_before_compiling([COUNTER >> SINK], context) == ("iceberg", "sqlite", "kafka")


@pytest.mark.parametrize("other", [ORDERS, Files.source("x", "csv", schema="n bigint").incremental()])
def test_several_followed_sources_are_stateless(
    kind: Callable[..., None], planned: Callable[[Any], Plan], other: Any
) -> None:
    kind()
    assert planned(COUNTER.incremental() >> union(other) >> SINK).path is ReadPath.RANGES


def test_rows_that_are_not_counted_bound_no_batch(
    kind: Callable[..., None], planned: Callable[[Any], Plan], problems: Any
) -> None:
    kind(counts_rows=False)
    trigger = planned(COUNTER.incremental() >> SINK.tune("balanced")).trigger
    assert trigger is not None
    assert trigger.max_rows is None
    (problem,) = problems(COUNTER.incremental() >> SINK.flush(rows=5))
    assert "flush(rows=) cannot bound Counter(), whose rows are not counted before they are read" in problem
