"""Pipelines that read the table that they append to, and so never end."""

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


def endless_loops(pipeline: Pipeline, reads: Sequence[ReadPlan], write: WritePlan) -> list[HeliosError]:
    """The problem of a followed table that each batch appends to, if no step can filter rows.

    Args:
        pipeline: The pipeline.
        reads: Its sources, in the order of its flows.
        write: Its target.
    """
    sink, (outer, *inner) = write.sink, flows(pipeline.stream)
    if sink.mode.traits.reruns or sink.routing is not None:
        return []  # only an append adds each row once more
    # The rows of a joined flow pass steps of several flows: in doubt, those of all. Each source has the steps that its
    # rows pass, and the kinds of join that keep them all.
    all_steps = [step for flow in (outer, *inner) for step in flow.steps]
    passed = [(outer.steps, ("left", "full")), *[(all_steps, ("full",)) for _ in inner]]
    loops = any(
        _is_target(read, write) and not read.source.conditions and all(_keeps(step, joins) for step in steps)
        for read, (steps, joins) in zip(reads, passed, strict=True)
    )
    what = f"{write.table.text} is both followed and appended to: each batch would be read again, without an end."
    fix = "write into another table, or a branch; or filter such rows out: where(...) after the source."
    return [DeclarationError(what, where=sink.origin, fix=fix)] if loops else []


def _is_target(read: ReadPlan, write: WritePlan) -> bool:
    """True if a source follows the branch that is written."""
    same = read.table is not None and read.table.text == write.table.text
    return same and read.source.streaming and (read.branch or MAIN) == (write.sink.branch_name or MAIN)


def _keeps(step: Step, joins: Sequence[str]) -> bool:
    """True if a step certainly gives a row for each row. False in doubt."""
    if isinstance(step, Join):
        return step.how in joins
    return step.keeps_rows and not any(GENERATING.search(text) for text in step.sql_texts)
