"""Finds pipelines that follow the table to which they append: each batch would be the input of the next one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from helios.errors import DeclarationError, HeliosError
from helios.model.flow import Pipeline, flows
from helios.model.step import Step
from helios.plan.nodes import ReadPlan, WritePlan
from helios.steps.join import Join
from helios.table.refs import MAIN

GENERATING = re.compile(
    r"\b(?:\w*explode|inline|stack|json_tuple|collations|sql_keywords)(?:_outer)?\s*\(", re.IGNORECASE
)
"""Spark's generators: functions that may give no row at all for an input row."""


def endless_loops(pipeline: Pipeline, reads: Sequence[ReadPlan], write: WritePlan) -> list[HeliosError]:
    """The problem of a pipeline that follows its own target, unless a filter or a step may drop the appended rows.

    `reads` has the order of the pipeline's flows.
    """
    sink = write.sink
    outer, *inner = flows(pipeline.stream)
    if sink.mode.traits.rewrites_same_inputs or sink.routing is not None:
        return []  # only an append adds rows that a followed source reads again
    # For each source: the steps that its rows may pass, and the kinds of join that keep all its rows.
    all_steps = [step for flow in (outer, *inner) for step in flow.steps]
    paths = [(outer.steps, ("left", "full")), *[(all_steps, ("full",)) for _ in inner]]
    loops = any(
        _is_target(read, write) and not read.source.conditions and all(_keeps_rows(step, joins) for step in steps)
        for read, (steps, joins) in zip(reads, paths, strict=True)
    )
    message = f"{write.table.text} is both followed and appended to: each batch would be read again, without an end."
    fix = "write into another table, or a branch; or filter the appended rows out: where(...) after the source."
    return [DeclarationError(message, where=sink.origin, fix=fix)] if loops else []


def _is_target(read: ReadPlan, write: WritePlan) -> bool:
    """True if a source follows the branch that the pipeline writes."""
    same_table = read.table is not None and read.table.text == write.table.text
    return same_table and read.source.streaming and (read.branch or MAIN) == (write.sink.branch_name or MAIN)


def _keeps_rows(step: Step, keeping_joins: Sequence[str]) -> bool:
    """True if each input row certainly yields at least one row of the step's result."""
    if isinstance(step, Join):
        return step.how in keeping_joins
    return step.keeps_rows and not any(GENERATING.search(text) for text in step.sql_texts)
