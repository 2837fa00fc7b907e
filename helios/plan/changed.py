"""What a pipeline's plan has in other ways than that of its last run, and what that means for the next one."""

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

REFILL = "`helios run --full-refresh` writes the table anew; a new name and a new target keep this one"
TARGET = {
    "mode": "later batches are written so",
    "branch": "refused: the record of the pipeline is on the other branch",
    "format_version": "a table that is there keeps its format",
    "partitioning": "new files alone; `helios compact` rewrites the others",
    "properties": "set at the next run",
    "writer": "new files alone",
    "routed_by": "later batches alone",
    "quarantine": "later rejected rows alone",
    "audits": "later batches alone",
    "maintenance": "from the next run on",
    "retry": "from the next run on",
}
"""The parts of a target that a script decides, and what another one means for a table that is there."""
BREAKING = ("mode", "branch", "routed_by")


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        part: The part of the plan: `step`, `source`, `column`, `state`, `path`, `engine`, `trigger`, `version`, or one
            of the target.
        lines: The difference: what was there after `- `, what is there now after `+ `.
        means: The consequence for the next run.
        additive: Whether rows and progress that are there stay right as they are.
    """

    part: str
    lines: tuple[str, ...]
    means: str
    additive: bool = True


def changed(plan: Plan) -> tuple[KeptPlan, list[Change]] | None:
    """The last run's plan and the differences to it; None where no run has kept a plan, or it cannot be read.

    Args:
        plan: The plan of the next run.
    """
    if not plan.write.exists:
        return None  # only a table that is there pays for what reads checkpoints
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
        yield Change("step", steps, f"later batches alone; {REFILL}", additive=False)
    yield from _sources(before["sources"], after["sources"])
    if before.get("state", after["state"]) != after["state"]:
        lines = (f"- {'; '.join(before['state']) or 'none'}", f"+ {'; '.join(after['state']) or 'none'}")
        yield Change(
            "state", lines, f"refused: the state in the checkpoint is that of before; {REFILL}", additive=False
        )
    yield from _columns(before["schema"], after["schema"])
    for part, means in TARGET.items():
        yield from _part(
            part, before["target"].get(part), after["target"].get(part), means, additive=part not in BREAKING
        )
    yield from _part("path", before["path"], after["path"], "read so from the next run on")
    yield from _part("engine", before["engine"], after["engine"], "the rows are the same")
    yield from _part("trigger", before["trigger"], after["trigger"], "from the next run on")
    yield from _part("version", kept.version, VERSION, "checkpoint and tables go on")


def _part(part: str, before: Any, after: Any, means: str, *, additive: bool = True) -> Iterator[Change]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [key for key in (*before, *(k for k in after if k not in before)) if before.get(key) != after.get(key)]
        lost = [f"- {key}: {_text(before[key])}" for key in keys if key in before]
        got = [f"+ {key}: {_text(after[key])}" for key in keys if key in after]
        yield Change(part, (*lost, *got), means, additive)
    else:
        yield Change(part, (f"- {_text(before)}", f"+ {_text(after)}"), means, additive)


def _sources(before: list[Mapping[str, Any]], after: list[Mapping[str, Any]]) -> Iterator[Change]:
    """Sources that came, went, or are read in another way."""
    old, new = ({one["name"]: one for one in sources} for sources in (before, after))
    gone, come = [name for name in old if name not in new], [name for name in new if name not in old]
    if gone or come:
        followed = any(one["followed"] for one in (*before, *after))
        means = f"refused: the checkpoint follows other sources; {REFILL}" if followed else "read at the next run"
        lines = (*(f"- {name}" for name in gone), *(f"+ {name}" for name in come))
        yield Change("source", lines, means, additive=not followed)
    for name in new:
        if name in old:
            for change in _part("source", _read(old[name]), _read(new[name]), "for later batches"):
                yield Change("source", (name, *change.lines), change.means)


def _read(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """How a source is read, as far as the script decides it."""
    return {key: value for key, value in source.items() if key not in ("schema", "uuid", "pushed")}


def _columns(before: Any, after: Any) -> Iterator[Change]:
    """Columns of the rows that came, went, or have another type; none where they are known only at run."""
    if before is None or after is None:
        return
    old, new = ({column["name"]: str(column["type"]) for column in one} for one in (before, after))
    lost = [f"- {name} {kind}" for name, kind in old.items() if new.get(name) != kind]
    got = [f"+ {name} {kind}" for name, kind in new.items() if old.get(name) != kind]
    if lost or got:
        means = (
            "a new column is added, and null in earlier rows; a column that rows lack stays, and is null in later ones"
        )
        yield Change("column", (*lost, *got), means, additive=not lost)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if value not in (None, [], {}) else "none"


def as_json(found: tuple[KeptPlan, list[Change]] | None) -> dict[str, Any] | None:
    """The differences as JSON values; None where there is nothing to compare with."""
    if found is None:
        return None
    kept, changes = found
    return {"run": kept.at.isoformat(), "version": kept.version, "changes": [asdict(one) for one in changes]}


def as_text(found: tuple[KeptPlan, list[Change]] | None) -> str:
    """The differences as `helios plan` prints them below a plan."""
    if found is None:
        return ""
    kept, changes = found
    since = f"the plan of {kept.at:%Y-%m-%d %H:%M:%S} UTC, with which it last ran"
    if not changes:
        return f"  changed   nothing since {since}"
    lines = [f"  changed   since {since}:"]
    for change in changes:
        lines += [f"{change.part if not i else '':>20}  {line}" for i, line in enumerate(change.lines)]
        lines.append(f"{'':>20}  => {change.means}")
    return "\n".join(lines)
