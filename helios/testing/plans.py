"""Plans and columns in tests, without a JVM."""

from __future__ import annotations

import difflib
import tempfile
from pathlib import Path

from helios.errors import CheckFailed, InputError
from helios.model.flow import Pipeline
from helios.plan.compile import compile_pipelines
from helios.plan.nodes import Plan
from helios.testing.diff import Different
from helios.testing.lake import Lake


def plan_of(pipeline: Pipeline) -> Plan:
    """The plan of a pipeline over an empty lake: nothing of a real one is looked at.

    Raises:
        CheckFailed: It does not compile.
    """
    from dataclasses import replace

    with tempfile.TemporaryDirectory(prefix="helios-plan-") as folder, Lake(Path(folder)) as lake:
        context = replace(lake.context([pipeline]), offline=True)
        plans, problems = compile_pipelines([lake.sink(pipeline)], context, lenient=True)
        if not plans:
            raise CheckFailed(problems)
        return plans[0]


def assert_plan(pipeline: Pipeline, text: str) -> None:
    """Compares the plan of a pipeline: each line of a text must be in a line of it, in this order.

    Each takes a line of its own. Spaces and empty lines do not count.

    Args:
        pipeline: The pipeline.
        text: One line or several.

    Raises:
        Different: A line is not there; the message has the nearest one.
    """
    lines = [" ".join(line.split()) for line in str(plan_of(pipeline)).splitlines()]
    rest, after = lines, ""
    for wanted in (" ".join(line.split()) for line in text.splitlines() if line.strip()):
        place = next((n for n, line in enumerate(rest) if wanted in line), None)
        if place is None:
            near = difflib.get_close_matches(wanted, lines, n=1, cutoff=0.3)
            told = f"\n  nearest: {near[0]}" if near else ""
            raise Different(f"the plan has no line {wanted!r}{after}:{told}\n\n{plan_of(pipeline)}")
        rest, after = rest[place + 1 :], f" after {wanted!r}"


def schema(pipeline: Pipeline) -> dict[str, str]:
    """The columns that reach the target of a pipeline, by name, with their Spark SQL types.

    Raises:
        InputError: They come from a source table, and are known only where a lake has it.
    """
    found = plan_of(pipeline).schema
    if found is None:
        raise InputError(
            "the columns of the pipeline are known only with those of its source.",
            where=pipeline.origin,
            fix='declare these: lake.table("shop.orders", "id bigint"), and ask lake.test(pipeline).schema().',
        )
    return {one.name: one.type for one in found.columns}
