"""A plan as text."""

from __future__ import annotations

from helios.model.values import show_seconds
from helios.plan.plan import Plan

KNOWN_AT_RUN = "known at run"


def render(plan: Plan) -> str:
    """The plan as `helios plan` prints it."""
    write = plan.write
    lines = [f"pipeline {plan.pipeline}  ({plan.origin})"]
    for read in plan.reads:
        lines.append(f"  read      {read.source.label()}")
        if read.table is not None:
            state = f"snapshot {read.snapshot}" if read.snapshot else ("empty" if read.uuid else "made by this script")
            lines.append(f"            {read.table.text}, {state}")
    lines.append(f"  path      {plan.path.value}: {plan.why}")
    for step in plan.stream.steps:
        lines.append(f"  step      {step.text()}")
    missing = "will be created" if write.creates else "is missing"
    found = {True: "exists", False: missing, None: "not looked up"}[write.exists]
    lines.append(f"  write     {write.table.text}, {write.mode}, exactly once; {found}")
    lines.append(f"            format v{write.format_version}, " + _partitioning(plan))
    if write.properties:
        lines.append("            properties " + ", ".join(f"{k}={v}" for k, v in write.properties))
    if write.stamps:
        lines.append("            snapshot properties " + ", ".join(f"{k}={v}" for k, v in write.stamps))
    if plan.schema is None:
        lines.append(f"  schema    {KNOWN_AT_RUN}")
    else:
        lines.append("  schema    " + ", ".join(f"{c.name} {c.type}" for c in plan.schema.columns))
    if plan.trigger is not None:
        bound = f", at most about {write.max_rows} rows a batch" if write.max_rows else ""
        lines.append(f"  trigger   every {show_seconds(plan.trigger.every)} ({plan.trigger.why}){bound}")
    lines.append(f"  progress  {plan.checkpoint or 'a temporary folder (the catalog is in memory)'}")
    lines.append(f"  jars      {', '.join(plan.components)}")
    return "\n".join(lines)


def _partitioning(plan: Plan) -> str:
    fields = plan.write.partitioning
    return "partitioned by " + ", ".join(str(f) for f in fields) if fields else "unpartitioned"
