"""Rows of a quarantine as rows of the stream again: parsed, and sent through the steps behind where they failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, MapType, StringType, StructType

from helios.errors import InputError, RunError, near_miss
from helios.model import steps as s
from helios.model.flow import Flow, flows
from helios.plan.nodes import Plan
from helios.spark.jvm.sql import quoted
from helios.spark.sinks.merge import null_key
from helios.spark.sinks.route import VALUE
from helios.spark.sources.context import SourceContext
from helios.spark.sources.protocol import current_rows
from helios.spark.steps.steps import Scope, apply, rejected

ROW, ASIDE = "__helios_row", "__helios_aside"
"""The parsed payload, and the row of the quarantine that it came from."""

UNPARSED = "MALFORMED_RECORD_IN_PARSING"
"""The condition of Spark's error for JSON that is not of its schema."""

GROUPING = (s.Aggregate, s.Dedupe)
"""Steps that bring rows together: the replayed ones alone would give something else."""


class Payloads:
    """The payloads of one pipeline's quarantine.

    Args:
        plan: The pipeline, as the script says now.
        spark: The session.

    Raises:
        InputError: Spark refuses a step.
    """

    def __init__(self, plan: Plan, spark: SparkSession) -> None:
        self.plan = plan
        self.spark = spark
        self.steps = plan.stream.steps
        self._quarantine = plan.write.quarantine.text if plan.write.quarantine else ""
        self._sources = SourceContext(plan=plan, spark=spark)
        self._known = list(self._schemas())
        self._places: dict[str, int] = {}

    def _schemas(self) -> Iterator[StructType]:
        """The columns in front of each step, and behind the last one."""
        df = current_rows(self._sources, 0).limit(0)
        reads = self._reads_behind(0)
        for step in self.steps:
            yield df.schema
            df = apply(df, [step], Scope(self._reader(reads)))
        yield df.schema

    # where rows failed

    def place(self, text: str) -> int:
        """The step in which rows were set aside; the number of steps for what failed behind them all.

        An expectation is known by its text, else by the name of a condition, which may have been mended; else the only
        one that sets rows aside is meant.

        Raises:
            InputError: The script has no such step, or rows cannot begin there; with the reason.
        """
        if text not in self._places:
            at = self._find(text) if text else len(self.steps)
            self._refuse(text, at)
            self._places[text] = at
        return self._places[text]

    def _find(self, text: str) -> int:
        expected = [(i, step) for i, step in enumerate(self.steps) if isinstance(step, s.Expect)]
        setting_aside = [i for i, step in expected if step.on_fail == "quarantine"]
        ways = (
            [i for i, step in expected if step.text() == text],
            [i for i, step in expected if any(f"({n}=" in text or f", {n}=" in text for n, _ in step.conditions)],
            setting_aside,
        )
        for found in ways:
            if len(found) == 1:
                return found[0]
        inside = [step.text() for inner in list(flows(self.plan.stream))[1:] for step in inner.steps]
        if text in inside:
            why = "stands inside the other side of a join or union, whose rows are read by the join itself"
            fix = "put the expectation behind the join or union, or write that side to a table of its own."
        else:
            known = near_miss(text, [step.text() for _, step in expected])
            why = f"is not in the script any more. {known}"
            fix = "put it back under the names of its conditions; the conditions themselves may be others."
        raise InputError(
            f"rows of {self.plan.pipeline} were set aside by {text}, which {why}", where=self.plan.origin, fix=fix
        )

    def _refuse(self, text: str, at: int) -> None:
        for step in self.steps[at + 1 :]:
            grouping = isinstance(step, GROUPING)
            foreign = isinstance(step, s.Join) and step.how in ("right", "full")
            if not grouping and not foreign:
                continue
            why = "brings rows together" if grouping else "gives rows of its other side too"
            raise InputError(
                f"rows that {text} set aside cannot be replayed: behind it {step.text()} {why}.",
                where=step.origin,
                fix="split the pipeline there: write the expected rows to a table first.",
            )

    # the rows

    def passing(self, rows: DataFrame) -> DataFrame:
        """The rows of the quarantine that meet now what they failed."""
        return self._together(rows, self._passing)

    def through(self, rows: DataFrame) -> tuple[DataFrame, DataFrame]:
        """What becomes of rows that meet it: those for the target, and those that fail somewhere else now."""
        aside: list[DataFrame] = []

        def onwards(part: DataFrame, at: int) -> DataFrame:
            df, reads = part.select(f"{ROW}.*"), self._reads_behind(at + 1)
            for step in self.steps[at + 1 :]:
                # The other side of a union has been written already, by the pipeline itself.
                reader = self._reader(reads, empty=isinstance(step, s.Union))
                df = apply(df, [step], Scope(reader, aside))
            return df

        df = self._together(rows, onwards)
        bad, reason = fails_at_the_end(self.plan)
        aside.append(rejected(df.where(bad), reason, ""))
        return df.where(~bad), reduce(DataFrame.unionByName, aside)

    def _passing(self, part: DataFrame, at: int) -> DataFrame:
        wide = part.select(ASIDE, f"{ROW}.*")
        if at < len(self.steps):
            step: Any = self.steps[at]
            met = reduce(lambda a, b: a & b, (F.coalesce(F.expr(c), F.lit(False)) for _, c in step.conditions))
        else:
            met = ~fails_at_the_end(self.plan)[0]
        return wide.where(met).select(f"{ASIDE}.*")

    def _together(self, rows: DataFrame, each: Callable[[DataFrame, int], DataFrame]) -> DataFrame:
        """Does something with the rows of each place, parsed as the stream has them there."""
        texts = [row[0] for row in rows.select("step").distinct().collect()]
        places: dict[int, list[str]] = {}
        for text in sorted(texts):
            places.setdefault(self.place(text), []).append(text)
        parts = [each(self._parsed(rows.where(F.col("step").isin(found)), at), at) for at, found in places.items()]
        return reduce(DataFrame.unionByName, parts)

    def _parsed(self, rows: DataFrame, at: int) -> DataFrame:
        schema = self._known[at]
        self._refuse_other_columns(rows, schema, at)
        # A value that does not parse is an error, not a null.
        value = F.from_json("payload", schema, {"mode": "FAILFAST"})
        return rows.select(F.struct(*rows.columns).alias(ASIDE), value.alias(ROW))

    def _refuse_other_columns(self, rows: DataFrame, schema: StructType, at: int) -> None:
        """A column that the payload has and the stream has not, or the other way, is never passed over silently."""
        held = {row[0] for row in rows.select(F.explode(F.json_object_keys("payload"))).distinct().collect()}
        own = set(self._known[0].names)  # a column that the source got since is null in older rows
        gone, new = sorted(held - set(schema.names)), sorted(set(schema.names) - held - own)
        where = self.steps[at].text() if at < len(self.steps) else "the sink"
        if gone or new:
            why = f"they have {gone[0]!r}, which the stream lacks there" if gone else f"they lack {new[0]!r}"
            raise InputError(
                f"rows in {self._quarantine} do not have the columns that reach {where}: {why} now.",
                where=self.plan.origin,
                fix="keep the steps in front as they were, and change the columns behind.",
            )
        odd = next((f.name for f in schema.fields if _holds_odd_map(f.dataType)), None)
        if odd is not None:
            raise InputError(
                f"rows in {self._quarantine} cannot be replayed: {odd!r} holds a map whose keys are no text, "
                "which JSON has not.",
                where=self.plan.origin,
                fix="read the quarantine in a pipeline of your own.",
            )

    def _reads_behind(self, at: int) -> Iterator[int]:
        """The numbers of the sources that the joins and unions from a step on bring in."""
        before = [step.other for step in self.steps[:at] if isinstance(step, (s.Join, s.Union))]
        first = 1 + sum(len(list(flows(other))) for other in before)
        return iter(range(first, len(self.plan.reads)))

    def _reader(self, reads: Iterator[int], *, empty: bool = False) -> Callable[[Flow], DataFrame]:
        """Gives the other side of a join or union as it is now, or its columns only."""

        def flow(declared: Flow) -> DataFrame:
            return apply(current_rows(self._sources, next(reads)), declared.steps, Scope(flow))

        return (lambda declared: flow(declared).limit(0)) if empty else flow


