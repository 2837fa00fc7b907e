"""The past batches of a pipeline, from its target and its checkpoint: where each begins and ends in the sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helios.errors import InputError
from helios.plan.nodes import Plan
from helios.spark.backfill.live import Standing
from helios.spark.backfill.recompute import Ends
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.rehearse.again import offset_log
from helios.table.commits import commits
from helios.table.refs import MAIN
from helios.table.rehearsal import CommittedBatch, Rerun, history_of, reruns

REFILL = "refill the target with `helios run --full-refresh`."


@dataclass(frozen=True)
class PastBatch:
    """A batch that is read again.

    Attributes:
        number: Its place among the batches.
        owner: The index of its commit or, if it wrote nothing, of the next commit; the number of commits for a batch
            after the last commit.
        after: Its start in each followed source.
        to: Its end.
    """

    number: int
    owner: int
    after: Ends
    to: Ends


@dataclass(frozen=True)
class PastBatches:
    """The batches of a pipeline from some commits on.

    Attributes:
        made: The commits of the pipeline, oldest first.
        first: The index of the first commit to repair.
        last: The index of the last one.
        batches: The batches from the first one on, in order, with those that wrote nothing.
        whole: Whether each batch is known separately: the checkpoint forgets where batches that wrote nothing ended.
    """

    made: Sequence[CommittedBatch]
    first: int
    last: int
    batches: Sequence[PastBatch]
    whole: bool


def past_batches(
    plan: Plan, checkpoint: Checkpoint, names: Sequence[str], asked: tuple[int, int], at: Standing
) -> PastBatches:
    """The batches of a pipeline from a commit on, up to its present position.

    Args:
        plan: The pipeline.
        checkpoint: Its checkpoint.
        names: Its names, former ones included.
        asked: The first and the last snapshot of the commits to repair.
        at: How far it has come.

    Raises:
        InputError: It is unknown what one of them read.
    """
    table = plan.write.table.catalog.load(plan.write.table.within)
    found = commits(table, branch=plan.write.sink.branch_name or MAIN)
    made = history_of(table.iceberg.metadata, found, names).batches
    index = {snapshot: place for place, one in enumerate(made) for snapshot in one.snapshots}
    if any(snapshot not in index for snapshot in asked):
        raise _error(plan, "a full refresh has emptied the table since", "repair commits that came after it.")
    first, last = (index[snapshot] for snapshot in asked)
    if any(one.checkpoint != at.record.checkpoint for one in made[first:]):
        raise _error(plan, f"{plan.pipeline} has gone on with a new checkpoint since", REFILL)
    again, problems = reruns(made, offset_log(checkpoint))
    for owner, why in problems.items():
        if owner >= first:
            raise _error(plan, f"what batch {made[owner].batch} has read is not known: {why}", REFILL)
    every = [_batch(number, one) for number, one in enumerate(again) if one.owner >= first]
    end = max((one.number for one in every if one.to == at.ends), default=None)
    if end is None:
        why = f"{plan.pipeline} has finished batches after its last commit, and nothing tells where each has ended"
        raise _error(plan, why, "let it commit a batch, and start again.")
    batches = [one for one in every if one.number <= end]
    counts = [sum(one.owner == owner for one in batches) for owner in range(first, len(made))]
    expected = [commit.batch - commit.follows for commit in made[first:]]
    return PastBatches(made, first, last, batches, counts == expected)


def _batch(number: int, one: Rerun) -> PastBatch:
    names = [entry["source"] for entry in one.position["sources"]]
    ends = tuple(entry.get("place") for entry in one.position["sources"])
    return PastBatch(number, one.owner, tuple(one.starts.get(name) for name in names), ends)


def _error(plan: Plan, why: str, fix: str) -> InputError:
    return InputError(
        f"these commits of {plan.write.table.text} cannot be repaired: {why}; nothing was written.",
        where=plan.origin,
        fix=fix,
    )
