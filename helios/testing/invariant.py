"""Feeds the same rows in several ways (other batches, kills and replays, shuffles) and compares the targets."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from helios.errors import HeliosError, InputError
from helios.model.flow import Pipeline, Stream, flows
from helios.model.values import counted
from helios.plan.nodes import Plan, ReadPath
from helios.plan.typing.schema import Schema, from_ddl
from helios.steps.watermark import Watermark
from helios.testing.casts import CASTERS, Misfit
from helios.testing.diff import WAY_WORDS, Different, Row, difference, hidden
from helios.testing.feeds import Feed
from helios.testing.names import sources_of
from helios.testing.stage import KILLS, Batch, Kill
from helios.testing.tasks import refuse_task_dependence

if TYPE_CHECKING:
    from helios.testing.case import PipelineTest

__tracebackhide__ = hidden

MAX_BATCHES = 4
"""The maximum number of batches into which rows are cut."""

Target = tuple[list[Row], Schema]
Result = dict[str, Target]
"""The rows and columns of each target."""


@dataclass(frozen=True)
class Way:
    """One way to feed the rows of a test: how they are cut into batches, in which order, and with which kills.

    Attributes:
        text: A description for the messages.
        batches: The batches.
        killed: Whether each batch is killed once, at the moments of `KILLS` in turn, and then run again and replayed.
        twice: Whether each batch is fed twice: a MERGE or an upsert must not count its rows twice.
    """

    text: str
    batches: list[Batch]
    killed: bool = False
    twice: bool = False


@dataclass(frozen=True)
class Invariant:
    """The result of `PipelineTest.invariant`.

    Attributes:
        ways: The ways that were compared, as text.
        left_out: The number of rows that were left out because a watermark could drop them in one of the ways.
        notes: The ways that were not possible, with the reasons.
    """

    ways: tuple[str, ...]
    left_out: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        late = [f"{counted(self.left_out, 'late row')} left out"] if self.left_out else []
        return "; ".join([f"{len(self.ways)} ways give the same rows", *late, *self.notes])


def check(test: PipelineTest, *, cuts: int, replays: int, shuffles: int, ignore: Sequence[str], seed: int) -> Invariant:
    """Feeds the rows in all ways and compares the targets; see `PipelineTest.invariant`."""
    if not any(test.log.batches):
        raise InputError("invariant() has no rows.", fix="feed some first: test.batch(orders=[...]).")
    if test.lake.changed_by_sql:
        raise InputError(
            "invariant() feeds the rows again in other lakes, which lack the changes of lake.sql().",
            fix="leave out lake.sql(); lake.table(name, schema, rows) is repeated in each lake.",
        )
    plans, rng = test.stage.plans(), random.Random(seed)
    batches, left_out = _without_late_rows(test, _unfollowed_first(test, plans))
    notes: list[str] = []
    first = Way("the batches of the test", batches)
    ways: list[Way] = []
    why_not_cut = _why_not_cut(plans)
    if cuts and why_not_cut:
        notes.append(f"not cut into other batches: {why_not_cut}")
    elif cuts:
        ways += _cuts(test, batches, cuts, rng)
    twice = all(
        (plan.write.mode.merge or plan.write.mode.traits.idempotent) and plan.path is ReadPath.RANGES for plan in plans
    )
    ways += [_killed(batches, number, twice=twice) for number in range(replays)]
    unordered = [feed for feed in test.stage.feeds.values() if not _has_order(test, feed)]
    if shuffles and not unordered:
        notes.append("not shuffled: the rows of the sources have an order")
    elif shuffles:
        one_batch = batches if why_not_cut else next(_cuts(test, batches, 1, rng)).batches
        ways += [_shuffled(test, batches if number % 2 else one_batch, rng, number) for number in range(shuffles)]
    expected, comparison = run_in_new_lake(test, test.pipelines, first), _Comparison(test, first, ignore)
    # The test's own targets are compared too, unless rows were moved or left out, or the clock was set between batches.
    if batches == test.log.batches and test.lake.clock_changes < 2:
        comparison.require_equal({plan.write.table.text: test.target_rows(plan) for plan in plans}, expected, first)
    for way in ways:
        comparison.require_equal(expected, comparison.targets_after(way), way)
    refuse_task_dependence(test.pipelines, ignore)
    return Invariant(tuple(way.text for way in ways), left_out, tuple(notes))


# the ways


def _unfollowed_first(test: PipelineTest, plans: Sequence[Plan]) -> list[Batch]:
    """The batches of the test. If a pipeline is streaming, the first batch gets all rows of unfollowed sources."""
    if not any(plan.streaming for plan in plans):
        return [dict(batch) for batch in test.log.batches]
    unfollowed: Batch = {}
    followed: list[Batch] = []
    for batch in test.log.batches:
        followed.append({name: rows for name, rows in batch.items() if test.stage.feeds[name].followed})
        for name, rows in batch.items():
            if not test.stage.feeds[name].followed:
                unfollowed.setdefault(name, []).extend(rows)
    followed = [batch for batch in followed if batch] or [{}]
    return [{**unfollowed, **followed[0]}, *followed[1:]]


def _why_not_cut(plans: Sequence[Plan]) -> str:
    """The reason why the rows cannot be cut into other batches; "" if they can."""
    for plan in plans:
        if plan.write.mode.traits.replaces_foreign_rows:
            return f"each batch of {plan.write.mode.text()} replaces rows of the batch before"
        if plan.path is ReadPath.BATCH and any(read.table is not None for read in plan.reads):
            return f"{plan.pipeline} reads whole tables, and does not follow them"
    return ""


def _split_followed(test: PipelineTest, batches: Sequence[Batch]) -> tuple[Batch, Batch]:
    """Splits all rows into those of unfollowed and of followed sources. If none is followed, all count as followed."""
    none_followed = not any(feed.followed for feed in test.stage.feeds.values())
    unfollowed: Batch = {}
    followed: Batch = {}
    for batch in batches:
        for name, rows in batch.items():
            side = followed if none_followed or test.stage.feeds[name].followed else unfollowed
            side.setdefault(name, []).extend(rows)
    return unfollowed, followed


def _cuts(test: PipelineTest, batches: Sequence[Batch], cuts: int, rng: random.Random) -> Iterator[Way]:
    """Yields ways with other batches: one batch, then up to `MAX_BATCHES` equal ones, then some of random sizes."""
    unfollowed, followed = _split_followed(test, batches)
    longest = max((len(rows) for rows in followed.values()), default=0)
    for number in range(cuts):
        if number == 0:
            pieces = 1
        elif number == 1:
            pieces = MAX_BATCHES
        else:
            pieces = rng.randint(2, MAX_BATCHES)
        pieces = max(1, min(pieces, longest))
        cut: list[Batch] = [{} for _ in range(pieces)]
        for name, rows in followed.items():
            positions = _cut_positions(len(rows), pieces, rng, even=number == 1)
            for batch, (start, end) in zip(cut, pairwise(positions), strict=True):
                if end > start:
                    batch[name] = rows[start:end]
        cut = [batch for batch in cut if batch] or [{}]
        cut[0] = {**unfollowed, **cut[0]}
        sizes = ", ".join(str(sum(map(len, batch.values()))) for batch in cut)
        yield Way(f"cut into {len(cut)} batch{'es' if len(cut) > 1 else ''} (rows: {sizes})", cut)


def _cut_positions(count: int, pieces: int, rng: random.Random, *, even: bool) -> list[int]:
    """The positions at which `count` rows are cut: `pieces + 1` ascending numbers, from 0 to `count`."""
    if even:
        return [count * number // pieces for number in range(pieces + 1)]
    inner = sorted(rng.sample(range(1, count), min(pieces - 1, count - 1))) if count > 1 else []
    return [0, *inner, *[count] * (pieces - len(inner))]


def _killed(batches: list[Batch], number: int, *, twice: bool) -> Way:
    twice = twice and number % 2 == 1
    text = "each batch killed, run again and replayed" + (", and fed twice" if twice else "")
    return Way(text, batches, killed=True, twice=twice)


def _has_order(test: PipelineTest, feed: Feed) -> bool:
    """True if the rows of a feed have an order: if it feeds a topic, or a table that is read as changes."""
    sources = [source for pipeline in test.pipelines for source in sources_of(pipeline)]
    tables = [source.reference[0] for source in sources if source.reads_changes and source.reference is not None]
    return feed.ordered or any(f".{feed.name}".endswith(f".{table}") for table in tables)


def _shuffled(test: PipelineTest, batches: Sequence[Batch], rng: random.Random, number: int) -> Way:
    """A way with the rows of each batch in another order: reversed in the first way, random in the others."""
    shuffled = []
    for batch in batches:
        mixed = dict(batch)
        for name, rows in batch.items():
            if not _has_order(test, test.stage.feeds[name]):
                mixed[name] = rows[::-1] if number == 0 else rng.sample(rows, len(rows))
        shuffled.append(mixed)
    return Way(f"its rows in another order, in {len(shuffled)} batch{'es' if len(shuffled) > 1 else ''}", shuffled)


# late rows


def _without_late_rows(test: PipelineTest, batches: list[Batch]) -> tuple[list[Batch], int]:
    """The batches without late rows, and the number of late rows.

    A row is late if a watermark would drop it when each row is a batch of its own.
    """
    watermarks = [
        step
        for pipeline in test.pipelines
        for flow in flows(pipeline.stream)
        for step in flow.steps
        if isinstance(step, Watermark)
    ]
    if not watermarks:
        return batches, 0
    delay = min(step.delay for step in watermarks)
    columns = {step.column for step in watermarks}
    newest: float | None = None
    on_time, left_out = [], 0
    for batch in batches:
        kept: Batch = {}
        for name, rows in batch.items():
            feed = test.stage.feeds[name]
            kept[name] = []
            for row in rows:
                times = (_seconds(feed.column_value(row, column)) for column in columns)
                time = next((seconds for seconds in times if seconds is not None), None)
                if time is not None:
                    if newest is not None and time < newest - delay:
                        left_out += 1
                        continue
                    newest = time if newest is None else max(newest, time)
                kept[name].append(row)
        on_time.append({name: rows for name, rows in kept.items() if rows})
    return [batch for batch in on_time if batch], left_out


def _seconds(value: object) -> float | None:
    """The seconds since 1970 of a value; None if it is not a time."""
    if not isinstance(value, datetime | str):
        return None
    try:
        time: datetime = CASTERS["timestamp"](value, from_ddl("t timestamp").columns[0].kind)
    except Misfit:
        return None
    return time.timestamp()


# running and comparing


def run_in_new_lake(test: PipelineTest, pipelines: Sequence[Pipeline], way: Way) -> Result:
    """Feeds the rows of a way to pipelines in a new lake, and returns the targets."""
    with test.lake.fresh() as lake:
        for table, schema, rows in test.lake.created:
            lake.table(table.text, schema, rows)
        lake.declared.update(test.lake.declared)
        copy = lake.test(pipelines)
        for name, feed in test.stage.feeds.items():
            copy.stage.copy_feed(name, feed)
        for number, batch in enumerate(way.batches):
            known = {source: rows for source, rows in batch.items() if copy.stage.reads(source)}
            kill = KILLS[number % len(KILLS)] if way.killed else None
            for _ in range(2 if way.twice else 1):
                _feed_and_replay(copy, known, kill)
        return {plan.write.table.text: copy.target_rows(plan) for plan in copy.stage.plans()}


def _feed_and_replay(test: PipelineTest, batch: Batch, kill: Kill | None) -> None:
    test.feed_prepared(batch, kill=kill, strict=False)
    test.settle()
    if kill is not None:
        test.replay()


def _differences(expected: Target, actual: Target, keys: Sequence[str], ignore: Sequence[str]) -> list[str]:
    """The lines that show how two targets differ, in all columns of either target except the ignored columns."""
    ignored = {name.lower() for name in ignore}
    names = [name for _, schema in (expected, actual) for name in schema.names if name.lower() not in ignored]
    columns = list(dict.fromkeys(names))

    def aligned(target: Target) -> list[Row]:
        """The rows of a target by `columns`; a column that the target lacks is None."""
        rows, schema = target
        indexes = [schema.names.index(name) if name in schema.names else None for name in columns]
        return [tuple(row[index] if index is not None else None for index in indexes) for row in rows]

    return difference(aligned(expected), aligned(actual), columns, keys, WAY_WORDS)


@dataclass(frozen=True)
class _Comparison:
    """Compares the targets of ways with those of the first way.

    Attributes:
        ignore: Columns that may differ.
    """

    test: PipelineTest
    first: Way
    ignore: Sequence[str]

    def targets_after(self, way: Way) -> Result:
        """The targets after a way.

        Raises:
            Different: A run fails, although the first way was run without an error.
        """
        try:
            return run_in_new_lake(self.test, self.test.pipelines, way)
        except HeliosError as error:
            raise Different(f"a run fails when its rows come in another way: {way.text}.\n  {error}") from error

    def require_equal(self, expected: Result, actual: Result, way: Way) -> None:
        """Compares the targets of a way with the expected ones.

        Raises:
            Different: A target differs; the message shows the rows and the first step that differs.
        """
        for number, plan in enumerate(self.test.stage.plans()):
            name = plan.write.table.text
            lines = _differences(expected[name], actual[name], plan.write.mode.keys, self.ignore)
            if lines:
                title = f"{name} differs when its rows come in another way: {way.text}."
                raise Different("\n  ".join([title, *lines, self._first_difference(number, way)]))

    def _first_difference(self, number: int, way: Way) -> str:
        """A sentence that names the first step after which the rows differ, found by cutting off later steps."""
        test, pipeline = self.test, self.test.pipelines[number]
        steps = pipeline.stream.steps

        def agree(count: int) -> bool:
            pipelines = [*test.pipelines[:number], _cut_pipeline(test, pipeline, count)]
            try:
                expected = run_in_new_lake(test, pipelines, self.first)
                actual = run_in_new_lake(test, pipelines, replace(way, twice=False))
            except HeliosError:
                return False  # the cut pipeline is not valid, such as an aggregate without a watermark
            name = next(reversed(expected))
            return not _differences(expected[name], actual[name], (), self.ignore)

        same_steps = _last_that_agrees(len(steps), agree)
        if same_steps == len(steps):
            mode = self.test.stage.plans()[number].write.mode.text()
            opaque = [step.text() for step in steps if step.traits.opaque]
            state = f", or in state that {', '.join(opaque)} keeps between runs" if opaque else ""
            return f"The rows are the same after all steps: the difference begins in the write ({mode}){state}."
        step = steps[same_steps]
        place = f"{step.origin.file}:{step.origin.line}"
        return f"The rows are the same before {step.text()} ({place}): the difference begins there."


def _last_that_agrees(count: int, agree: Callable[[int], bool]) -> int:
    """Returns the largest number of steps after which the rows still agree, by bisection.

    Examples:
        >>> _last_that_agrees(5, lambda steps: steps < 3)
        2
    """
    low, high = 0, count + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if agree(middle) else (low, middle)
    return low


def _cut_pipeline(test: PipelineTest, pipeline: Pipeline, count: int) -> Pipeline:
    """A pipeline with only the first `count` steps, which writes to a table of its own."""
    from helios.iceberg import Iceberg

    stream = pipeline.stream
    assert isinstance(stream, Stream)
    catalog = test.lake.catalog(test.stage.context.config.default_catalog)
    kept = replace(stream, tail=stream.tail[:count])
    sink = Iceberg.sink("helios_test.cut", catalog=catalog).quarantine("helios_test.rejected")
    return Pipeline(stream=kept, sink=sink, origin=pipeline.origin)
