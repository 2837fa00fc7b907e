"""The differences between a pipeline's plan and that of its last run, each with its consequence for the next run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from difflib import ndiff
from typing import Any

from helios.catalog.conf import pyiceberg_properties
from helios.errors import HeliosError
from helios.plan.nodes import Plan
from helios.table.plans import KeptPlan, lasting
from helios.version import VERSION

REFILL = "`helios run --full-refresh` writes the table again; a new name and a new target keep this table"
TARGET = {
    "mode": "later batches are written in the new mode",
    "branch": "refused unless that branch was published: `helios branch TABLE NAME --publish`",
    "format_version": "an existing table keeps its format",
    "partitioning": "only new files; `helios compact` rewrites the others",
    "properties": "set at the next run",
    "writer": "only new files",
    "routed_by": "only later batches",
    "quarantine": "only rows that are rejected later",
    "audits": "only later batches",
    "maintenance": "from the next run on",
    "retry": "from the next run on",
}
"""The settings of a target in the script, each with the consequence of a change for an existing table."""
BREAKING = ("mode", "branch", "routed_by")
"""Settings whose change leaves rows that the new setting would not have written."""


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        part: The part of the plan: `step`, `source`, `column`, `state`, `path`, `engine`, `trigger`, `version`, or one
            of the target.
        lines: The difference: a line with `- ` is from the last run, a line with `+ ` is new.
        means: The consequence for the next run.
        additive: Whether the existing rows and the progress are still right.
    """

    part: str
    lines: tuple[str, ...]
    means: str
    additive: bool = True


def changed(plan: Plan) -> tuple[KeptPlan, list[Change]] | None:
    """The last run's plan and the differences to it; None if no run has stored a plan that can be read.

    Args:
        plan: The plan of the next run.
    """
    if not plan.write.exists:
        return None  # saves the import of the readers of checkpoints
    from helios.table.plans import last_plan

    properties = pyiceberg_properties(plan.write.table.catalog)
    for location in (plan.checkpoint, plan.former_checkpoint):
        try:
            kept = last_plan(location, properties) if location else None
        except HeliosError:
            continue
        if kept is not None:
            return kept, list(differences(kept, plan))
    return None


def differences(kept: KeptPlan, plan: Plan) -> Iterator[Change]:
    """The differences between a kept plan and a plan."""
    before, after = kept.plan, json.loads(json.dumps(lasting(plan.as_json(), plan.state), default=str))
    if before["steps"] != after["steps"]:
        steps = tuple(line for line in ndiff(before["steps"], after["steps"]) if not line.startswith("?"))
        yield Change("step", steps, f"only later batches; {REFILL}", additive=False)
    yield from _sources(before["sources"], after["sources"])
    if before.get("state", after["state"]) != after["state"]:
        lines = (f"- {'; '.join(before['state']) or 'none'}", f"+ {'; '.join(after['state']) or 'none'}")
        means = f"refused: the checkpoint has the state of the last run's steps; {REFILL}"
        yield Change("state", lines, means, additive=False)
    yield from _columns(before["schema"], after["schema"])
    for part, means in TARGET.items():
        yield from _part(
            part, before["target"].get(part), after["target"].get(part), means, additive=part not in BREAKING
        )
    yield from _part("path", before["path"], after["path"], "from the next run on")
    yield from _part("engine", before["engine"], after["engine"], "the rows are the same")
    yield from _part("trigger", before["trigger"], after["trigger"], "from the next run on")
    yield from _part("version", kept.version, VERSION, "checkpoint and tables go on")


def _part(part: str, before: Any, after: Any, means: str, *, additive: bool = True) -> Iterator[Change]:
    """The change of one part; none if the part is equal. Of a mapping, only the changed keys are shown."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        removed = [f"- {key}: {_text(before[key])}" for key in keys if key in before]
        added = [f"+ {key}: {_text(after[key])}" for key in keys if key in after]
        yield Change(part, (*removed, *added), means, additive)
    else:
        yield Change(part, (f"- {_text(before)}", f"+ {_text(after)}"), means, additive)


def _sources(before: list[Mapping[str, Any]], after: list[Mapping[str, Any]]) -> Iterator[Change]:
    """The changes of sources: added, removed, or read in another way."""
    old, new = ({source["name"]: source for source in sources} for sources in (before, after))
    removed, added = [name for name in old if name not in new], [name for name in new if name not in old]
    if removed or added:
        followed = any(source["followed"] for source in (*before, *after))
        means = f"refused: the checkpoint follows other sources; {REFILL}" if followed else "read at the next run"
        lines = (*(f"- {name}" for name in removed), *(f"+ {name}" for name in added))
        yield Change("source", lines, means, additive=not followed)
    for name in new:
        if name in old:
            for change in _part("source", _settings(old[name]), _settings(new[name]), "for later batches"):
                yield Change("source", (name, *change.lines), change.means)


def _settings(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a source, without the parts that the script does not decide."""
    return {key: value for key, value in source.items() if key not in ("schema", "uuid", "pushed")}


def _columns(before: Any, after: Any) -> Iterator[Change]:
    """The change of columns: added, removed, or of another type; none if they are known only at run."""
    if before is None or after is None:
        return
    old, new = ({column["name"]: str(column["type"]) for column in columns} for columns in (before, after))
    removed = [f"- {name} {kind}" for name, kind in old.items() if new.get(name) != kind]
    added = [f"+ {name} {kind}" for name, kind in new.items() if old.get(name) != kind]
    if removed or added:
        means = "the table gets new columns, null in earlier rows; it keeps missing columns, null in later rows"
        yield Change("column", (*removed, *added), means, additive=not removed)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if value not in (None, [], {}) else "none"


def as_json(found: tuple[KeptPlan, list[Change]] | None) -> dict[str, Any] | None:
    """The result of `changed` as JSON values."""
    if found is None:
        return None
    kept, changes = found
    return {"run": kept.at.isoformat(), "version": kept.version, "changes": [asdict(change) for change in changes]}


def as_text(found: tuple[KeptPlan, list[Change]] | None) -> str:
    """The result of `changed` as `helios plan` prints it below a plan."""
    if found is None:
        return ""
    kept, changes = found
    since = f"the plan of {kept.at:%Y-%m-%d %H:%M:%S} UTC, with which it last ran"
    label_width = 20
    if not changes:
        return f"  changed   nothing since {since}"
    lines = [f"  changed   since {since}:"]
    for change in changes:
        labels = [change.part] + [""] * (len(change.lines) - 1)
        lines += [f"{label:>{label_width}}  {line}" for label, line in zip(labels, change.lines, strict=True)]
        lines.append(f"{'':>{label_width}}  => {change.means}")
    return "\n".join(lines)
