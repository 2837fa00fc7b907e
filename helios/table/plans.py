"""The plans that the runs of a pipeline keep in its checkpoint, so that the plan of a commit can be read later.

<checkpoint>/
  helios/plans/STEPS.json   the last plan with these steps; STEPS is their fingerprint, as in the stamps of commits
  helios/plans/STEPS-AT.json  an earlier plan with the same steps, which read its sources in another way
  helios/plans/last         the fingerprint of the last run
  helios/backfill/helios/plans/STEPS.json  the plan of a backfill
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from helios.errors import HeliosError
from helios.model.columns import LOG_ORDER
from helios.table.readers import Warehouse, checkpoints_of
from helios.table.storage import Folder

FOLDER = "helios/plans"
BACKFILL_FOLDER = f"helios/backfill/{FOLDER}"
LAST = f"{FOLDER}/last"
VERSION = 1
"""The newest version of plan files that this code reads."""
STATEFUL = "keeps state between batches"
"""A text that is in the reason for a plan's read path if the plan was compiled as a stateful stream."""
VOLATILE = ("scan", "backlog", "snapshot")
"""The fields of a source in a plan that change with the state of the source."""


@dataclass(frozen=True, kw_only=True)
class KeptPlan:
    """A plan that a run has kept.

    Attributes:
        steps: The fingerprint of its steps.
        version: The version of Helios.
        at: The time of the first run with this plan.
        plan: The plan as `helios plan --json` prints it, without the state of its sources. Secrets are not in it.
    """

    steps: str
    version: str
    at: datetime
    plan: Mapping[str, Any]

    def as_json(self) -> str:
        """The plan as a checkpoint keeps it."""
        kept = {"v": VERSION, "steps": self.steps, "helios": self.version, "at": self.at.isoformat(), "plan": self.plan}
        return json.dumps(kept, indent=1)

    @classmethod
    def parse(cls, text: str) -> KeptPlan | None:
        """Parses the text of a plan file; None if it is damaged, or of a later version.

        Examples:
            >>> kept = KeptPlan(steps="ab", version="1.0", at=datetime(2026, 1, 1, tzinfo=UTC), plan={"steps": []})
            >>> KeptPlan.parse(kept.as_json()) == kept
            True
            >>> KeptPlan.parse("{")
        """
        try:
            fields = json.loads(text)
            at = datetime.fromisoformat(fields["at"]).astimezone(UTC)
            kept = cls(steps=str(fields["steps"]), version=str(fields["helios"]), at=at, plan=_compiled(fields["plan"]))
            return kept if fields["v"] <= VERSION else None
        except (ValueError, KeyError, TypeError):
            return None


def _compiled(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a plan as it was compiled, without changes by the run, which an early version of Helios kept too.

    Examples:
        >>> _compiled({"target": {"table": "a.t", "mode": "the groups of country"}})
        {'target': {'table': 'a.t'}}
        >>> _compiled({"path": "stateful stream", "why": "batches are snapshot ranges", "state": ["a.s"]})
        {'path': 'snapshot ranges', 'why': 'batches are snapshot ranges', 'state': []}
    """
    compiled = dict(plan)
    target = plan.get("target") or {}
    mode = str(target.get("mode"))
    if mode.startswith("the groups of ") or f"newest by {LOG_ORDER}," in mode:
        compiled["target"] = _without(target, ["mode"])  # the declared mode is unknown
    if plan.get("path") == "stateful stream" and STATEFUL not in plan.get("why", ""):
        compiled |= {"path": "snapshot ranges", "state": []}  # Spark found the state when the run began
    return compiled


def lasting_fields(plan: Mapping[str, Any], state: Sequence[str] = ()) -> dict[str, Any]:
    """Returns a plan without the fields that change with the state of its sources and its target.

    Args:
        state: The steps and sources on which the state in the pipeline's checkpoint depends, as text.

    Examples:
        >>> lasting_fields({"sources": [{"name": "a.s", "snapshot": 7}], "target": {"table": "a.t", "exists": True}})
        {'sources': [{'name': 'a.s'}], 'target': {'table': 'a.t'}, 'state': []}
    """
    sources = [_without(source, VOLATILE) for source in plan.get("sources") or ()]
    target = _without(plan.get("target", {}), ("exists", "changes", "history", "notes"))
    rest = _without(plan, ("spill",))  # `spill` contains the free bytes of a disk
    return {**rest, "sources": sources, "target": target, "state": list(state)}


def _without(fields: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def last_plan(location: str, properties: Mapping[str, str]) -> KeptPlan | None:
    """The plan of the last run of a checkpoint; None if none is kept, or it cannot be parsed.

    Args:
        properties: PyIceberg's properties, which open the storage.

    Raises:
        RunError: The storage cannot be read.
    """
    folder = Folder(location, properties)
    steps = folder.text(LAST)
    text = folder.text(f"{FOLDER}/{steps}.json") if steps else None
    return KeptPlan.parse(text) if text is not None else None


def plans_of(pipeline: str, places: Iterable[Warehouse], locations: Sequence[str] = ()) -> list[KeptPlan]:
    """The readable plans of a pipeline's runs and backfills, oldest first; empty if a checkpoint cannot be read.

    Args:
        places: The warehouses to search for its checkpoints if `locations` is empty.
        locations: The locations of its checkpoints.
    """
    plans: list[KeptPlan] = []
    try:
        for folder in checkpoints_of(pipeline, places, locations):
            files = [f"{kept}/{name}" for kept in (FOLDER, BACKFILL_FOLDER) for name in folder.names(kept)]
            texts = [folder.text(file) for file in files if file.endswith(".json")]
            parsed = [KeptPlan.parse(text) for text in texts if text is not None]
            plans += [kept for kept in parsed if kept is not None]
    except HeliosError:
        return []
    return sorted(plans, key=lambda kept: kept.at)