def unparsed(error: BaseException, plan: Plan) -> RunError | None:
    """The failure of a payload that does not parse, in Spark's own words; None for any other error."""
    if UNPARSED not in str(error):
        return None
    table = plan.write.quarantine.text if plan.write.quarantine else "the quarantine"
    return RunError(
        f"a row in {table} does not parse as the columns that the steps of {plan.pipeline} give where it failed; "
        "nothing was replayed.",
        where=plan.origin,
        fix="keep the types in front as they were, and change them behind.",
    )


def fails_at_the_end(plan: Plan) -> tuple[Column, Column]:
    """Whether a row cannot be written for its key or its route, and the reason."""
    bad, reasons = F.lit(False), []
    mode, by = plan.write.mode, plan.write.sink.routing
    if mode.traits.keyed:
        names = [F.when(F.col(quoted(key)).isNull(), F.lit(key)) for key in mode.keys]
        bad = bad | null_key(mode.keys)
        reasons.append(F.when(null_key(mode.keys), F.concat(F.lit("null key: "), F.concat_ws(", ", *names))))
    if by is not None:
        value = F.expr(by).cast("string")
        unnamed = ~F.coalesce(value.rlike(f"^{VALUE.pattern}$"), F.lit(False))
        bad = bad | unnamed
        reasons.append(F.when(unnamed, F.concat(F.lit(f"route {by}: "), F.coalesce(value, F.lit("null")))))
    return bad, F.coalesce(*reasons, F.lit(""))


def _holds_odd_map(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return not isinstance(kind.keyType, StringType) or _holds_odd_map(kind.valueType)
    inner: Sequence[Any] = [field.dataType for field in kind.fields] if isinstance(kind, StructType) else []
    element = getattr(kind, "elementType", None)
    return any(map(_holds_odd_map, [*inner, *([element] if element is not None else [])]))
