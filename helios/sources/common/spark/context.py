"""`SourceContext`, the context that all sources of one run share."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from helios.plan.nodes import Plan
from helios.sources.common.spark.run_state import Inferred, RejectedInput
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.observer import Observer, SilentObserver


@dataclass(frozen=True, kw_only=True)
class SourceContext:
    """The context that the sources of one run share.

    Attributes:
        plan: The plan of the pipeline. The number of a source is its index in the plan's `reads`.
        spark: The session.
        observer: Receives the lag each time a source is checked.
        rejected_input: Collects the rows and files that sources reject.
        inferred: The columns that were inferred from files without types.
        checkpoint: The checkpoint of the run, in which a source may keep a log; None if no pipeline runs.
        refills: Whether the run refills the target, and therefore discards the state in the checkpoint.
    """

    plan: Plan
    spark: SparkSession
    observer: Observer = field(default_factory=SilentObserver)
    rejected_input: RejectedInput = field(default_factory=RejectedInput)
    inferred: Inferred = field(default_factory=Inferred)
    checkpoint: Checkpoint | None = None
    refills: bool = False
