"""Which of several pipelines may start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helios import Catalog, Iceberg
from helios.config import load
from helios.plan import Context, compile_pipelines
from helios.plan.nodes import Plan
from helios.spark.run.scheduler import Runner

pytestmark = pytest.mark.promise("several")


@dataclass(eq=False)
class Run:
    """A pipeline whose state the test decides."""

    plan: Plan
    state: str = "waiting"
    batches: int = 0
    error: str = ""

    @property
    def active(self) -> bool:
        return self.state == "running"


@pytest.fixture
def runner(tmp_path: Path) -> Callable[..., Any]:
    context = Context(load(tmp_path), {"local": Catalog.local(path=tmp_path)}, offline=True)

    def of(*flows: Any, once: bool = False) -> Any:
        made: Any = Runner.__new__(Runner)
        made.once = once
        made.runs = [Run(plan) for flow in flows for plan in compile_pipelines([flow], context)[0]]
        made._waiting = list(made.runs)
        return made

    return of


def starts(made: Any) -> list[str]:
    """Starts the pipelines that may start; the tables that they write."""
    started = []
    for run in list(made._waiting):
        if made._ready(run):
            made._waiting.remove(run)
            run.state = "running"
            started.append(run.plan.write.table.name_in_catalog)
    return started


def follows(source: str, target: str) -> Any:
    return Iceberg.source(source).incremental() >> Iceberg.sink(target)


@pytest.mark.parametrize("third", [[], [follows("a.x", "a.y")]], ids=["alone", "beside an endless one"])
def test_of_pipelines_that_follow_each_other_the_first_starts(runner: Any, third: list[Any]) -> None:
    made = runner(*third, follows("a.one", "a.two"), follows("a.two", "a.one"))
    assert starts(made) == ["a.y"] * len(third) + ["a.two", "a.one"]


def test_a_circle_waits_for_the_pipeline_before_it(runner: Any) -> None:
    first = follows("a.x", "a.one")
    made = runner(follows("a.one", "a.two"), follows("a.two", "a.one"), first)
    assert starts(made) == ["a.one"]
    assert starts(made) == ["a.two", "a.one"]


def test_with_once_a_reader_waits_for_the_end_of_its_writer(runner: Any) -> None:
    made = runner(follows("a.two", "a.three"), follows("a.one", "a.two"), once=True)
    assert starts(made) == ["a.two"]
    assert starts(made) == []
    made.runs[1].state = "ended"
    assert starts(made) == ["a.three"]
