"""The workloads of `python -m perf`, small: every contender writes the rows that it should."""

from __future__ import annotations

from typing import Any

import pytest

from perf.harness.lake import Settings
from perf.workloads import WORKLOADS

QUICK = ("append",)
pytestmark = pytest.mark.usefixtures("native_workers")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in WORKLOADS]
)
def test_every_contender_writes_the_same_rows(world: Any, name: str) -> None:
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
    for number in range(1, 3):
        assert judge.change(number) > 0
        for who in kind.contenders():
            if not kind.keeps:
                judge.create(f"{who}_{number}", who)
            getattr(made[who], who)(f"{who}_target" if kind.keeps else f"{who}_{number}")
    wanted = judge.wanted()
    assert wanted[0] > 0
    ends = ["target"] if kind.keeps else [1, 2]
    found = {f"{who}_{end}": judge.found(f"{who}_{end}") for who in kind.contenders() for end in ends}
    assert found == dict.fromkeys(found, wanted)
    assert all(judge.written(target)[1] > 0 for target in found)
