"""Write-audit-publish has two commits, a batch's staging and its publication: what can happen between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from helios import Memory
from helios.errors import HeliosError, RunError
from helios.spark.iceberg.transaction import Transaction
from helios.spark.sinks.audit import AuditedSink

pytestmark = [pytest.mark.parametrize("name", ["audit"]), pytest.mark.promise("audit")]


def at_staging(
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> None:
    """Does something right before or right after the next batch is on its branch."""
    real, calls = Transaction.commit, count()

    def commit(self: Transaction) -> None:
        first = next(calls) == 0
        if first:
            before()
        real(self)
        if first:
            after()

    monkeypatch.setattr(Transaction, "commit", commit)


def die() -> None:
    raise RuntimeError("the driver died")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.cases(short="after-audit")
@pytest.mark.cases(landing="before-audit")
def test_a_driver_that_dies_at_the_staging(scene: Any, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    at_staging(monkeypatch, **{moment: die})
    scene.feed(2)
    with pytest.raises(HeliosError, match="the driver died"):
        scene.run()
    scene.holds(0, 1)
    scene.run()
    scene.holds(0, 1, 2)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("other", ["append_by_hand", "compact"])
@pytest.mark.cases(landing="append_by_hand-before-audit")
def test_main_moves_at_the_staging(scene: Any, monkeypatch: pytest.MonkeyPatch, moment: str, other: str) -> None:
    at_staging(monkeypatch, **{moment: getattr(scene, other)})
    scene.feed(2)
    scene.run()
    scene.holds(0, 1, *(["others"] if other == "append_by_hand" else []), 2)


@pytest.mark.cases(landing="audit")
def test_a_zombies_staging_below_that_of_its_replacement(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zombie's held commit reaches the branch between the replacement's look at it and its own commit."""
    zombie, late = scene.driver(), scene.work(2)
    replacement, work = scene.driver(), scene.work(2)
    assert not zombie.finds(late)
    assert not replacement.finds(work)
    real, calls = Transaction.commit, count()

    def commit(self: Transaction) -> None:
        number = next(calls)
        if number == 0:  # the replacement's
            with pytest.raises(RuntimeError, match="the driver died"):
                zombie.write(late)
        real(self)
        if number == 1:  # the zombie's
            die()

    monkeypatch.setattr(Transaction, "commit", commit)
    replacement.write(work)
    scene.holds(0, 1, 2)
    following = scene.driver()
    assert not following.finds(scene.work(3))
    following.write(scene.work(3))
    scene.holds(0, 1, 2, 3)


@pytest.mark.cases(landing="audit")
def test_a_zombies_staging_above_that_of_its_replacement(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zombie's held commit comes when the replacement's batch is staged and not yet published."""
    zombie, late = scene.driver(), scene.work(2)
    replacement, work = scene.driver(), scene.work(2)
    assert not zombie.finds(late)
    assert not replacement.finds(work)
    at_staging(monkeypatch, after=lambda: zombie.write(late))
    replacement.write(work)
    scene.holds(0, 1, 2)


@pytest.mark.landing
def test_a_zombies_publication_whose_replacement_came_right_before_it(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zombie has seen main and its branch unmoved, and only then takes the table's state for its publication."""
    zombie, late = scene.driver(), scene.work(2)
    replacement, work = scene.driver(), scene.work(2)
    assert not zombie.finds(late)
    assert not replacement.finds(work)
    scene.at_opening(monkeypatch, lambda: replacement.write(work))
    zombie.write(late)
    scene.holds(0, 1, 2)
    following = scene.driver()
    assert not following.finds(scene.work(3))
    following.write(scene.work(3))
    scene.holds(0, 1, 2, 3)


@pytest.mark.parametrize("moment", ["looked up", "staged"])
@pytest.mark.landing
def test_an_audited_overwrite_rejects_what_it_has_not_seen(
    scene: Any, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    world = scene.world
    sink = world.sink("a.o").overwrite("id < 10").audit({"some": "count(*) > 0"}).publish()
    world.run(Memory.source([{"id": 1}]) >> sink)
    others = iter([lambda: world.sql("INSERT INTO local.a.o VALUES 2, 20")])
    if moment == "staged":
        at_staging(monkeypatch, after=next(others))
    else:
        real = AuditedSink._reset_branch

        def branch_off(self: AuditedSink) -> None:
            for commit in others:
                commit()
            real(self)

        monkeypatch.setattr(AuditedSink, "_reset_branch", branch_off)
    second = Memory.source([{"id": 3}]) >> sink
    with pytest.raises(RunError, match="it has not seen"):
        world.run(second)
    assert world.ids("a.o") == [1, 2, 20]
    world.run(second)
    assert world.ids("a.o") == [3, 20]


@pytest.mark.short
def test_a_batch_that_fails_its_audit(scene: Any) -> None:
    world = scene.world
    sink = world.sink("a.checked").audit({"no_dup": "count(*) = count(DISTINCT id)"}).publish()
    world.run(Memory.source([{"id": 1}, {"id": 2}]) >> sink)
    head = world.catalog.load("a.checked").current_snapshot()
    for _ in range(2):
        with pytest.raises(RunError, match=r"did not pass its audit: no_dup \(count"):
            world.run(Memory.source([{"id": 3}, {"id": 3}]) >> sink)
        assert world.catalog.load("a.checked").current_snapshot() == head
    assert world.rows("a.checked") == Counter([(1,), (2,)])
    world.run(Memory.source([{"id": 3}, {"id": 4}]) >> sink)
    assert world.ids("a.checked") == [1, 2, 3, 4]
