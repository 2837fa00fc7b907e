"""Builds a pipeline's DataFrame: its steps over the rows of its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import StructType

from helios.model.flow import Flow
from helios.plan.nodes import Plan, ReadPath, ReadPlan
from helios.sources.common.spark.past import Past
from helios.spark.native.batch import NativeBatch
from helios.spark.steps.steps import Dated, Scope, apply


class Built:
    """A pipeline's rows, and the rows that its expectations rejected.

    Args:
        df: The rows.
        native: The same rows from the columnar engine; None if Spark makes the rows.
        rejected: Rows for the quarantine.
        counted: Counts of dropped rows, available once the rows have been written.
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
        """The columns of the rows."""
        return self.df.schema

    @property
    def session(self) -> SparkSession:
        """The session of the batch."""
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
            return sum(self.native.dropped)  # Spark may have looked at some of the rows, and counted them, too
        # `Observation.get` would block. If Spark's optimizer skips a part of which no row is written, the row of counts
        # has no column, on which `getOrEmpty` fails.
        counts = [observation._jo.getRowOrEmpty() for observation in self.counted if observation._jo is not None]
        return sum(int(row.get().getLong(0)) for row in counts if row.isDefined() and row.get().size())


class NativeRows(Built):
    """Rows of the columnar engine; Spark's DataFrame of them is built only when it is needed.

    Args:
        native: The rows of the columnar engine.
        schema: The columns after the steps, by Spark's analyzer.
        session: The session of the batch.
        build: Builds the same rows by Spark.
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
        plan: The pipeline.
        rows: Returns the rows of a source.
        past: Returns the earlier states of a source that a join reads as of a time; None if only columns are needed.
    """
    numbered: Iterator[tuple[int, ReadPlan]] = iter(enumerate(plan.reads))
    scopes: list[Scope] = []

    def flow(declared: Flow) -> DataFrame:
        df = rows(*next(numbered))
        return apply(df, declared.steps, scopes[0])

    def dated(declared: Flow) -> Dated:
        index, read = next(numbered)
        now = apply(rows(index, read), declared.steps, scopes[0])
        states = past(index) if past is not None else None
        return as_dated(now, declared, states, stateful=plan.path is ReadPath.STREAM)

    scopes.append(Scope(flow, dated=dated))
    try:
        return Built(flow(plan.stream), rejected=scopes[0].rejected, counted=scopes[0].counted)
    finally:
        scopes.clear()  # the scope and `flow` refer to each other, a cycle that would keep the batch's DataFrames


def as_dated(now: DataFrame, declared: Flow, past: Past | None, *, stateful: bool = False) -> Dated:
    """The right side of a join as of a time.

    Args:
        now: Its current rows.
        declared: Its flow.
        past: The earlier states of its source.
        stateful: Whether the pipeline is planned as one stream.
    """

    def at(snapshot: int) -> DataFrame:
        assert past is not None
        return apply(past.rows(snapshot), declared.steps, Scope(_refuse_other))

    return Dated(now, past, at, stateful)


def _refuse_other(flow: Flow) -> DataFrame:
    raise AssertionError(f"an earlier state is of one table, not of {flow.text()}")
