"""Checks that the identity of a checkpoint matches its pipeline and its target."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from helios.errors import CheckpointError
from helios.plan.nodes import Plan
from helios.plan.other_pipelines import renaming_call
from helios.spark.checkpoint.files import Identity
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks.records import newest_record


def refuse_foreign(plan: Plan, location: str, existing: Identity, table: JavaTable | None) -> None:
    """Rejects the checkpoint of another pipeline, or of another target. `table` is None if the target is missing."""
    renaming = renaming_call(plan, existing.pipeline)
    if existing.pipeline not in (plan.pipeline, plan.was):
        raise CheckpointError(
            f"the checkpoint {location} belongs to pipeline {existing.pipeline!r}, not to {plan.pipeline!r}.",
            where=plan.declared.sink.origin,
            fix="give each pipeline its own .checkpoint(...)"
            + (f"; for a renamed one write {renaming}." if renaming else "."),
        )
    renamed = table is not None and str(table.uuid()) == existing.target_uuid
    if existing.target != plan.write.table.text and not renamed:
        raise CheckpointError(
            f"in the checkpoint {location}, pipeline {existing.pipeline!r} writes {existing.target}, not "
            f"{plan.write.table.text}.",
            where=plan.declared.sink.origin,
            fix="give this pipeline a name of its own.",
        )


def renamed_with_its_table(plan: Plan, existing: Identity, table: JavaTable | None) -> Identity:
    """The identity with the pipeline's new name, if the pipeline is named after a table that `helios rename` renamed.

    Args:
        existing: The identity. It may still have the old name: a rename does not change a checkpoint whose location the
            script declares.
        table: The target; None if it is missing.
    """
    branch = plan.write.sink.branch_name
    if table is None or existing.pipeline == plan.pipeline or str(table.uuid()) != existing.target_uuid:
        return existing
    record = newest_record(table, [plan.pipeline], branch)
    named_after_table = existing.pipeline == (f"{existing.target}@{branch}" if branch else existing.target)
    is_same_pipeline = record is not None and record.checkpoint == existing.id and existing.pipeline in record.formerly
    return replace(existing, pipeline=plan.pipeline) if named_after_table and is_same_pipeline else existing


def with_renamed_sources(existing: Identity, sources: Sequence[str], uuids: Sequence[str | None]) -> Identity:
    """The identity with the sources' current names; unchanged if a source was replaced by another one.

    Args:
        sources: The names of the sources that identify the pipeline.
        uuids: Their UUIDs; None for a source that is not a table.
    """
    known = existing.uuids
    if len(sources) != len(existing.sources):
        return existing
    same = [
        old == new or (old_uuid is not None and old_uuid == new_uuid)
        for old, new, old_uuid, new_uuid in zip(existing.sources, sources, known, uuids, strict=True)
    ]
    if not all(same):
        return existing
    names = dict(zip(existing.sources, sources, strict=True))
    kept = tuple(old if old is not None else new for old, new in zip(known, uuids, strict=True))
    state = tuple(names.get(part, part) for part in existing.state)
    return replace(existing, sources=tuple(sources), state=state, uuids=kept)


def refuse_changed(
    plan: Plan, location: str, existing: Identity, sources: Sequence[str], table: JavaTable | None
) -> None:
    """Rejects a pipeline whose sources, stateful steps, read path or target differ from those in the identity.

    Args:
        sources: The names of the sources that identify the pipeline.
        table: The target; None if it is missing.
    """
    uuid_now = str(table.uuid()) if table is not None else None
    if existing.target_uuid and uuid_now != existing.target_uuid:
        became = "is gone" if table is None else "was replaced by another table"
        renamed = ", or write its new name if it was renamed" if table is None else ""
        raise CheckpointError(
            f"the target {existing.target} {became} since the checkpoint {location} was made.",
            where=plan.declared.sink.origin,
            fix=f"restore the former table{renamed}; or, to fill a new table, delete the checkpoint.",
        )
    if existing.sources != sources:
        raise CheckpointError(
            f"the checkpoint {location} is of a pipeline that reads {', '.join(existing.sources) or 'nothing'}; "
            f"the pipeline now reads {', '.join(sources) or 'nothing'}.",
            where=plan.origin,
            fix="put the sources back, or give the pipeline a new name and a new target.",
        )
    if existing.state != plan.state_texts:
        raise CheckpointError(
            f"the state in the checkpoint {location} was built by "
            f"{'; '.join(existing.state) or 'no stateful step'}; the pipeline now has "
            f"{'; '.join(plan.state_texts) or 'no stateful step'}.",
            where=plan.origin,
            fix="put the steps back, refill the target with `helios run --full-refresh`, or give the pipeline a "
            "new name and a new target.",
        )
    if existing.path != plan.path.value:
        raise CheckpointError(
            f"the checkpoint {location} was made for the read path {existing.path!r}; the pipeline now has the read "
            f"path {plan.path.value!r}, whose positions mean something else.",
            where=plan.origin,
            fix="put the sources and steps back as they were, or give the pipeline a new name and a new target.",
        )


def new_identity(plan: Plan, sources: tuple[str, ...], uuids: tuple[str | None, ...]) -> Identity:
    """The identity of a new checkpoint. The UUID of a source that is not a table is None."""
    return Identity(
        id=uuid.uuid4().hex,
        pipeline=plan.pipeline,
        target=plan.write.table.text,
        target_uuid="",
        sources=sources,
        state=plan.state_texts,
        path=plan.path.value,
        uuids=uuids,
    )
