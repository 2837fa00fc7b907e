"""Decides whether the columnar engine runs a batch, and makes such a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from helios.model.flow import Stream
from helios.native.program import NotNative, Program
from helios.plan.native.choice import not_native_problem
from helios.plan.native.steps import program_of
from helios.plan.nodes import Plan
from helios.plan.typing.schema import Column, Schema
from helios.sources.common.spark.protocol import HasFiles, Source
from helios.spark.native.batch import NativeBatch, SmallBatch, refuse_small
from helios.table.positions import Batch


def native_batch(
    plan: Plan, sources: Sequence[Source], batch: Batch, note: Callable[[str], None]
) -> NativeBatch | None:
    """The batch for the columnar engine; None if Spark runs it.

    If Spark runs a batch although the plan chose the columnar engine, `note` reports the reason.

    Raises:
        InputError: The engine is required, and cannot run the batch.
    """
    if not plan.engine.native:
        return None

    def explain(reason: str) -> None:
        if plan.engine.setting == "require":
            raise not_native_problem(replace(plan.engine, why=reason), plan.pipeline, plan.origin)
        note(f"engine spark, because {reason}")

    try:
        ((source,), (span,)) = sources, batch.spans
        if not isinstance(source, HasFiles):
            raise NotNative(f"{source.read_plan.name} has no files of its own")
        only_if_faster = plan.engine.setting == "auto"
        only_source_counts = plan.write.mode.upsert is None  # the size of an upsert includes files of its target
        if only_if_faster and only_source_counts:
            refuse_small(source.size(span))
        files = source.files(span)
        if only_if_faster and only_source_counts:
            refuse_small(files.size)
        fields = files.columns.fields
        schema = Schema(tuple(Column(f.name, f.dataType.simpleString(), f.nullable) for f in fields))
        return NativeBatch(files, _program(plan.stream, schema), plan.write.table.catalog, only_if_faster, explain)
    except SmallBatch:
        return None
    except NotNative as reason:
        explain(str(reason))
        return None


@lru_cache(maxsize=256)
def _program(stream: Stream, schema: Schema) -> Program:
    """The program of a stream, which is the same in each batch."""
    return program_of(stream, schema)
