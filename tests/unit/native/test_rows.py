"""Rows of a batch that Spark builds only where it is asked for them."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import LongType, StructField, StructType

from helios.native.program import NotNative, Program
from helios.spark.native.batch import NativeBatch
from helios.spark.steps.build import Built, NativeRows

COLUMNS = StructType([StructField("id", LongType())])


class Counted:
    """A count of Spark's, as an `Observation` has it."""

    def __init__(self, rows: int) -> None:
        self._jo = self
        self._rows = rows

    def getRowOrEmpty(self) -> Counted:
        return self

    def isDefined(self) -> bool:
        return True

    def get(self) -> Counted:
        return self

    def size(self) -> int:
        return 1

    def getLong(self, _: int) -> int:
        return self._rows


def test_rows_are_built_once_and_where_they_are_asked_for() -> None:
    built: list[Built] = []

    def build() -> Built:
        rows: Any = object()
        built.append(Built(rows, rejected=[rows], counted=[Counted(2), Counted(3)]))  # type: ignore[list-item]
        return built[-1]

    session: Any = object()
    native = NativeBatch(None, Program((), (), ()), None, True, lambda _: None)  # type: ignore[arg-type]
    rows = NativeRows(native, COLUMNS, session, build)
    native.count_dropped([{"dropped": 4}])
    assert (rows.schema, rows.session, rows.native, rows.dropped()) == (COLUMNS, session, native, 4)
    native.leave_to_spark(NotNative("a reason"))
    assert (rows.dropped(), built) == (0, [])
    assert rows.df is rows.df
    assert (len(built), rows.rejected, rows.dropped()) == (1, built[0].rejected, 5)
