"""Rows that a source or a MERGE refuses, parsed from Spark's message."""

from __future__ import annotations

import json
from typing import Any

from helios.errors import RunError
from helios.model.flow import flows
from helios.plan.nodes import Plan
from helios.spark.jvm.errors import BAD_ROW

SHOWN = 400
"""The most characters of a row's text that a message shows."""


def row_in(error: BaseException) -> dict[str, str] | None:
    """The reason, text and place of a bad row, from an error; None for any other error."""
    text = str(error)
    _, mark, rest = text.partition(BAD_ROW)
    row = json_in(rest) if mark else None
    return {"why": "the row does not parse", "text": "", **row} if row is not None else None


def json_in(text: str) -> dict[str, Any] | None:
    """The JSON object that a text begins with; None if it is truncated."""
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text)
    except ValueError:
        return None
    return dict(value)


def bad_row(row: dict[str, str], plan: Plan, place: str, fix: str) -> RunError:
    """The error of a bad row.

    Args:
        row: The row, as `row_in` returns it.
        plan: The pipeline.
        place: The row's file, record or table, for the message.
        fix: The remedy, for the message.
    """
    shown = row["text"] if len(row["text"]) <= SHOWN else f"{row['text'][:SHOWN]}..."
    sources = [flow.source for flow in flows(plan.stream) if getattr(flow.source, "bad_row", None) == "fail"]
    return RunError(
        f"{place}: {row['why']}: {shown}; nothing of its batch was written.",
        where=sources[0].origin if sources else plan.origin,
        fix=fix,
    )
