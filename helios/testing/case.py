"""A test of pipelines: it feeds batches of rows, and compares the targets, the rejected rows and the errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from helios.catalog.names import TableName
from helios.errors import CheckFailed, HeliosError, InputError, NotFound, near_miss
from helios.model.flow import Pipeline
from helios.plan.compile import compile_pipelines
from helios.plan.nodes import Plan
from helios.plan.typing.schema import Column, Schema, from_pyiceberg
from helios.testing.casts import canonical, cast_rows
from helios.testing.diff import Different, Row, difference, hidden
from helios.testing.names import short_name
from helios.testing.outputs import delivered
from helios.testing.stage import KILLS, Batch, Kill, Stage

if TYPE_CHECKING:
    from helios.spark.run.events import Event
    from helios.testing.invariant import Invariant
    from helios.testing.lake import Lake

__tracebackhide__ = hidden


@dataclass
class Log:
    """The results of a test's runs so far.

    Attributes:
        error: The error of the last batch, until `expect_error` accepts it or the next call raises it.
    """

    events: list[Event] = field(default_factory=list)
    error: HeliosError | None = None
    batches: list[Batch] = field(default_factory=list)


class PipelineTest:
    """The test of a pipeline, or of several that feed each other. Made by `Lake.test`.

    Args:
        lake: The lake.
        pipelines: The pipelines, as their scripts declare them, in the order in which they run.

    Raises:
        InputError: There is no pipeline, or a pipeline has a source or target that a test cannot replace.
    """

    def __init__(self, lake: Lake, pipelines: Sequence[Pipeline]) -> None:
        wrong = next((value for value in pipelines if not isinstance(value, Pipeline)), None)
        if not pipelines or wrong is not None:
            raise InputError(
                f"lake.test() takes pipelines, not {wrong!r}." if pipelines else "lake.test() needs a pipeline.",
                fix="pass `source >> ... >> sink`, or a list of pipelines that feed each other.",
            )
        self.lake = lake
        self.pipelines = list(pipelines)
        self.stage = Stage(lake, pipelines)
        self.log = Log()

    # batches

    def batch(self, rows: Any = None, /, *, kill: Kill | None = None, **sources: Any) -> PipelineTest:
        """Feeds new rows to the sources, and runs the pipelines until they have processed the rows as one batch.

        Args:
            rows: The rows of the only source, or a mapping from the names of sources to rows.
            kill: The moment at which the driver is killed: "after_rejects" (the rejected rows are written),
                "before_commit" (the batch's files are written) or "after_commit". Then the driver is started again.
            sources: Rows by the name of a source: dicts for a table, for files or for memory; text or bytes for a
                file; dicts, text, bytes or a `Record` for a topic; `(op, before, after)` for changes of a database.

        Raises:
            InputError: A name is not a source, or a row does not fit; the message suggests the most similar name.
        """
        self.settle()
        if kill is not None and kill not in KILLS:
            raise InputError(f"kill={kill!r} is not a moment of a batch. {near_miss(str(kill), KILLS)}")
        prepared = self._prepared(rows, sources)
        self.feed_prepared(prepared, kill=kill)
        return self

    def _prepared(self, rows: Any, sources: Mapping[str, Any]) -> Batch:
        by_source = dict(sources)
        if isinstance(rows, Mapping):
            by_source = {**rows, **by_source}
        elif rows is not None:
            by_source[self._only_source()] = rows
        batch: Batch = {}
        for name, source_rows in by_source.items():
            feed = self.stage.feed_named(name)
            batch[feed.name] = feed.prepare(source_rows)
        return batch

    def _only_source(self) -> str:
        if len(self.stage.feeds) != 1:
            known = ", ".join(self.stage.feeds) or "none"
            raise InputError(f"the rows do not name their source; the sources are {known}.", fix="write name=[...].")
        return next(iter(self.stage.feeds))

    def feed_prepared(self, batch: Batch, *, kill: Kill | None = None, strict: bool = True) -> None:
        """Feeds prepared rows to the sources, and runs the pipelines.

        Args:
            batch: The rows.
            kill: As for `batch()`.
            strict: Whether it is an error if the batch ends before the moment of its kill.
        """
        again = batch in self.log.batches
        self.log.batches.append(batch)
        for name, records in batch.items():
            self.stage.feed_named(name).deliver(records)
        try:
            self.stage.run(kill, self.log.events.append, again=again, strict=strict)
        except HeliosError as error:
            self.log.error = error

    def replay(self) -> PipelineTest:
        """Runs the last batch again, as if its checkpoint entry were lost: the targets must not change.

        Raises:
            Different: A target has changed.
        """
        from helios.testing.spark.runs import forget_last

        self.settle()
        plans = self.stage.plans()
        before = [self.target_rows(plan) for plan in plans]
        for plan in plans:
            if plan.streaming:
                forget_last(plan)
        self.stage.run(None, self.log.events.append)
        for plan, old in zip(plans, before, strict=True):
            if plan.write.sink.iceberg is not None:
                self._compare(plan.write.table.text, old, self.target_rows(plan), plan, "differs after a replay")
        return self

    # results

    def expect(self, rows: Sequence[Mapping[str, Any]], table: str | None = None) -> PipelineTest:
        """Compares the rows of a target with the expected rows, as multisets, by the columns of the expected rows.

        Args:
            rows: The expected rows, in any order; values are cast to the types of the columns.
            table: A target, or any other table of the lake; by default the target of the last pipeline.

        Raises:
            Different: The rows differ; the message shows the differences by key.
            InputError: A column or a type does not fit; the message suggests the most similar name.
        """
        self.settle()
        name, actual_rows, schema, keys = self._target(table)
        expected_rows = cast_rows(list(rows), schema, name)
        columns = [column for column in schema.columns if any(column.name in row for row in expected_rows)]
        columns = columns or list(schema.columns)
        for number, row in enumerate(expected_rows, 1):
            missing = [column.name for column in columns if column.name not in row]
            if missing:
                raise InputError(
                    f"{name}, row {number} lacks the column {missing[0]!r}, which other expected rows have.",
                    fix="give all rows the same columns.",
                )
        expected = [tuple(canonical(row[column.name], column.kind) for column in columns) for row in expected_rows]
        actual = [tuple(canonical(row.get(column.name), column.kind) for column in columns) for row in actual_rows]
        lines = difference(expected, actual, [column.name for column in columns], keys)
        if lines:
            title = f"{name} is not as expected ({len(actual)} rows, {len(expected)} expected):"
            raise Different("\n  ".join([title, *lines]))
        return self

    def rows(self, table: str | None = None) -> list[dict[str, Any]]:
        """The rows of a target, or of any other table of the lake."""
        self.settle()
        _, rows, _, _ = self._target(table)
        return rows

    def expect_rejected(
        self, rows: Sequence[str] | None = None, *, count: int | None = None, reason: str | None = None
    ) -> PipelineTest:
        """Compares the rejected rows of the quarantine; without a quarantine, the number of dropped rows.

        Args:
            rows: Texts; each must be in the payload of a rejected row.
            count: The number of rejected rows; by default the number of `rows`; without `rows`, at least one.
            reason: A text in the reason or step of the rejected rows; others do not count. Needs a quarantine.

        Raises:
            Different: The rejected rows differ.
        """
        self.settle()
        plans = [plan for plan in self.stage.plans() if plan.write.quarantine is not None]
        if not plans:
            if reason is not None or rows is not None:
                raise InputError(
                    "no pipeline of this test has a quarantine, in which rows and reasons are stored.",
                    fix='add .quarantine("ns.rejected") to the sink.',
                )
            self._expect_count(sum(event.rejected for event in self.log.events), count, "")
            return self
        rejected = [row for plan in plans for row in self._quarantined(plan.write.quarantine)]
        if reason is not None:
            reasons = sorted({str(row["reason"]) for row in rejected})
            rejected = [row for row in rejected if reason in f"{row['reason']} {row['step']}"]
            if not rejected and count != 0:
                raise Different(f"no row was rejected because of {reason!r}; reasons: {', '.join(reasons) or 'none'}.")
        payloads = [str(row["payload"]) for row in rejected]
        missing = next((text for text in rows or () if not any(text in payload for payload in payloads)), None)
        if missing is not None:
            raise Different(f"no rejected row contains {missing!r}:\n  " + "\n  ".join(payloads))
        listed = "".join(f"\n  {row['reason']}: {row['payload']}" for row in rejected)
        expected = len(rows) if count is None and rows is not None else count
        self._expect_count(len(rejected), expected, listed)
        return self

    def _quarantined(self, table: TableName | None) -> list[dict[str, Any]]:
        if table is None or not table.catalog.exists(table.name_in_catalog):
            return []
        return list(table.catalog.load(table.name_in_catalog).iceberg.scan().to_arrow().to_pylist())

    def _expect_count(self, actual: int, expected: int | None, listed: str) -> None:
        if expected is None and actual == 0:
            raise Different(f"0 rows were rejected, expected some.{listed}")
        if expected is not None and actual != expected:
            raise Different(f"{actual} rows were rejected, expected {expected}.{listed}")

    def expect_error(self, text: str) -> PipelineTest:
        """Expects that the last batch has failed or, before the first batch, that the pipelines do not compile.

        Args:
            text: A part of the error's message; case is ignored.

        Raises:
            Different: There was no error, or an error without the text.
        """
        error, self.log.error = self.log.error, None
        if error is None and not self.log.batches:
            error = self._problems()
        if error is None:
            raise Different(f"there was no error, expected one with {text!r}.")
        if text.lower() not in str(error).lower():
            raise Different(f"the error does not have the text {text!r}:\n{error}") from error
        return self

    def _problems(self) -> HeliosError | None:
        _, problems = compile_pipelines(self.stage.pipelines(), self.stage.context)
        return CheckFailed(problems) if problems else None

    def invariant(
        self, cuts: int = 5, replays: int = 2, shuffles: int = 2, *, ignore: Sequence[str] = (), seed: int = 0
    ) -> Invariant:
        """Feeds all rows of the test again in several ways, each in a new lake: the targets must be the same.

        Args:
            cuts: The number of ways that cut the rows into other batches.
            replays: The number of ways that kill and repeat batches.
            shuffles: The number of ways that shuffle the rows of each batch of sources without an order.
            ignore: Columns that may differ, such as the time of a run.
            seed: The seed of the random cuts and shuffles.

        Raises:
            Different: The targets differ; the message shows the rows, and the step at which the difference begins.
        """
        from helios.testing.invariant import check

        self.settle()
        outputs = [plan.write.sink.label() for plan in self.stage.plans() if plan.write.sink.iceberg is None]
        if outputs:
            raise InputError(
                f"invariant() compares tables, and {outputs[0]} is not a table: it receives a repeated batch twice.",
                fix="end the stream in an Iceberg.sink for this test.",
            )
        return check(self, cuts=cuts, replays=replays, shuffles=shuffles, ignore=ignore, seed=seed)

    def schema(self) -> dict[str, str]:
        """The columns that reach the target of the last pipeline, with their Spark SQL types."""
        schema = self.stage.plans()[-1].schema
        return {column.name: column.type for column in schema.columns} if schema is not None else {}

    def settle(self) -> None:
        """Raises the error of the last batch, unless `expect_error` has accepted it."""
        error, self.log.error = self.log.error, None
        if error is not None:
            raise error.with_traceback(None)  # the frames of the failed run do not help

    # targets

    def _target(self, table: str | None) -> tuple[str, list[dict[str, Any]], Schema, Sequence[str]]:
        """The name, rows, columns and keys of a target, or of another table."""
        plans = self.stage.plans()
        if table is None:
            return self._target_of(plans[-1])
        known = {plan.write.table.text: plan for plan in plans}
        matching_names = [
            name for name in known if name == table or name.endswith(f".{table}") or short_name(name) == table
        ]
        matching_names = matching_names or [
            name for name in known if name.endswith(f":{table}")
        ]  # a target that is not a table
        if len(matching_names) == 1:
            return self._target_of(known[matching_names[0]])
        return self._table(self.lake.resolved(table), None, (), None)

    def _target_of(self, plan: Plan) -> tuple[str, list[dict[str, Any]], Schema, Sequence[str]]:
        write = plan.write
        if write.sink.iceberg is None:
            return write.table.text, *delivered(plan, self.lake.topics), ()
        return self._table(write.table, write.sink.branch_name, write.mode.keys, plan.schema)

    def _table(
        self, table: TableName, branch: str | None, keys: Sequence[str], columns: Schema | None
    ) -> tuple[str, list[dict[str, Any]], Schema, Sequence[str]]:
        if not table.catalog.exists(table.name_in_catalog):
            if columns is not None and not self.log.error:
                return table.text, [], columns, keys  # no row has reached the table yet
            namespace = table.name_in_catalog.rpartition(".")[0]
            tables = table.catalog.tables(namespace) if namespace in table.catalog.namespaces() else []
            raise NotFound(
                f"there is no table {table.text} in the test's lake. {near_miss(table.name_in_catalog, tables)}"
            )
        schema = from_pyiceberg(table.catalog.load(table.name_in_catalog).iceberg.schema())
        return table.text, self.lake.rows_of(table, branch), schema, keys

    def target_rows(self, plan: Plan) -> tuple[list[Row], Schema]:
        """The rows of a target as hashable tuples, and its columns."""
        if plan.write.sink.iceberg is None:
            return [], Schema(())
        if plan.write.sink.many_tables:
            return self._rows_of_many(plan.write.table)
        _, rows, schema, _ = self._table(plan.write.table, plan.write.sink.branch_name, (), plan.schema)
        columns = schema.columns
        return [tuple(canonical(row.get(column.name), column.kind) for column in columns) for row in rows], schema

    def _rows_of_many(self, target: TableName) -> tuple[list[Row], Schema]:
        """The rows of all tables of a routed target or a mirror: pairs of a table's name and the text of a row."""
        namespace = target.name_in_catalog.rpartition(".")[0]
        tables = target.catalog.tables(namespace) if namespace in target.catalog.namespaces() else []
        prefix = target.prefix.partition(".")[2]
        rows = [
            (name, repr(sorted(row.items())))
            for name in tables
            if name.startswith(prefix)
            for row in target.catalog.load(name).iceberg.scan().to_arrow().to_pylist()
        ]
        return rows, Schema((Column("table", "string"), Column("row", "string")))

    def _compare(
        self,
        name: str,
        before: tuple[list[Row], Schema],
        after: tuple[list[Row], Schema],
        plan: Plan,
        difference_title: str,
    ) -> None:
        old_rows, _ = before
        new_rows, schema = after
        lines = difference(old_rows, new_rows, schema.names, plan.write.mode.keys)
        if lines:
            raise Different("\n  ".join([f"{name} {difference_title}:", *lines]))
