"""Finds, from plans alone, pipelines that cannot be rehearsed, and parts that a rehearsal cannot repeat exactly."""

from __future__ import annotations

from collections.abc import Iterator

from helios.errors import HeliosError, InputError
from helios.model.flow import flows
from helios.plan.nodes import Plan, ReadPath
from helios.plan.typing.determinism import nondeterministic_part

TEST_INSTEAD = "test it with helios.testing, which gives it rows of your own."


def rehearsal_problem(plan: Plan) -> HeliosError | None:
    """Why a pipeline cannot be rehearsed; None if it can."""
    sink, name = plan.write.sink, plan.pipeline
    description = None
    if sink.mirrors:
        description = f"{name} mirrors a database into many tables"
    elif sink.routing is not None:
        description = f"{name} routes its rows into many tables"
    elif sink.iceberg is None:
        description = f"{name} writes {sink.label()}, which keeps no record of what each batch has read"
    elif plan.path is ReadPath.STATEFUL:
        return InputError(
            f"{name} cannot be rehearsed: {stateful_step(plan)} keeps state of earlier batches in the checkpoint, "
            "and that state cannot be rebuilt from the commits.",
            where=plan.origin,
            fix=TEST_INSTEAD,
        )
    if description is None:
        return None
    return InputError(f"{description}: it cannot be rehearsed.", where=sink.origin, fix=TEST_INSTEAD)


def stateful_step(plan: Plan) -> str:
    """The text of the step that makes a stream stateful."""
    steps = [step for flow in flows(plan.stream) for step in flow.steps]
    text = next((step.text() for step in steps if step.traits.stateful or step.traits.shuffles), None)
    return text or "a callable"


def rehearsal_notes(plan: Plan) -> Iterator[str]:
    """Yields notes on side effects that a rehearsal repeats, and on values that may differ from those of the run."""
    steps = [step for flow in flows(plan.stream) for step in flow.steps]
    for step in steps:
        part = nondeterministic_part(step.sql_texts)
        if step.traits.opaque:
            yield f"{step.text()} ({step.origin}) is called again, and its side effects happen again, too"
        elif part is not None:
            yield f"{step.text()} ({step.origin}): {part} gives another value than in the run"
    part = nondeterministic_part(plan.write.mode.sql_texts)
    if part is not None:
        yield f"{plan.write.mode.text()} ({plan.write.sink.origin}): {part} gives another value than in the run"
    sink = plan.write.sink.iceberg
    if sink is not None and sink.audits:
        yield "audits are not run"
    if plan.streaming:
        for read in plan.reads:
            if not read.source.streaming and read.table is None:
                yield f"{read.source.label()} ({read.source.origin}) is read as it is now"
