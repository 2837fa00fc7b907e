"""The test of pipelines: batches of rows go in, and the target, the rejected rows and the errors are compared."""

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
from helios.sources.memory.declare import Memory
from helios.testing.casts import canonical, cast_rows, inferred
from helios.testing.diff import Different, Row, difference
from helios.testing.names import short_name
from helios.testing.stage import KILLS, Batch, Kill, Stage

if TYPE_CHECKING:
    from helios.spark.run.events import Event
    from helios.testing.invariant import Invariant
    from helios.testing.lake import Lake


@dataclass
class Log:
    """What the runs of a test have told.

    Attributes:
        events: Their events.
        error: The error of the last batch that no `expect_error` has asked for yet.
        given: The batches.
    """

    events: list[Event] = field(default_factory=list)
    error: HeliosError | None = None
    given: list[Batch] = field(default_factory=list)


class PipelineTest:
    """The test of a pipeline, or of several that feed each other. Made by `Lake.test`.

    Args:
        lake: The lake.
        pipelines: The pipelines, as their scripts declare them, in the order in which they run.

    Raises:
        InputError: There is none, or one reads or writes what a test cannot replace.
    """

    def __init__(self, lake: Lake, pipelines: Sequence[Pipeline]) -> None:
        wrong = next((one for one in pipelines if not isinstance(one, Pipeline)), None)
        if not pipelines or wrong is not None:
            raise InputError(
                f"lake.test() takes pipelines, not {wrong!r}." if pipelines else "lake.test() needs a pipeline.",
                fix="pass `source >> ... >> sink`, or a list of those that feed each other.",
            )
        self.lake = lake
        self.pipelines = list(pipelines)
        self.stage = Stage(lake, pipelines)
        self.log = Log()

    # what goes in

    def batch(self, rows: Any = None, /, *, kill: Kill | None = None, **sources: Any) -> PipelineTest:
        """Gives each source new rows, and runs the pipelines until they have taken them: one batch.

        Args:
            rows: The rows of the only source, or a mapping from the names of sources to rows.
            kill: Where the driver dies, and is started again: "after_rejects" when rejected rows are written,
                "before_commit" when the files of the batch are, "after_commit" when the target has it.
            sources: Rows by the name of a source: dicts of a table, of files and of memory; text or bytes of a file;
                dicts, text, bytes or a `Record` of a topic; `(op, before, after)` of a database's changes.

        Raises:
            InputError: A name is no source, or a row does not fit; the message has the near miss.
        """
        self.settle()
        if kill is not None and kill not in KILLS:
            raise InputError(f"kill={kill!r} is no moment of a batch. {near_miss(str(kill), KILLS)}")
        prepared = self._prepared(rows, sources)
        self.give(prepared, kill=kill)
        return self

    def _prepared(self, rows: Any, sources: Mapping[str, Any]) -> Batch:
        given = dict(sources)
        if isinstance(rows, Mapping):
            given = {**rows, **given}
        elif rows is not None:
            given[self._only()] = rows
        return {feed.name: feed.prepare(rows) for name, rows in given.items() for feed in [self.stage.named(name)]}

    def _only(self) -> str:
        if len(self.stage.feeds) != 1:
            known = ", ".join(self.stage.feeds) or "none"
            raise InputError(f"the rows name no source, of {known}.", fix="write name=[...].")
        return next(iter(self.stage.feeds))

    def give(self, batch: Batch, *, kill: Kill | None = None, strict: bool = True) -> None:
        """Gives prepared rows, and runs.

        Args:
            batch: The rows.
            kill: As for `batch`.
            strict: Whether a batch that does not come to the moment of its kill is an error.
        """
        again = batch in self.log.given
        self.log.given.append(batch)
        for name, records in batch.items():
            self.stage.named(name).deliver(records)
        try:
            self.stage.run(kill, self.log.events.append, again=again, strict=strict)
        except HeliosError as error:
            self.log.error = error

    def replay(self) -> PipelineTest:
        """Has the last batch done again, as after a lost checkpoint entry: the targets must stay as they are.

        Raises:
            Different: A target has changed.
        """
        from helios.testing.spark.runs import forget_last

        self.settle()
        plans = self.stage.plans()
        before = [self.held(plan) for plan in plans]
        for plan in plans:
            if plan.streaming:
                forget_last(plan)
        self.stage.run(None, self.log.events.append)
        for plan, held in zip(plans, before, strict=True):
            if plan.write.sink.iceberg is not None:
                self._compare(plan.write.table.text, held, self.held(plan), plan, "is not the same after a replay")
        return self

    # what comes out

    def expect(self, rows: Sequence[Mapping[str, Any]], table: str | None = None) -> PipelineTest:
        """Compares the rows of a target: as a multiset, in any order, by the columns that are given.

        Args:
            rows: The rows; values are cast to the types of the columns.
            table: A target, or any other table of the lake; by default the target of the last pipeline.

        Raises:
            Different: They differ; the message says how, by key.
            InputError: A column or a type does not fit; the message has the near miss.
        """
        self.settle()
        name, held, schema, keys = self._target(table)
        given = cast_rows(list(rows), schema, name)
        columns = [one for one in schema.columns if any(one.name in row for row in given)] or list(schema.columns)
        uneven = next((n for n, row in enumerate(given, 1) if len(row) != len(columns)), None)
        if uneven is not None and given:
            lacking = [one.name for one in columns if one.name not in given[uneven - 1]]
            raise InputError(
                f"{name}, row {uneven} lacks the column {lacking[0]!r}, which other expected rows have.",
                fix="give all rows the same columns.",
            )
        names = [one.name for one in columns]
        wanted = [tuple(canonical(row[one.name], one.kind) for one in columns) for row in given]
        found = [tuple(canonical(row.get(one.name), one.kind) for one in columns) for row in held]
        lines = difference(wanted, found, names, keys)
        if lines:
            told = f"{name} is not as expected ({len(found)} rows, {len(wanted)} expected):"
            raise Different("\n  ".join([told, *lines]))
        return self

    def rows(self, table: str | None = None) -> list[dict[str, Any]]:
        """The rows of a target, or of any other table of the lake."""
        self.settle()
        return self._target(table)[1]

    def expect_rejected(
        self, rows: Sequence[str] | None = None, *, count: int | None = None, reason: str | None = None
    ) -> PipelineTest:
        """Compares the rows that were kept out: those of the quarantine, or those that were dropped and counted.

        Args:
            rows: Texts, each of which one rejected row has in its payload.
            count: How many there are.
            reason: A text that the reason of each counted row has, or its step; it needs a quarantine.

        Raises:
            Different: There are others.
        """
        self.settle()
        plans = [plan for plan in self.stage.plans() if plan.write.quarantine is not None]
        if not plans:
            if reason is not None or rows is not None:
                raise InputError(
                    "no pipeline of this test has a quarantine, which keeps reasons.",
                    fix='give the sink one: .quarantine("ns.rejected").',
                )
            self._expect_count(sum(event.rejected for event in self.log.events), count, "")
            return self
        held = [row for plan in plans for row in self._quarantined(plan.write.quarantine)]
        if reason is not None:
            others = sorted({str(row["reason"]) for row in held})
            held = [row for row in held if reason in f"{row['reason']} {row['step']}"]
            if not held and count != 0:
                raise Different(f"no row was rejected because of {reason!r}; reasons: {', '.join(others) or 'none'}.")
        payloads = [str(row["payload"]) for row in held]
        lacking = next((text for text in rows or () if not any(text in payload for payload in payloads)), None)
        if lacking is not None:
            raise Different(f"no rejected row holds {lacking!r}:\n  " + "\n  ".join(payloads))
        told = "".join(f"\n  {row['reason']}: {row['payload']}" for row in held)
        self._expect_count(len(held), count if count is not None or rows is None else len(rows), told)
        return self

    def _quarantined(self, table: TableName | None) -> list[dict[str, Any]]:
        if table is None or not table.catalog.exists(table.within):
            return []
        return list(table.catalog.load(table.within).iceberg.scan().to_arrow().to_pylist())

    def _expect_count(self, found: int, count: int | None, told: str) -> None:
        if (count is None and not found) or (count is not None and found != count):
            expected = "some" if count is None else count
            raise Different(f"{found} rows were rejected, expected {expected}.{told}")

    def expect_error(self, text: str) -> PipelineTest:
        """Has the last batch fail, or the pipelines fail to compile, with an error that holds a text.

        Raises:
            Different: There was none, or another one.
        """
        error, self.log.error = self.log.error, None
        if error is None and not self.log.given:
            error = self._problems()
        if error is None:
            raise Different(f"no error came, expected one with {text!r}.")
        if text.lower() not in str(error).lower():
            raise Different(f"another error came than one with {text!r}:\n{error}") from error
        return self

    def _problems(self) -> HeliosError | None:
        problems = compile_pipelines(self.stage.pipelines(), self.stage.context)[1]
        return CheckFailed(problems) if problems else None

    def invariant(
        self, cuts: int = 5, replays: int = 2, shuffles: int = 2, *, ignore: Sequence[str] = (), seed: int = 0
    ) -> Invariant:
        """Gives all rows of the test again in other ways, each in a lake of its own: the targets must be the same.

        Args:
            cuts: In how many ways the rows are cut into other batches.
            replays: In how many ways batches are killed and done again.
            shuffles: In how many orders the rows of each batch come, of sources whose rows have none.
            ignore: Columns that may differ, such as the time of a run.
            seed: Where chance begins; another one cuts otherwise.

        Raises:
            Different: They differ; names the first row, and the step before which the ways still agree.
        """
        from helios.testing.invariant import check

        self.settle()
        return check(self, cuts=cuts, replays=replays, shuffles=shuffles, ignore=ignore, seed=seed)

    def schema(self) -> dict[str, str]:
        """The columns that reach the target of the last pipeline, with their Spark SQL types."""
        found = self.stage.plans()[-1].schema
        return {one.name: one.type for one in found.columns} if found is not None else {}

    def settle(self) -> None:
        """Raises the error of the last batch, unless `expect_error` has asked for it."""
        error, self.log.error = self.log.error, None
        if error is not None:
            raise error

    # runs

    # sources and targets

    def _target(self, table: str | None) -> tuple[str, list[dict[str, Any]], Schema, Sequence[str]]:
        """The name, rows, columns and keys of a target, or of another table."""
        plan = self.stage.plans()[-1]
        if table is None and plan.write.sink.iceberg is None:
            held = Memory.rows(plan.write.table.table)
            return plan.write.table.text, held, plan.schema or inferred(held, plan.write.table.text), ()
        if table is None:
            return self._table(plan.write.table, plan.write.sink.branch_name, plan.write.mode.keys, plan.schema)
        known = {one.write.table.text: one for one in self.stage.plans()}
        fitting = [name for name in known if name == table or name.endswith(f".{table}") or short_name(name) == table]
        if len(fitting) == 1:
            plan = known[fitting[0]]
            return self._table(plan.write.table, plan.write.sink.branch_name, plan.write.mode.keys, plan.schema)
        return self._table(self.lake.named(table), None, (), None)

    def _table(
        self, table: TableName, branch: str | None, keys: Sequence[str], columns: Schema | None
    ) -> tuple[str, list[dict[str, Any]], Schema, Sequence[str]]:
        if not table.catalog.exists(table.within):
            if columns is not None and not self.log.error:
                return table.text, [], columns, keys  # no row has reached it yet
            namespace = table.within.rpartition(".")[0]
            there = table.catalog.tables(namespace) if namespace in table.catalog.namespaces() else []
            raise NotFound(f"there is no table {table.text} in the test's lake. {near_miss(table.within, there)}")
        schema = from_pyiceberg(table.catalog.load(table.within).iceberg.schema())
        return table.text, self.lake.rows_of(table, branch), schema, keys

    def held(self, plan: Plan) -> tuple[list[Row], Schema]:
        """The rows of a target in a form that can be counted."""
        if plan.write.sink.iceberg is None:
            return [], Schema(())
        if plan.write.sink.many_tables:
            return self._held_of_many(plan.write.table)
        _, held, schema, _ = self._table(plan.write.table, plan.write.sink.branch_name, (), plan.schema)
        return [tuple(canonical(row.get(one.name), one.kind) for one in schema.columns) for row in held], schema

    def _held_of_many(self, target: TableName) -> tuple[list[Row], Schema]:
        """The rows of all tables of a routed target or a mirror, each as its table and a text."""
        namespace = target.within.rpartition(".")[0]
        there = target.catalog.tables(namespace) if namespace in target.catalog.namespaces() else []
        prefix = target.prefix.partition(".")[2]
        found = {
            name: target.catalog.load(name).iceberg.scan().to_arrow().to_pylist()
            for name in there
            if name.startswith(prefix)
        }
        rows = [(name, repr(sorted(row.items()))) for name, held in found.items() for row in held]
        return rows, Schema((Column("table", "string"), Column("row", "string")))

    def _compare(
        self, name: str, before: tuple[list[Row], Schema], after: tuple[list[Row], Schema], plan: Plan, what: str
    ) -> None:
        lines = difference(before[0], after[0], after[1].names, plan.write.mode.keys)
        if lines:
            raise Different("\n  ".join([f"{name} {what}:", *lines]))
