"""Compares plans and columns of pipelines in tests, without a JVM."""

from __future__ import annotations

import difflib
import tempfile
from pathlib import Path

from helios.errors import CheckFailed, InputError
from helios.model.flow import Pipeline
from helios.plan.compile import compile_pipelines
from helios.plan.nodes import Plan
from helios.testing.diff import Different, hidden
from helios.testing.lake import Lake

__tracebackhide__ = hidden


def plan_of(pipeline: Pipeline) -> Plan:
    """The plan of a pipeline over an empty lake; real lakes are not read.

    Raises:
        CheckFailed: The pipeline does not compile.
    """
    from dataclasses import replace

    with tempfile.TemporaryDirectory(prefix="helios-plan-") as folder, Lake(Path(folder)) as lake:
        context = replace(lake.context([pipeline]), offline=True)
        plans, problems = compile_pipelines([lake.with_target_in_lake(pipeline)], context, lenient=True)
        if not plans:
            raise CheckFailed(problems)
        return plans[0]


def assert_plan(pipeline: Pipeline, text: str) -> None:
    """Requires that the plan of a pipeline contains the lines of a text, in this order.

    A line of the text may be a part of a line of the plan. Repeated spaces and empty lines are ignored.

    Args:
        pipeline: The pipeline.
        text: One line or several.

    Raises:
        Different: A line is not in the plan; the message has the most similar line.
    """
    lines = [" ".join(line.split()) for line in str(plan_of(pipeline)).splitlines()]
    remaining, after_text = lines, ""
    for expected in (" ".join(line.split()) for line in text.splitlines() if line.strip()):
        index = next((number for number, line in enumerate(remaining) if expected in line), None)
        if index is None:
            nearest_lines = difflib.get_close_matches(expected, lines, n=1, cutoff=0.3)
            hint = f"\n  nearest: {nearest_lines[0]}" if nearest_lines else ""
            raise Different(f"the plan has no line {expected!r}{after_text}:{hint}\n\n{plan_of(pipeline)}")
        remaining, after_text = remaining[index + 1 :], f" after {expected!r}"


def schema(pipeline: Pipeline) -> dict[str, str]:
    """The columns that reach the target of a pipeline, by name, with their Spark SQL types.

    Raises:
        InputError: The columns depend on a source table, which the empty lake does not have.
    """
    columns = plan_of(pipeline).schema
    if columns is None:
        raise InputError(
            "the columns of the pipeline depend on the columns of its source, which are unknown.",
            where=pipeline.origin,
            fix='declare the source: lake.table("shop.orders", "id bigint"), and call lake.test(pipeline).schema().',
        )
    return {column.name: column.type for column in columns.columns}
