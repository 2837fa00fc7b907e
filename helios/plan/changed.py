"""The differences between the plans of a pipeline's last run and next run, with their consequences for the next run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import ndiff
from textwrap import wrap
from typing import Any, TypeVar

from helios.catalog.conf import pyiceberg_properties
from helios.errors import HeliosError, InputError
from helios.model.flow import flows
from helios.model.maintenance import Maintenance
from helios.model.retry import Retry
from helios.plan.backfills import refuse_backfill
from helios.plan.checks.rehearsal import rehearsal_problem
from helios.plan.derivation import HARMLESS
from helios.plan.native.engine import Engine
from helios.plan.nodes import Plan, Trigger
from helios.plan.text import maintenance_text, retry_text, trigger_text
from helios.table.plans import KeptPlan, last_plan, lasting_fields
from helios.version import VERSION

T = TypeVar("T")
REFILL = "`helios run --full-refresh` writes the table again; or give the pipeline a new name and a new target"
NEW_TARGET = "give the pipeline a new name and a new target"
REFUSED = "refused"
"""The first word of a consequence if the next run cannot start because of the change."""
TARGET_SETTINGS = {
    "mode": "later batches are written in the new mode; earlier rows stay as they are",
    "branch": "later batches go to the new branch; if that branch lacks the last batch, the next run is refused "
    "(if the new branch is main, `helios branch TABLE OLD_BRANCH --publish` first adds the batch to it)",
    "properties": "applies only to tables that are created later",
    "snapshot_properties": "applies only to later commits",
    "writer": "applies only to new files",
    "routed_by": "applies only to later batches",
    "quarantine": "applies only to rows that are rejected later",
    "audits": "applies only to later batches",
    "maintenance": "applies from the next run on",
    "retry": "applies from the next run on",
}
"""The settings of a target that a script declares, each with the consequence of a change for an existing table."""
BREAKING = ("mode", "branch", "routed_by")
"""The settings on which the rows in the table depend. After a change, the earlier rows do not fit the new setting."""

KNOWN_FROM_TABLE = ("format_version", "branch", "state", "span")
"""The fields of a source that Helios reads from the source's table. The fields are unknown before the table exists."""


@dataclass(frozen=True)
class Change:
    """One difference between the plan of the last run and that of the next run.

    Attributes:
        part: The part of the plan: `step`, `source`, `column`, `state`, `path`, `engine`, `trigger` or `version`. For
            the target, this is `table`, `layout` or a key of `TARGET_SETTINGS`.
        lines: The difference. Lines that begin with `- ` are from the last run, lines with `+ ` from the next run.
        means: The consequence for the next run; `helios plan --json` prints it under this name.
        additive: True if the existing rows and the checkpoint stay valid after the change.
    """

    part: str
    lines: tuple[str, ...]
    means: str
    additive: bool = True


@dataclass(frozen=True)
class PlanDifference:
    """The last run's plan, and the differences from the plan of the next run.

    Attributes:
        uncompared: The texts of the steps that are callables. Helios does not compare the code of callables.
    """

    kept: KeptPlan
    changes: tuple[Change, ...]
    uncompared: tuple[str, ...] = ()


def plan_difference(plan: Plan) -> PlanDifference | None:
    """Compares the plan of the next run with the plan of the last run; None if there is no readable plan of a run."""
    properties = pyiceberg_properties(plan.write.table.catalog)
    for location in (plan.checkpoint, plan.former_checkpoint):
        try:
            kept = last_plan(location, properties) if location else None
        except HeliosError:
            continue
        if kept is not None:
            steps = (step for flow in flows(plan.stream) for step in flow.steps)
            uncompared = tuple(step.text() for step in steps if step.traits.opaque and not step.sql_texts)
            return PlanDifference(kept, tuple(differences(kept, plan)), uncompared)
    return None


def differences(kept: KeptPlan, plan: Plan) -> Iterator[Change]:
    """Yields the differences between the plan of the last run and the plan of the next run."""
    before, after = kept.plan, json.loads(json.dumps(lasting_fields(plan.as_json(), plan.state_texts), default=str))
    sink = plan.write.sink.iceberg
    remedy = NEW_TARGET if sink is None or sink.many_tables else REFILL
    others = [
        *_source_changes(before["sources"], after["sources"], remedy),
        *_other_changes(kept, before, after, plan, remedy),
    ]
    if before["steps"] != after["steps"]:
        steps = tuple(line for line in ndiff(before["steps"], after["steps"]) if not line.startswith("?"))
        next_run_starts = not any(change.means.startswith(REFUSED) for change in others)
        yield Change(
            "step",
            steps,
            _steps_consequence(plan) if next_run_starts else "the next run is refused, see below",
            additive=False,
        )
    yield from others


