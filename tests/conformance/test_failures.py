"""Every write mode through every failure: the rows are those of a reference in plain Python, none lost, none twice.

The driver dies here by an exception at the exact point: right before, or right after, the commit of a batch. Data,
stamps and record are one commit, so there is no moment between them: these two are all there are. The next run starts
as a new driver does, from the checkpoint and the target alone. `test_kills.py` does the same with `kill -9`.
"""

from __future__ import annotations

from typing import Any

import pytest

from helios.errors import HeliosError, RunError
from helios.spark.checkpoint import upsert_state

pytestmark = [pytest.mark.promise("failures"), pytest.mark.sampled(5)]


def die() -> None:
    raise RuntimeError("the driver died")


@pytest.mark.cases(landing="upsert")
def test_first_runs(scene: Any) -> None:
    scene.holds(0, 1)
    scene.feed(2)
    scene.run()
    scene.holds(0, 1, 2)
    scene.feed(3)
    scene.run()
    scene.holds(0, 1, 2, 3)


@pytest.mark.promise("replay")
@pytest.mark.cases(landing="overwrite-filter")
def test_a_replayed_batch(scene: Any) -> None:
    scene.forget(1)
    scene.feed(2)
    scene.run()
    assert not scene.case.followed or scene.world.kinds().count("skipped") == 1
    scene.holds(0, 1, 2)


@pytest.mark.promise("replay")
@pytest.mark.cases(landing="route")
def test_a_replayed_batch_whose_snapshot_has_expired(scene: Any) -> None:
    scene.append_by_hand()
    scene.expire()
    scene.forget(1)
    scene.feed(2)
    scene.run()
    scene.holds(0, 1, "others", 2)


@pytest.mark.promise("replay")
@pytest.mark.cases(landing="audit")
def test_a_replayed_batch_that_was_compacted_and_has_expired(scene: Any) -> None:
    scene.compact()
    scene.expire()
    scene.forget(1)
    scene.feed(2)
    scene.run()
    scene.holds(0, 1, 2)


@pytest.mark.cases(landing="upsert-history")
def test_a_driver_that_dies_right_before_the_commit(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.at_commit(monkeypatch, before=die)
    scene.feed(2)
    with pytest.raises(HeliosError, match="the driver died"):
        scene.run()
    if len(scene.tables) == 1:
        scene.holds(0, 1)
    scene.feed(3)
    scene.run()
    scene.holds(0, 1, 2, 3)


@pytest.mark.short
@pytest.mark.cases(landing="upsert")
def test_a_driver_that_dies_between_the_commit_and_sparks_checkpoint(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.at_commit(monkeypatch, after=die)
    scene.feed(2)
    with pytest.raises(HeliosError, match="the driver died"):
        scene.run()
    scene.holds(0, 1, 2)
    scene.feed(3)
    scene.run()
    scene.holds(0, 1, 2, 3)


@pytest.mark.promise("others")
@pytest.mark.slow
@pytest.mark.cases(landing="overwrite-filter")
def test_another_writer_between_two_batches(scene: Any) -> None:
    scene.append_by_hand()
    scene.feed(2)
    scene.run()
    scene.holds(0, 1, "others", 2)


@pytest.mark.promise("others")
@pytest.mark.cases(landing="route")
def test_another_writer_between_the_look_up_and_the_commit(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.at_commit(monkeypatch, before=scene.append_by_hand)
    scene.feed(2)
    if not scene.case.yields:
        with pytest.raises(RunError, match=r"would overwrite rows in .* that it has not seen"):
            scene.run()
        scene.holds(0, 1, "others")
    scene.run()
    scene.holds(0, 1, "others", 2)


@pytest.mark.promise("others")
@pytest.mark.slow
@pytest.mark.cases(landing="audit")
def test_compaction_between_two_batches(scene: Any) -> None:
    scene.compact()
    scene.feed(2)
    scene.run()
    scene.holds(0, 1, 2)


@pytest.mark.promise("others")
@pytest.mark.cases(landing="upsert")
def test_compaction_between_the_look_up_and_the_commit(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.at_commit(monkeypatch, before=scene.compact)
    scene.feed(2)
    scene.run()
    scene.holds(0, 1, 2)
    scene.feed(3)
    scene.run()
    scene.holds(0, 1, 2, 3)


@pytest.mark.parametrize("name", ["upsert", "upsert-stored-order", "upsert-history"])
@pytest.mark.cases(landing="upsert")
def test_a_new_checkpoint_remembers_the_deletes_of_the_old_one(scene: Any) -> None:
    scene.run(new_checkpoint=True)
    scene.feed(2)
    scene.run()
    scene.holds(0, 1, 2)
    scene.feed(3)
    scene.run()
    scene.holds(0, 1, 2, 3)


@pytest.mark.parametrize("name", ["upsert", "upsert-history"])
@pytest.mark.cases(landing="upsert-history")
def test_a_driver_that_dies_after_it_folded_what_it_remembers(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert_state, "FOLD_AFTER", 1)
    scene.at_commit(monkeypatch, before=die)
    scene.feed(2)
    with pytest.raises(HeliosError, match="the driver died"):
        scene.run()
    scene.feed(3)
    scene.run()
    scene.holds(0, 1, 2, 3)
