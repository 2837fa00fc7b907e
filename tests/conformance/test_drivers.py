"""Every write mode under two drivers at once, and under commits of which nobody knows whether they went through.

A driver here is a `Target` of its own on the same checkpoint and table, with no lease to stop it: what is left is
Iceberg's validation of the ancestry, inside its own commit.
"""

from __future__ import annotations

from typing import Any

import pytest

from helios.errors import LeaseError, RunError
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.lease import Lease

pytestmark = [pytest.mark.promise("drivers"), pytest.mark.sampled(5)]


def looked_up(scene: Any, number: int = 2) -> tuple[Any, Any]:
    """A driver that has looked a batch up and found nothing."""
    target, work = scene.driver(), scene.work(number)
    assert not target.finds(work)
    return target, work


@pytest.mark.cases(landing="route")
def test_a_batch_of_a_zombie_whose_replacement_has_written_it(scene: Any) -> None:
    zombie, work = looked_up(scene)
    replacement, again = looked_up(scene)
    made = replacement.write(again)
    assert not made.already_committed
    scene.holds(0, 1, 2)
    snapshots, files = scene.main(), scene.files()
    assert zombie.write(work).already_committed
    scene.holds(0, 1, 2)
    assert scene.main() == snapshots
    if scene.name != "audit":  # whose staged files are a branch's, and go when that is expired
        assert scene.files() == files  # what the zombie wrote is deleted


@pytest.mark.cases(landing="audit")
def test_a_held_commit_of_a_zombie_that_is_let_go(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the zombie's last look and its commit the replacement commits: Iceberg itself retries, and rejects it."""
    zombie, work = looked_up(scene)

    def replace() -> None:
        target, again = looked_up(scene)
        assert not target.write(again).already_committed

    scene.at_commit(monkeypatch, before=replace)
    zombie.write(work)
    scene.holds(0, 1, 2)
    following, work = looked_up(scene, 3)
    following.write(work)
    scene.holds(0, 1, 2, 3)


@pytest.mark.parametrize("name", ["overwrite", "overwrite-filter", "overwrite-partitions"])
@pytest.mark.promise("others", "overwrite")
@pytest.mark.cases(short="overwrite")
@pytest.mark.cases(landing="overwrite-filter")
def test_an_overwrite_rejects_what_came_right_after_the_look_up(scene: Any) -> None:
    """Before the batch is written, when its target may be read again for other reasons."""
    target, work = looked_up(scene)
    scene.append_by_hand()
    with pytest.raises(RunError, match=r"would overwrite rows in .* that it has not seen"):
        target.write(work)
    scene.holds(0, 1, "others")


@pytest.mark.promise("unknown-outcome")
@pytest.mark.cases(landing="upsert")
def test_a_commit_that_went_through_and_was_reported_as_unknown(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.at_commit(monkeypatch, after=lambda: scene.throw("CommitStateUnknownException"))
    scene.feed(2)
    scene.run()
    scene.holds(0, 1, 2)


@pytest.mark.parametrize("name", ["upsert", "append", "route"])
@pytest.mark.parametrize("kind", ["RuntimeException", "CommitFailedException"])
@pytest.mark.promise("unknown-outcome")
@pytest.mark.cases(short=("RuntimeException-append", "CommitFailedException-append"))
@pytest.mark.cases(landing="RuntimeException-route")
def test_a_commit_that_went_through_and_was_reported_as_failed(
    scene: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    scene.at_commit(monkeypatch, after=lambda: scene.throw(kind))
    scene.feed(2)
    scene.run()
    scene.holds(0, 1, 2)


@pytest.mark.parametrize("name", ["upsert", "audit"])
@pytest.mark.promise("unknown-outcome")
@pytest.mark.cases(landing="audit")
def test_a_commit_that_did_not_go_through_and_whose_outcome_is_unknown(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.at_commit(monkeypatch, before=lambda: scene.throw("RuntimeException"))
    scene.feed(2)
    with pytest.raises(RunError, match="is unknown"):
        scene.run()
    scene.holds(0, 1)
    scene.run()
    scene.holds(0, 1, 2)


@pytest.mark.parametrize("name", ["upsert", "route"])
@pytest.mark.cases(landing="upsert")
def test_a_second_driver_on_a_checkpoint_is_refused_before_it_writes(scene: Any) -> None:
    lease = Lease(Checkpoint(scene.world.spark, scene.world.plan(scene.pipeline).checkpoint))
    lease.acquire()
    scene.feed(2)
    before = scene.everything()
    try:
        with pytest.raises(LeaseError, match="another driver is running"):
            scene.run()
        assert scene.everything() == before
    finally:
        lease.release()
    scene.run()
    scene.holds(0, 1, 2)


@pytest.mark.parametrize("name", ["overwrite-filter"])
@pytest.mark.cases(landing="overwrite-filter")
def test_a_held_overwrite_that_cuts_through_files(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a batch is two operations, a delete and an append: the first is validated, the second stands on it."""
    scene.append_by_hand()
    scene.compact()
    zombie, work = looked_up(scene)

    def replace() -> None:
        target, again = looked_up(scene)
        assert not target.write(again).already_committed

    scene.at_commit(monkeypatch, before=replace)
    assert zombie.write(work).already_committed
    scene.holds(0, 1, "others", 2)
    operations = [s.operation for s in scene.world.catalog.load("a.t").snapshots()]
    assert operations[-2:] == ["delete", "append"]