def _other_changes(
    kept: KeptPlan, before: Mapping[str, Any], after: Mapping[str, Any], plan: Plan, remedy: str
) -> Iterator[Change]:
    """The changes of state, path, columns, target, engine, trigger and version."""
    if before.get("state", after["state"]) != after["state"]:
        lines = (f"- {'; '.join(before['state']) or 'none'}", f"+ {'; '.join(after['state']) or 'none'}")
        consequence = f"{REFUSED}: the checkpoint has the state of the last run's steps; {remedy}"
        yield Change("state", lines, consequence, additive=False)
    consequence = f"{REFUSED}: the positions in the checkpoint are for the read path of the last run; {remedy}"
    yield from _part_change("path", before["path"], after["path"], consequence, additive=False)
    yield from _column_changes(before["schema"], after["schema"], plan.write.changes)
    yield from _target_changes(before["target"], after["target"], plan)
    yield from _part_change(
        "engine", _engine_text(before["engine"]), _engine_text(after["engine"]), "the rows are the same"
    )
    old_trigger, new_trigger = (_setting_text(Trigger, trigger_text, values["trigger"]) for values in (before, after))
    yield from _part_change("trigger", old_trigger, new_trigger, "applies from the next run on")
    yield from _part_change("version", kept.version, VERSION, "the checkpoint and the tables are kept")


def _steps_consequence(plan: Plan) -> str:
    """The consequence of changed steps, with the commands that show and repair earlier rows."""
    consequences = ["the checkpoint is kept, and earlier rows stay as they are"]
    if plan.write.sink.iceberg is not None and not plan.write.sink.many_tables:
        if rehearsal_problem(plan) is None:
            consequences.append("`helios rehearse` shows how they would differ")
        repairs = "`helios backfill` or `helios run --full-refresh`"
        try:
            refuse_backfill(plan)
        except InputError:
            repairs = "`helios run --full-refresh`"
        consequences.append(f"{repairs} repairs them")
    return "; ".join(consequences)


def _target_changes(before: Mapping[str, Any], after: Mapping[str, Any], plan: Plan) -> Iterator[Change]:
    """The changes of the target's settings, and the changes that the next run makes to the layout of the table."""
    consequence = f"{REFUSED}, unless the table was renamed: the checkpoint belongs to {before['table']}; {NEW_TARGET}"
    yield from _part_change("table", before["table"], after["table"], consequence, additive=False)
    texts: Mapping[str, Callable[[Any], Any]] = {
        "maintenance": lambda values: _setting_text(Maintenance, maintenance_text, values),
        "retry": lambda values: _setting_text(Retry, retry_text, values),
    }
    for part, consequence in TARGET_SETTINGS.items():
        if part not in before:
            continue  # the last run was of an earlier version, which did not store this setting
        as_shown = texts.get(part, lambda value: value)
        old, new = (as_shown(target.get(part)) for target in (before, after))
        yield from _part_change(part, old, new, consequence, additive=part not in BREAKING)
    layout_changes = tuple(
        f"+ {change}" for change in plan.write.changes if "COLUMN " not in change and not change.startswith("branch ")
    )
    if layout_changes:
        yield Change("layout", layout_changes, "applies only to new files; `helios compact` rewrites older files")


def _setting_text(kind: type[T], render: Callable[[T], str], values: Mapping[str, Any] | None) -> str | None:
    """The text of settings in a plan, from the JSON values of the settings."""
    if values is None:
        return None
    known = {field.name: values[field.name] for field in fields(kind) if field.name in values}  # type: ignore[arg-type]
    return render(kind(**known))


def _engine_text(values: Mapping[str, Any]) -> str:
    """The text of the engine in a plan, from the JSON values of the engine."""
    setting = "auto" if values.get("from_bytes") else "require"
    return str(Engine(native=values["native"], why=values.get("why") or "", setting=setting))


