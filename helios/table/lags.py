"""Lags that only a run can compute, because only a run connects to the source. The run keeps them in its checkpoint.

<checkpoint>/
  helios/lag/N.json   the last lag of the source with the number N in the plan
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from helios.errors import HeliosError
from helios.table.positions import Lag, Recorded
from helios.table.readers import Warehouse, checkpoints_of
from helios.table.view import View

FOLDER = "helios/lag"
AMOUNTS = ("files", "bytes", "records")
"""The fields of a lag that some kinds of sources leave out."""


@dataclass(frozen=True)
class KeptLag:
    """A lag that a run has computed.

    Attributes:
        source: The source's name in positions.
        at: The time at which the run computed it.
    """

    source: str
    lag: Lag
    at: datetime

    def as_json(self) -> str:
        """The lag as a checkpoint keeps it."""
        fields = {**asdict(self.lag), "seconds": round(self.lag.seconds, 3), "at": self.at.isoformat()}
        return json.dumps({"v": 1, "source": self.source, **fields})

    @classmethod
    def parse(cls, text: str) -> KeptLag | None:
        """Parses the text of a lag file; None if it is damaged or of a later version.

        Examples:
            >>> at = datetime(2026, 1, 1, tzinfo=UTC)
            >>> KeptLag.parse(KeptLag("kafka:orders", Lag(0, 1.5, records=7), at).as_json()).lag.records
            7
            >>> KeptLag.parse(KeptLag("pulsar:orders", Lag(3, 1.5), at).as_json()).lag == Lag(3, 1.5)
            True
            >>> KeptLag.parse("{")
        """
        try:
            fields = json.loads(text)
            amounts = {name: None if fields.get(name) is None else int(fields[name]) for name in AMOUNTS}
            lag = Lag(int(fields.get("snapshots", 0)), float(fields["seconds"]), **amounts)
            at = datetime.fromisoformat(fields["at"])
            return cls(str(fields["source"]), lag, at.astimezone(UTC)) if fields["v"] == 1 else None
        except (ValueError, KeyError, TypeError):
            return None


def last_lag(pipeline: str, source: str, places: Sequence[Warehouse], locations: Sequence[str] = ()) -> KeptLag | None:
    """Returns the last lag that a run of the pipeline computed for a source.

    Args:
        source: The source's name in positions.
        places: The warehouses to search for its checkpoints if `locations` is empty.
        locations: The locations of its checkpoints.

    Returns:
        The newest lag; None if no checkpoint has one, or none can be read.
    """
    lags: list[KeptLag] = []
    try:
        for folder in checkpoints_of(pipeline, places, locations):
            texts = [folder.text(f"{FOLDER}/{name}") for name in folder.names(FOLDER) if name.endswith(".json")]
            seen = [KeptLag.parse(text) for text in texts if text is not None]
            lags += [lag for lag in seen if lag is not None and lag.source == source]
    except HeliosError:
        return None
    return max(lags, key=lambda seen: seen.at, default=None)


def lag_last_seen(pipeline: str, entry: Recorded, view: View, notes: list[str]) -> Lag | None:
    """Returns the last lag that a run computed, and adds its time to `notes`; None if no run has kept one.

    This is the `lag` of a kind of source whose lag only a run can compute.
    """
    locations = [view.checkpoints[pipeline]] if view.checkpoints.get(pipeline) else []
    seen = last_lag(pipeline, entry.source, view.warehouses, locations)
    if seen is None:
        return None
    notes.append(f"the lag behind {entry.source} is that of {seen.at:%Y-%m-%d %H:%M:%S} UTC")
    return seen.lag
