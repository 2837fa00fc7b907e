"""The notes of a backfill in the checkpoint folder, so that another process can resume it.

<checkpoint>/helios/backfill/
  state.json          the request and the slices; the backfill's ledger record has the number of the last finished slice
  helios/lease.json   the process that runs the backfill
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession

from helios.errors import CheckpointError
from helios.spark.backfill.slices import Slice
from helios.spark.checkpoint.files import Checkpoint

STATE = "state.json"


@dataclass(frozen=True, kw_only=True)
class State:
    """A started backfill.

    Attributes:
        id: The backfill's id, which is the checkpoint id of its commits.
        request: The filter or the commits to repair, and the options.
        computed_from: The values that identify the script and the inputs of the rows, as
            `helios.spark.backfill.started.computed_from` returns them.
    """

    id: str
    request: Mapping[str, object]
    computed_from: Sequence[str]
    slices: Sequence[Slice]


class Notes:
    """Reads and writes the notes of a backfill, in a folder of the pipeline's checkpoint."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self.checkpoint = Checkpoint(spark, f"{checkpoint.location}/helios/backfill")

    def load(self) -> State | None:
        """The backfill that has begun and not ended; None if there is none.

        Raises:
            CheckpointError: The file is damaged.
        """
        text = self.checkpoint.files.read(STATE)
        if text is None:
            return None
        try:
            fields = json.loads(text)
            slices = [Slice(**slice_fields) for slice_fields in fields["slices"]]
            request, computed_from = dict(fields["ask"]), list(fields["made_by"])
            return State(id=str(fields["id"]), request=request, computed_from=computed_from, slices=slices)
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self.checkpoint.location}/{STATE}, the notes of a backfill, cannot be read ({error}).",
                fix="delete it: the backfill then begins with its first slice again, which does no harm.",
            ) from error

    def begin(self, state: State) -> None:
        fields = {
            "v": 1,
            "id": state.id,
            "ask": state.request,
            "made_by": state.computed_from,
            "slices": [asdict(slice) for slice in state.slices],
        }
        self.checkpoint.files.write(STATE, json.dumps(fields))

    def end(self) -> None:
        self.checkpoint.files.delete(STATE)
