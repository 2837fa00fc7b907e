"""Finds where the past batches of a pipeline begin and end in its sources, from its target and its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helios.errors import InputError
from helios.plan.nodes import Plan
from helios.spark.backfill.live import LivePosition
from helios.spark.backfill.recompute import Positions
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
        number: Its index among the batches of the pipeline.
        commit_index: The index of the batch's commit or, if the batch wrote nothing, of the next commit. After the last
            commit, it is the number of commits.
        after: The position in each followed source after which the batch begins.
        to: The position in each followed source at which the batch ends.
    """

    number: int
    commit_index: int
    after: Positions
    to: Positions


@dataclass(frozen=True)
class PastBatches:
    """The batches of a pipeline, from the first commit to repair up to the pipeline's present position.

    Attributes:
        commits: All commits of the pipeline, oldest first.
        first: The index of the first commit to repair.
        last: The index of the last commit to repair.
        batches: The batches of the first commit to repair and all later ones, in order. Some wrote nothing.
        is_complete: Whether `batches` has each batch separately. It is False if the checkpoint no longer knows where
            batches that wrote nothing ended; such batches are read as a part of the next one.
    """

    commits: Sequence[CommittedBatch]
    first: int
    last: int
    batches: Sequence[PastBatch]
    is_complete: bool


def past_batches(
    plan: Plan, checkpoint: Checkpoint, names: Sequence[str], requested: tuple[int, int], live_position: LivePosition
) -> PastBatches:
    """The batches of a pipeline, from the first commit to repair up to the pipeline's present position.

    Args:
        names: The pipeline's present and former names.
        requested: The first and the last snapshot of the commits to repair.

    Raises:
        InputError: A full refresh or a new checkpoint came after these commits, or it is unknown what a batch has read.
    """
    table = plan.write.table.catalog.load(plan.write.table.name_in_catalog)
    retained = commits(table, branch=plan.write.sink.branch_name or MAIN)
    own_commits = history_of(table.iceberg.metadata, retained, names).batches
    index_of = {snapshot: index for index, commit in enumerate(own_commits) for snapshot in commit.snapshots}
    if any(snapshot not in index_of for snapshot in requested):
        raise _error(plan, "a full refresh has emptied the table since", "repair commits that came after it.")
    first, last = (index_of[snapshot] for snapshot in requested)
    if any(commit.checkpoint != live_position.record.checkpoint for commit in own_commits[first:]):
        raise _error(plan, f"{plan.pipeline} has gone on with a new checkpoint since", REFILL)
    all_reruns, problems = reruns(own_commits, offset_log(checkpoint))
    for index, why in problems.items():
        if index >= first:
            raise _error(plan, f"what batch {own_commits[index].batch} has read is not known: {why}", REFILL)
    candidates = [_past_batch(number, rerun) for number, rerun in enumerate(all_reruns) if rerun.commit_index >= first]
    last_number = max((batch.number for batch in candidates if batch.to == live_position.ends), default=None)
    if last_number is None:
        why = f"{plan.pipeline} has finished batches after its last commit, and it is unknown where each has ended"
        raise _error(plan, why, "let it commit a batch, then repeat the command.")
    batches = [batch for batch in candidates if batch.number <= last_number]
    counts = [sum(batch.commit_index == index for batch in batches) for index in range(first, len(own_commits))]
    expected_counts = [commit.batch - commit.previous_batch for commit in own_commits[first:]]
    return PastBatches(own_commits, first, last, batches, counts == expected_counts)


def _past_batch(number: int, rerun: Rerun) -> PastBatch:
    names = [entry["source"] for entry in rerun.position["sources"]]
    ends = tuple(entry.get("place") for entry in rerun.position["sources"])
    return PastBatch(number, rerun.commit_index, tuple(rerun.starts.get(name) for name in names), ends)


def _error(plan: Plan, why: str, fix: str) -> InputError:
    return InputError(
        f"these commits of {plan.write.table.text} cannot be repaired: {why}; nothing was written.",
        where=plan.origin,
        fix=fix,
    )
