"""Errors for rows that a source or a MERGE refuses; the rows are parsed from Spark's message."""

from __future__ import annotations

import json
from typing import Any

from helios.errors import RunError
from helios.model.flow import flows
from helios.plan.nodes import Plan
from helios.spark.jvm.errors import BAD_ROW_PREFIX

MAX_SHOWN = 400
"""The maximum number of characters of a row's text that a message shows."""


def row_in(error: BaseException) -> dict[str, str] | None:
    """Parses the reason, the text and the place of a bad row from an error; None for any other error."""
    text = str(error)
    _, prefix, rest = text.partition(BAD_ROW_PREFIX)
    row = json_in(rest) if prefix else None
    return {"why": "the row does not parse", "text": "", **row} if row is not None else None


def json_in(text: str) -> dict[str, Any] | None:
    """The JSON object at the beginning of a text; None if the object is truncated."""
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text)
    except ValueError:
        return None
    return dict(value)


def bad_row_error(row: dict[str, str], plan: Plan, place: str, fix: str) -> RunError:
    """The error to raise for a bad row.

    Args:
        row: The row, as `row_in` returns it.
        place: The row's file, record or table, for the message.
    """
    shown = row["text"] if len(row["text"]) <= MAX_SHOWN else f"{row['text'][:MAX_SHOWN]}..."
    strict_sources = [flow.source for flow in flows(plan.stream) if getattr(flow.source, "bad_row", None) == "fail"]
    return RunError(
        f"{place}: {row['why']}: {shown}; nothing of its batch was written.",
        where=strict_sources[0].origin if strict_sources else plan.origin,
        fix=fix,
    )
