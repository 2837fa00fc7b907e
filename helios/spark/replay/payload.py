"""Parses the payloads of quarantined rows, and applies the steps after the step that rejected each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, MapType, StringType, StructType

from helios.errors import InputError, RunError, near_miss
from helios.model.flow import Flow, flows
from helios.plan.nodes import Plan
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.past import past_until_now
from helios.sources.common.spark.protocol import current_rows
from helios.spark.sinks.merge import invalid_reason
from helios.spark.sinks.route import VALUE
from helios.spark.steps.build import as_of_side
from helios.spark.steps.steps import AsOfSide, Scope, apply, rejected
from helios.steps.expect import Expect
from helios.steps.join import Join
from helios.steps.union import Union

ROW, QUARANTINED = "__helios_row", "__helios_aside"
"""The columns with the parsed payload of a quarantined row, and with the whole quarantined row."""

UNPARSED = "MALFORMED_RECORD_IN_PARSING"
"""The condition of Spark's error for JSON that does not match its schema."""


class Payloads:
    """The payloads of one pipeline's quarantine; `plan` is compiled from the current script.

    Raises:
        InputError: Spark refuses a step.
    """

    def __init__(self, plan: Plan, spark: SparkSession) -> None:
        self.plan = plan
        self.spark = spark
        self.steps = plan.stream.steps
        self._quarantine = plan.write.quarantine.text if plan.write.quarantine else ""
        self._sources = SourceContext(plan=plan, spark=spark)
        self._step_schemas = list(self._schemas())
        self._indexes: dict[str, int] = {}

    def _schemas(self) -> Iterator[StructType]:
        """The schema before each step, and after the last one."""
        df = current_rows(self._sources, 0).limit(0)
        reads = self._reads_from(0)
        for step in self.steps:
            yield df.schema
            df = apply(df, [step], Scope(self._reader(reads), read_as_of=self._as_of_reader(reads, past=False)))
        yield df.schema

    # the step that rejected a row

    def step_index(self, text: str) -> int:
        """The index of the step that rejected rows, by its text in the quarantine.

        An empty text means that the sink rejected the rows; the index is then the number of steps. An expectation is
        found by its text. If its conditions have changed, it is found by the name of a condition, or as the only
        expectation with a quarantine.

        Raises:
            InputError: The script has no such step, or rows cannot be replayed from it; the message names the reason.
        """
        if text not in self._indexes:
            index = self._find(text) if text else len(self.steps)
            self._refuse_later_steps(text, index)
            self._indexes[text] = index
        return self._indexes[text]

    def _find(self, text: str) -> int:
        expected = [(i, step) for i, step in enumerate(self.steps) if isinstance(step, Expect)]
        quarantining = [i for i, step in expected if step.on_fail == "quarantine"]
        candidates = (
            [i for i, step in expected if step.text() == text],
            [i for i, step in expected if any(f"({n}=" in text or f", {n}=" in text for n, _ in step.conditions)],
            quarantining,
        )
        for indexes in candidates:
            if len(indexes) == 1:
                return indexes[0]
        nested = [step.text() for inner in list(flows(self.plan.stream))[1:] for step in inner.steps]
        if text in nested:
            why = "is inside the other side of a join or union, from which no rows are replayed."
            fix = "put the expectation after the join or union, or write that side to its own table."
        else:
            known = near_miss(text, [step.text() for _, step in expected])
            why = f"is not in the script any more. {known}"
            fix = "put the step back, with the names of its conditions; the conditions themselves may differ."
        raise InputError(
            f"rows of {self.plan.pipeline} were rejected by {text}, which {why}", where=self.plan.origin, fix=fix
        )

    def _refuse_later_steps(self, text: str, index: int) -> None:
        """Refuses a replay if a later step combines rows: over the replayed rows alone, its result would be wrong."""
        for step in self.steps[index + 1 :]:
            combines = step.traits.combines
            adds_rows = isinstance(step, Join) and step.how in ("right", "full")
            if not combines and not adds_rows:
                continue
            why = "combines rows" if combines else "also returns rows of its other side"
            raise InputError(
                f"rows that {text} rejected cannot be replayed: after that step, {step.text()} {why}.",
                where=step.origin,
                fix=f"split the pipeline there: write the rows that pass {text} to a table first.",
            )

    # the rows

    def passing(self, rows: DataFrame) -> DataFrame:
        """The quarantined rows that now pass the step that rejected them."""
        return self._by_step(rows, self._passing)

    def apply_later_steps(self, rows: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Applies the later steps to rows of `passing`; returns the rows for the target, and the rows that now fail."""
        failed: list[DataFrame] = []

        def remaining_steps(part: DataFrame, index: int) -> DataFrame:
            df, reads = part.select(f"{ROW}.*"), self._reads_from(index + 1)
            for step in self.steps[index + 1 :]:
                # The pipeline itself has already written the other side of a union.
                reader = self._reader(reads, empty=isinstance(step, Union))
                df = apply(df, [step], Scope(reader, failed, read_as_of=self._as_of_reader(reads)))
            return df

        df = self._by_step(rows, remaining_steps)
        fails, reason = fails_in_sink(self.plan)
        failed.append(rejected(df.where(fails), reason, ""))
        return df.where(~fails), reduce(DataFrame.unionByName, failed)

    def _passing(self, part: DataFrame, index: int) -> DataFrame:
        unpacked = part.select(QUARANTINED, f"{ROW}.*")
        if index < len(self.steps):
            step: Any = self.steps[index]
            passes = reduce(lambda a, b: a & b, (F.coalesce(F.expr(c), F.lit(False)) for _, c in step.conditions))
        else:
            fails, _reason = fails_in_sink(self.plan)
            passes = ~fails
        return unpacked.where(passes).select(f"{QUARANTINED}.*")

    def _by_step(self, rows: DataFrame, apply_to: Callable[[DataFrame, int], DataFrame]) -> DataFrame:
        """Applies a function to the rows that each step rejected, parsed with the schema before the step."""
        texts = [row["step"] for row in rows.select("step").distinct().collect()]
        by_index: dict[int, list[str]] = {}
        for text in sorted(texts):
            by_index.setdefault(self.step_index(text), []).append(text)
        parts = []
        for index, texts in by_index.items():
            of_step = rows.where(F.col("step").isin(texts))
            parts.append(apply_to(self._parsed(of_step, index), index))
        return reduce(DataFrame.unionByName, parts) if parts else rows

    def _parsed(self, rows: DataFrame, index: int) -> DataFrame:
        schema = self._step_schemas[index]
        self._refuse_other_columns(rows, schema, index)
        # FAILFAST: a value that does not parse is an error, not a null.
        value = F.from_json("payload", schema, {"mode": "FAILFAST"})
        return rows.select(F.struct(*rows.columns).alias(QUARANTINED), value.alias(ROW))

    def _refuse_other_columns(self, rows: DataFrame, schema: StructType, index: int) -> None:
        """Refuses payloads whose columns differ from those of the stream before the step."""
        payload_columns = {row[0] for row in rows.select(F.explode(F.json_object_keys("payload"))).distinct().collect()}
        # Columns that the source got later may be missing: they are null in older rows.
        source_columns = set(self._step_schemas[0].names)
        removed = sorted(payload_columns - set(schema.names))
        new = sorted(set(schema.names) - payload_columns - source_columns)
        where = self.steps[index].text() if index < len(self.steps) else "the sink"
        if removed or new:
            why = f"they have {removed[0]!r}, which the stream lacks" if removed else f"they lack {new[0]!r}"
            after = ", and change the columns in later steps" if index < len(self.steps) else ""
            raise InputError(
                f"rows in {self._quarantine} do not have the columns that reach {where} now: {why}.",
                where=self.plan.origin,
                fix=f"keep the steps before {where} as they were{after}.",
            )
        unparsable = next((f.name for f in schema.fields if _has_unparsable_map(f.dataType)), None)
        if unparsable is not None:
            raise InputError(
                f"rows in {self._quarantine} cannot be replayed: {unparsable!r} holds a map with keys that are not "
                "strings, which JSON cannot store.",
                where=self.plan.origin,
                fix="read the quarantine in another pipeline.",
            )

    def _reads_from(self, index: int) -> Iterator[int]:
        """The numbers of the sources of joins and unions, from a step on."""
        before = [step.other for step in self.steps[:index] if isinstance(step, (Join, Union))]
        first = 1 + sum(len(list(flows(other))) for other in before)
        return iter(range(first, len(self.plan.reads)))

    def _reader(self, reads: Iterator[int], *, empty: bool = False) -> Callable[[Flow], DataFrame]:
        """A function that reads the other side of a join or union, the next of `reads`; without its rows if `empty`."""

        def read(flow: Flow) -> DataFrame:
            return apply(current_rows(self._sources, next(reads)), flow.steps, Scope(read))

        return (lambda flow: read(flow).limit(0)) if empty else read

    def _as_of_reader(self, reads: Iterator[int], *, past: bool = True) -> Callable[[Flow], AsOfSide]:
        """A function that reads the other side of an as-of join, and with `past` the earlier states of that side."""

        def read_as_of(flow: Flow) -> AsOfSide:
            index = next(reads)
            current = apply(current_rows(self._sources, index), flow.steps, Scope(self._reader(reads)))
            return as_of_side(current, flow, past_until_now(self._sources, index) if past else None)

        return read_as_of


def parse_error(error: BaseException, plan: Plan) -> RunError | None:
    """The error to raise if Spark's error says that a payload does not parse; None for any other error."""
    if UNPARSED not in str(error):
        return None
    table = plan.write.quarantine.text if plan.write.quarantine else "the quarantine"
    return RunError(
        f"a row in {table} does not parse with the columns that {plan.pipeline} has at the step that rejected it; "
        "nothing was replayed.",
        where=plan.origin,
        fix="keep the types before that step as they were, and change them after it.",
    )


def fails_in_sink(plan: Plan) -> tuple[Column, Column]:
    """The condition for rows that the sink rejects for their key, order or route, and the reason as a column."""
    fails, reasons = F.lit(False), []
    mode, by = plan.write.mode, plan.write.sink.routing
    if mode.traits.keyed:
        reasons.append(invalid_reason(mode))
        fails = fails | reasons[-1].isNotNull()
    if by is not None:
        value = F.expr(by).cast("string")
        invalid = ~F.coalesce(value.rlike(f"^{VALUE.pattern}$"), F.lit(False))
        fails = fails | invalid
        reasons.append(F.when(invalid, F.concat(F.lit(f"route {by}: "), F.coalesce(value, F.lit("null")))))
    return fails, F.coalesce(*reasons, F.lit(""))


def _has_unparsable_map(data_type: DataType) -> bool:
    """True if a type contains a map whose keys are not strings."""
    if isinstance(data_type, MapType):
        return not isinstance(data_type.keyType, StringType) or _has_unparsable_map(data_type.valueType)
    inner: Sequence[Any] = [field.dataType for field in data_type.fields] if isinstance(data_type, StructType) else []
    element = getattr(data_type, "elementType", None)
    return any(map(_has_unparsable_map, [*inner, *([element] if element is not None else [])]))
