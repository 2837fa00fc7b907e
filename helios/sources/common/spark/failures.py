"""Turns Spark's failures that several kinds of sources share into errors for the user."""

from __future__ import annotations

import re
from urllib.parse import unquote

from helios.errors import RunError
from helios.model.flow import flows
from helios.plan.nodes import Plan
from helios.spark.jvm.errors import FAILED_READ_PATTERN

CAUSED_BY = re.compile(r"^Caused by: (?:[\w$]+\.)*([\w$]+)(?:: (.*))?$", re.MULTILINE)


def damaged_file_error(error: BaseException, plan: Plan) -> RunError | None:
    """The error for the user if Spark cannot read a file; None for any other error."""
    text = str(error)
    match = FAILED_READ_PATTERN.search(text)
    if match is None:
        return None
    causes = [f"{name}: {message}" if message else name for name, message in CAUSED_BY.findall(text)]
    # Spark's own wrappers say only that the read failed.
    messages = [cause for cause in causes if "FAILED_READ_FILE" not in cause and not cause.startswith("SparkException")]
    sources = [flow.source for flow in flows(plan.stream) if getattr(flow.source, "bad_file", None) == "fail"]
    alternative = ', or set such files aside: .on_bad_file("quarantine")' if sources else ""
    return RunError(
        f"{unquote(match[1])} cannot be read: {messages[-1] if messages else 'it is damaged'}. "
        "Nothing of its batch was written.",
        where=sources[0].origin if sources else plan.origin,
        fix=f"repair or remove it{alternative}.",
    )
