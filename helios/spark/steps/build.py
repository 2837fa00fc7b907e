"""Builds a pipeline's DataFrame: its steps over the rows of its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import StructType

from helios.model.flow import Flow
from helios.plan.nodes import Plan, ReadPath, ReadPlan
from helios.sources.common.spark.past import Past
from helios.sources.common.spark.protocol import require_declared_columns
from helios.spark.native.batch import NativeBatch
from helios.spark.steps.steps import AsOfSide, Scope, apply


class Built:
    """A pipeline's rows, and the rows that were rejected.

    Args:
        native: The batch with the same rows for the columnar engine; None if Spark computes the rows.
        rejected: The rows for the quarantine.
        counted: The counts of dropped rows, available once the rows have been written.
    """

    def __init__(
        self,
        df: DataFrame,
        native: NativeBatch | None = None,
        rejected: Sequence[DataFrame] = (),
        counted: Sequence[Observation] = (),
    ) -> None:
        self._df = df
        self.native = native
        self._rejected, self._counted = rejected, counted

    @property
    def df(self) -> DataFrame:
        return self._df

    @property
    def schema(self) -> StructType:
        return self.df.schema

    @property
    def session(self) -> SparkSession:
        return self.df.sparkSession

    @property
    def rejected(self) -> Sequence[DataFrame]:
        return self._rejected

    @property
    def counted(self) -> Sequence[Observation]:
        return self._counted

    def dropped(self) -> int:
        """The number of dropped rows, once the rows have been written."""
        if self.native is not None and self.native.dropped:
            return sum(self.native.dropped)  # Spark may have read some of these rows and counted them, too
        # `Observation.get` would block. `getOrEmpty` fails on a row of counts without columns. Spark returns such a row
        # if its optimizer has removed the observed part of the plan, because none of its rows are written.
        counts = [observation._jo.getRowOrEmpty() for observation in self.counted if observation._jo is not None]
        return sum(int(row.get().getLong(0)) for row in counts if row.isDefined() and row.get().size())


class NativeRows(Built):
    """Rows of the columnar engine. Spark's DataFrame of the same rows is built only when it is needed.

    Args:
        schema: The columns after the steps, according to Spark's analyzer.
        build: Builds the same rows with Spark.
    """

    def __init__(
        self, native: NativeBatch, schema: StructType, session: SparkSession, build: Callable[[], Built]
    ) -> None:
        self.native = native
        self._schema, self._session = schema, session
        self._build = build
        self._built: Built | None = None

    def _by_spark(self) -> Built:
        if self._built is None:
            self._built = self._build()
            if self.native is not None:
                self.native.files_counted.append(True)  # Spark counts the files that it plans
        return self._built

    @property
    def df(self) -> DataFrame:
        return self._by_spark().df

    @property
    def schema(self) -> StructType:
        return self._schema

    @property
    def session(self) -> SparkSession:
        return self._session

    @property
    def rejected(self) -> Sequence[DataFrame]:
        return self._by_spark().rejected

    @property
    def counted(self) -> Sequence[Observation]:
        return self._built.counted if self._built is not None else ()


def build(
    plan: Plan, rows: Callable[[int, ReadPlan], DataFrame], past: Callable[[int], Past | None] | None = None
) -> Built:
    """The pipeline's DataFrame over the rows of its sources, which are numbered as in `plan.reads`.

    Args:
        rows: Returns the rows of a source.
        past: Returns the earlier states of a source that a join reads as of a time; not needed for the columns alone.
    """
    numbered_reads: Iterator[tuple[int, ReadPlan]] = iter(enumerate(plan.reads))
    scopes: list[Scope] = []

    def read(flow: Flow) -> DataFrame:
        index, read_plan = next(numbered_reads)
        df = rows(index, read_plan)
        require_declared_columns(df, read_plan)
        return apply(df, flow.steps, scopes[0])

    def read_as_of(flow: Flow) -> AsOfSide:
        index, read_plan = next(numbered_reads)
        current = apply(rows(index, read_plan), flow.steps, scopes[0])
        states = past(index) if past is not None else None
        return as_of_side(current, flow, states, stateful=plan.path is ReadPath.STATEFUL)

    scopes.append(Scope(read, read_as_of=read_as_of))
    try:
        return Built(read(plan.stream), rejected=scopes[0].rejected, counted=scopes[0].counted)
    finally:
        scopes.clear()  # the scope and `read` refer to each other, and the cycle would keep the batch's DataFrames


def as_of_side(current: DataFrame, flow: Flow, past: Past | None, *, stateful: bool = False) -> AsOfSide:
    """The right side of an as-of join.

    Args:
        past: The earlier states of its source.
        stateful: Whether the pipeline is planned as one stream.
    """

    def at_snapshot(snapshot: int) -> DataFrame:
        assert past is not None
        return apply(past.rows(snapshot), flow.steps, Scope(_refuse_other_flow))

    return AsOfSide(current, past, at_snapshot, stateful)


def _refuse_other_flow(flow: Flow) -> DataFrame:
    raise AssertionError(f"the right side of an as-of join cannot read {flow.text()}: it is read at a past snapshot")
