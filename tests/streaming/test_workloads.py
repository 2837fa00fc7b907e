"""The workloads and studies of `python -m perf`, small: every contender writes the rows that it should."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Any

import pytest

from perf.harness.lake import Settings
from perf.harness.study import studied
from perf.harness.usage import Usage
from perf.harness.workload import Workload
from perf.studies import STUDIES, freshness, growth, window_batches
from perf.workloads import WORKLOADS, append, many

pytestmark = [pytest.mark.usefixtures("native_workers"), pytest.mark.promise("benchmarks")]


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.cases(short="append", landing=("upsert", "first-commit", "parquet", "backfill", "totals", "fifty"))
def test_every_contender_writes_the_same_rows(world: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "PIPELINES", 3)
    monkeypatch.setattr(append, "PARTITIONS", 8)
    kind = WORKLOADS[name]
    settings = Settings(world.folder, rows=2000)
    made = {who: kind(settings, who) for who in ("judge", *kind.contenders())}
    for workload in made.values():
        workload.lake.spark = world.spark  # a cached property
    judge = made["judge"]
    judge.prepare()
    if kind.keeps:
        for who in kind.contenders():
            judge.create(f"{who}_target", who)
    rounds = range(1, 3) if kind.keeps else range(1, 2)
    for number in rounds:
        assert judge.change(number) > 0
        for who in kind.contenders():
            if not kind.keeps:
                judge.create(f"{who}_{number}", who)
            getattr(made[who], who)(f"{who}_target" if kind.keeps else f"{who}_{number}")
    wanted = judge.wanted()
    assert wanted[0] > 0
    ends = ["target"] if kind.keeps else rounds
    found = {f"{who}_{end}": judge.found(f"{who}_{end}") for who in kind.contenders() for end in ends}
    assert found == dict.fromkeys(found, wanted)
    assert all(judge.written(target)[1] > 0 for target in found)


class InTheSession:
    """A contender that has no process of its own: the session of the tests is its, and nothing is measured."""

    spark: Any

    def __init__(self, workload: type[Workload], contender: str, settings: Settings) -> None:
        self.workload = workload(settings, contender)
        self.workload.lake.spark = self.spark

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self.workload, method)(*arguments)

    def timed(self, method: str, *arguments: Any) -> tuple[Any, Usage]:
        return self.call(method, *arguments), Usage(1.0, 1.0, 1, 1)

    def __enter__(self) -> InTheSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None


def measured(world: Any, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, rows: int, **small: Any) -> Any:
    """The lines of a study that is made small by its constants."""
    monkeypatch.setattr(module, "Worker", type("Worker", (InTheSession,), {"spark": world.spark}))
    for constant, value in small.items():
        monkeypatch.setattr(module, constant, value)
    return studied(STUDIES[name], Settings(world.folder, rows), lambda told: None)["lines"]


@pytest.mark.landing
def test_the_study_of_freshness(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = measured(world, monkeypatch, freshness, "freshness", 1000, WARM_UP=-1.0, IDLE=1)
    assert [line[:2] for line in lines] == [[name, "1,000"] for name in freshness.Freshness.contenders]
    for name in freshness.Freshness.contenders:
        assert world.ids(f"perf.{freshness.target(name)}") == list(range(1000))


def test_the_study_of_growth(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = measured(world, monkeypatch, growth, "growth", 10, COMMITS=2, ASKED=1)
    assert [line[:2] for line in lines] == [[kind, "10"] for kind in growth.KINDS]
    for kind in growth.KINDS:
        name = f"{kind.replace(' ', '_')}_10"
        followed, by_hand = world.ids(f"perf.{name}_source"), [0, 0]
        made = list(range(10)) if kind in ("data files", "partitions") else []
        assert Counter(world.ids(f"perf.{name}")) == Counter([*followed, *by_hand, *made])


@pytest.mark.landing
def test_the_study_of_windowed_batches(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The study compares the rows of every contender by itself.
    lines = measured(world, monkeypatch, window_batches, "window-batches", 2000, BATCHES=3, PASSES=1, WARM_UP=0)
    assert [line[0] for line in lines] == list(window_batches.WindowBatches.contenders)