def _part_change(part: str, before: Any, after: Any, consequence: str, *, additive: bool = True) -> Iterator[Change]:
    """Yields the change of a part; nothing if the values are equal. For mappings, only changed keys are shown."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        removed = [f"- {key}: {_text(before[key])}" for key in keys if key in before]
        added = [f"+ {key}: {_text(after[key])}" for key in keys if key in after]
        yield Change(part, (*removed, *added), consequence, additive)
    else:
        yield Change(part, (f"- {_text(before)}", f"+ {_text(after)}"), consequence, additive)


def _source_changes(before: list[Mapping[str, Any]], after: list[Mapping[str, Any]], remedy: str) -> Iterator[Change]:
    """The changes of sources: a source is added, removed or read in another way."""
    old, new = ({source["name"]: source for source in sources} for sources in (before, after))
    removed, added = [name for name in old if name not in new], [name for name in new if name not in old]
    both = [name for name in new if name in old]
    # Sources that one of the two plans follows and the other plan reads once.
    toggled = [name for name in both if old[name]["followed"] != new[name]["followed"]]
    consequence = f"{REFUSED}: the checkpoint follows other sources; {remedy}"
    if removed or added:
        followed = any(source["followed"] for source in (*before, *after))
        lines = (*(f"- {name}" for name in removed), *(f"+ {name}" for name in added))
        yield Change(
            "source", lines, consequence if followed else "applies from the next run on", additive=not followed
        )
    for name in toggled:
        texts = {False: "read once", True: "followed"}
        lines = (name, f"- {texts[old[name]['followed']]}", f"+ {texts[new[name]['followed']]}")
        yield Change("source", lines, consequence, additive=False)
    for name in both:
        old_settings, new_settings = _settings(old[name], new[name]), _settings(new[name], old[name])
        additive = all(key in HARMLESS for key in dict(old_settings.items() ^ new_settings.items()))
        applies = "applies only to later batches"
        for change in _part_change("source", old_settings, new_settings, applies, additive=additive):
            yield Change("source", (name, *change.lines), change.means, additive)


def _settings(source: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """The texts of the settings that a script declares for a source. `other` is the same source in the other plan."""
    not_declared: tuple[str, ...] = ("schema", "uuid", "pushed", "followed")
    table_existed = [plan_source.get("uuid") is not None for plan_source in (source, other)]
    if any(table_existed) and not all(table_existed):  # the table was created between the two plans
        not_declared += KNOWN_FROM_TABLE
    if "at" in source and "at" in other:
        # `at` is declared, and is compared. `state` and `span` are the snapshots that it names now. They change when a
        # branch moves.
        not_declared += ("state", "span")
    settings = {key: _text(value) for key, value in source.items() if key not in not_declared}
    # Without a table, the columns are those that the script declares.
    if not any(table_existed) and source.get("schema"):
        settings["schema"] = ", ".join(f"{column['name']} {column['type']}" for column in source["schema"])
    return settings


def _column_changes(before: Any, after: Any, table_changes: Sequence[str]) -> Iterator[Change]:
    """Yields the change of columns: added columns, removed columns, and columns of another type.

    Yields nothing if the columns are known only while the pipeline runs.

    Args:
        table_changes: The changes that the next run makes to the table, as text.
    """
    if before is None or after is None:
        return
    old, new = ({column["name"]: str(column["type"]) for column in columns} for columns in (before, after))
    removed = [name for name in old if name not in new]
    added = [name for name in new if name not in old]
    retyped = [name for name in new if name in old and old[name] != new[name]]
    lines = (
        *(f"- {name} {old[name]}" for name in (*removed, *retyped)),
        *(f"+ {name} {new[name]}" for name in (*added, *retyped)),
    )
    consequences = [change for change in table_changes if "COLUMN " in change]
    if added:
        consequences.append("new columns are null in earlier rows")
    if removed:
        consequences.append("the table keeps the column, which is null in later rows")
    if retyped and not any(change.startswith("ALTER COLUMN") for change in table_changes):
        consequences.append("the column keeps its old type in the table")
    if lines:
        yield Change("column", lines, "; ".join(consequences), additive=not (removed or retyped))


def _text(value: Any) -> str:
    """A JSON value as text; `none` for an empty value."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if value not in (None, [], {}) else "none"


def as_json(result: PlanDifference | None) -> dict[str, Any] | None:
    if result is None:
        return None
    changes = [asdict(change) for change in result.changes]
    return {"run": result.kept.at.isoformat(), "version": result.kept.version, "changes": changes}


def as_text(result: PlanDifference | None) -> str:
    """The result of `plan_difference`, as `helios plan` prints it below a plan."""
    if result is None:
        return ""
    since = f"the plan of {result.kept.at:%Y-%m-%d %H:%M:%S} UTC, with which it last ran"
    label_width = 20
    lines = [f"  changed   since {since}:" if result.changes else f"  changed   nothing since {since}"]
    for change in result.changes:
        labels = [change.part] + [""] * (len(change.lines) - 1)
        lines += [f"{label:>{label_width}}  {line}" for label, line in zip(labels, change.lines, strict=True)]
        indent = " " * (label_width + 2)
        lines += wrap(change.means, 110, initial_indent=f"{indent}=> ", subsequent_indent=f"{indent}   ")
    if result.uncompared:
        lines.append(f"{'':>{label_width}}  not compared: the code of {', '.join(result.uncompared)}")
    return "\n".join(lines)
