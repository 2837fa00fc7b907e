"""Declared values, plans, runs and tables in a notebook: HTML without scripts, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, cast

from helios.errors import HeliosError
from helios.model.engine import engine

if TYPE_CHECKING:
    from helios.model.flow import Flow, Pipeline

GREY = "rgba(128,128,128,.55)"
"""The color of lines: half transparent, so that it is visible on light and dark pages."""
CELL = f"text-align:left;vertical-align:top;padding:2px 10px 2px 0;border-bottom:1px solid {GREY}"
BOX = f"display:inline-block;border:1px solid {GREY};padding:2px 8px;margin:2px 0"
ROUND = f"{BOX};border-radius:12px"
"""The style of sources and sinks; the boxes of steps have square corners."""
MAX_LENGTH = 200
"""The maximum number of characters of a value or a step that are shown."""


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table as HTML. Every text is escaped, and `None` is shown as null.

    Examples:
        >>> "&lt;b&gt;" in table(["id"], [["<b>"]])
        True
    """
    head = "".join(f'<th style="{CELL}">{escape(header)}</th>' for header in headers)
    body = "".join(
        f"<tr>{''.join(f'<td style={chr(34)}{CELL}{chr(34)}>{_cell(v)}</td>' for v in row)}</tr>" for row in rows
    )
    caption_html = f'<caption style="text-align:left;font-weight:bold">{escape(caption)}</caption>' if caption else ""
    header = f"<thead><tr>{head}</tr></thead>" if headers else ""
    return f'<table style="border-collapse:collapse;color:inherit">{caption_html}{header}<tbody>{body}</tbody></table>'


def _cell(value: object) -> str:
    return '<i style="opacity:.6">null</i>' if value is None else escape(str(value))


def short(text: str) -> str:
    """A text, shortened to at most `MAX_LENGTH` characters."""
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 3]}..."


def name_value_table(caption: str, values: Mapping[str, object]) -> str:
    """A table of names and values, one pair per row; empty values are left out."""
    return table([], [(name, value) for name, value in values.items() if value not in (None, "", [], ())], caption)


class NotebookView:
    """Base of flows and pipelines: a notebook shows them as a graph with their columns."""

    def _repr_html_(self) -> str:
        if isinstance(self, tuple):
            return "<br>".join(pipeline._repr_html_() for pipeline in self)
        flow = cast("Flow", getattr(self, "stream", self))
        sink = cast("Pipeline", self).sink if hasattr(self, "sink") else None
        name = getattr(self, "name", None) or ""
        heading = f"<b>{escape(name)}</b><br>" if isinstance(name, str) and name else ""
        end = f" &rarr; {_box(sink.label(), ROUND)}" if sink is not None else ""
        return f'<div style="color:inherit">{heading}{_graph(flow)}{end}{_columns(flow)}</div>'


def _graph(flow: Flow) -> str:
    """The boxes of a flow. After a join or union, the flow that the step reads follows in parentheses."""
    parts = [_box(flow.source.label(), ROUND)]
    for step in flow.steps:
        other = getattr(step, "other", None)
        joined_flow = f" with ({_graph(other)})" if other is not None else ""
        text = getattr(step, "short", None) or ("union" if other is not None else step.text())
        parts.append(f"{_box(text, BOX)}{joined_flow}")
    return " &rarr; ".join(parts)


def _box(text: str, style: str) -> str:
    return f'<code style="{style};background:none;color:inherit">{escape(short(" ".join(text.split())))}</code>'


def _columns(flow: Flow) -> str:
    """The columns of a flow, or the reason why they are unknown."""
    try:
        schema: Any = engine().schema(flow)
    except HeliosError as error:
        return f"<div><b>columns:</b> {escape(str(error))}</div>"
    if schema is None:
        return "<div><b>columns:</b> known at run</div>"
    return table(["column", "type"], [(column.name, str(column.type)) for column in schema.columns])
