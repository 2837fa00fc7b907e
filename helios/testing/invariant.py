"""Gives the same rows in other ways: cut otherwise, killed and done again, shuffled; the targets must be the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from helios.errors import HeliosError, InputError
from helios.model.flow import Pipeline, Stream, flows
from helios.plan.nodes import Plan, ReadPath
from helios.plan.typing.schema import Schema, from_ddl
from helios.steps.watermark import Watermark
from helios.testing.casts import CASTERS, Misfit
from helios.testing.diff import WAYS, Different, Row, difference
from helios.testing.names import sources_of
from helios.testing.stage import KILLS, Batch, Kill

if TYPE_CHECKING:
    from helios.testing.case import PipelineTest

PIECES = 4
"""Into how many batches rows are cut at the most."""

Result = dict[str, tuple[list[Row], Schema]]
"""The rows and columns of each target."""


@dataclass(frozen=True)
class Way:
    """A way in which the rows are given.

    Attributes:
        text: What it is, for a reader.
        batches: The batches.
        killed: Whether each batch is killed once, at one moment after the other, and done again.
        twice: Whether each batch is given once more: a MERGE and an upsert must not count it twice.
    """

    text: str
    batches: list[Batch]
    killed: bool = False
    twice: bool = False


@dataclass(frozen=True)
class Invariant:
    """What was compared.

    Attributes:
        ways: The ways, as text.
        left_out: How many rows were left out, as they lie behind a watermark in some way.
        notes: What was not done, and why.
    """

    ways: tuple[str, ...]
    left_out: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        late = f"{self.left_out} rows behind a watermark were left out" if self.left_out else ""
        return "; ".join(one for one in (f"{len(self.ways)} ways give the same", late, *self.notes) if one)


def check(test: PipelineTest, *, cuts: int, replays: int, shuffles: int, ignore: Sequence[str], seed: int) -> Invariant:
    """See `PipelineTest.invariant`."""
    if not any(batch for batch in test.log.given):
        raise InputError("invariant() has no rows.", fix="give some first: test.batch(orders=[...]).")
    if test.lake.touched:
        raise InputError(
            "invariant() gives the rows again in other lakes, which lack what lake.sql() has changed.",
            fix="leave out lake.sql(); lake.table(name, schema, rows) is done again.",
        )
    plans, chance = test.stage.plans(), random.Random(seed)
    batches, left_out = _in_time(test, _standing_first(test, plans))
    notes: list[str] = []
    first = Way("the batches of the test", batches)
    ways: list[Way] = []
    why = _uncut(plans, test)
    if cuts and why:
        notes.append(f"not cut otherwise: {why}")
    elif cuts:
        ways += _cuts(test, batches, cuts, chance)
    twice = all(plan.write.mode.merge or plan.write.mode.traits.idempotent for plan in plans) and all(
        plan.path is ReadPath.RANGES for plan in plans
    )
    ways += [_killed(batches, number, twice=twice) for number in range(replays)]
    shuffled = [feed for feed in test.stage.feeds.values() if not feed.ordered and not _changes(test, feed.name)]
    if shuffles and not shuffled:
        notes.append("not shuffled: the rows of its sources have an order")
    whole = batches if why else next(_cuts(test, batches, 1, chance)).batches
    ways += [
        _shuffled(test, batches if number % 2 else whole, chance, number)
        for number in range(shuffles if shuffled else 0)
    ]
    expected, comparison = result(test, test.pipelines, first), _Comparison(test, first, ignore)
    if batches == test.log.given and test.lake.clocks < 2:
        comparison.same({plan.write.table.text: test.held(plan) for plan in plans}, expected, first)
    for way in ways:
        comparison.same(expected, comparison.found(way), way)
    return Invariant(tuple(way.text for way in ways), left_out, tuple(notes))


# the ways


def _standing_first(test: PipelineTest, plans: Sequence[Plan]) -> list[Batch]:
    """The batches of the test; rows of sources that are not followed, beside one that is, come with the first."""
    if not any(plan.streaming for plan in plans):
        return [dict(batch) for batch in test.log.given]
    standing: Batch = {}
    moving: list[Batch] = []
    for batch in test.log.given:
        moving.append({name: rows for name, rows in batch.items() if test.stage.feeds[name].followed})
        for name, rows in batch.items():
            if not test.stage.feeds[name].followed:
                standing.setdefault(name, []).extend(rows)
    moving = [batch for batch in moving if batch] or [{}]
    return [{**standing, **moving[0]}, *moving[1:]]


def _uncut(plans: Sequence[Plan], test: PipelineTest) -> str:
    """Why the rows are not cut into other batches; empty where they are."""
    for plan in plans:
        if plan.write.mode.traits.erases:
            return f"each batch of {plan.write.mode.text()} replaces rows of the one before"
        if plan.path is ReadPath.BATCH and any(read.table is not None for read in plan.reads):
            return f"{plan.pipeline} reads whole tables, and follows none"
    return ""


def _followed(test: PipelineTest, batches: Sequence[Batch]) -> tuple[Batch, Batch]:
    """The rows that stand in the first batch, and all that come over time."""
    moves = any(feed.followed for feed in test.stage.feeds.values())
    standing: Batch = {}
    coming: Batch = {}
    for batch in batches:
        for name, rows in batch.items():
            side = coming if test.stage.feeds[name].followed or not moves else standing
            side.setdefault(name, []).extend(rows)
    return standing, coming


def _cuts(test: PipelineTest, batches: Sequence[Batch], cuts: int, chance: random.Random) -> Iterator[Way]:
    """All rows in one batch, each in its own, and what chance gives."""
    standing, coming = _followed(test, batches)
    longest = max((len(rows) for rows in coming.values()), default=0)
    for number in range(cuts):
        pieces = 1 if number == 0 else min(longest, PIECES) if number == 1 else chance.randint(2, PIECES)
        pieces = max(1, min(pieces, longest))
        made: list[Batch] = [{} for _ in range(pieces)]
        for name, rows in coming.items():
            places = _places(len(rows), pieces, chance, even=number == 1)
            for batch, (start, end) in zip(made, pairwise(places), strict=True):
                if end > start:
                    batch[name] = rows[start:end]
        made = [batch for batch in made if batch] or [{}]
        made[0] = {**standing, **made[0]}
        sizes = ", ".join(str(sum(map(len, batch.values()))) for batch in made)
        yield Way(f"cut into {len(made)} batch{'es' if len(made) > 1 else ''} (rows: {sizes})", made)


def _places(count: int, pieces: int, chance: random.Random, *, even: bool) -> list[int]:
    """Where rows are cut: `pieces + 1` ascending places."""
    if even:
        return [count * number // pieces for number in range(pieces + 1)]
    inner = sorted(chance.sample(range(1, count), min(pieces - 1, max(0, count - 1)))) if count > 1 else []
    return [0, *inner, *[count] * (pieces - len(inner))]


def _killed(batches: list[Batch], number: int, *, twice: bool) -> Way:
    once_more = twice and number % 2 == 1
    text = "each batch killed, done again and replayed" + (", and given twice" if once_more else "")
    return Way(text, batches, killed=True, twice=once_more)


def _changes(test: PipelineTest, name: str) -> bool:
    """True if a source is read as changes, whose commits have an order."""
    sources = [source for one in test.pipelines for source in sources_of(one)]
    return any(
        source.reads_changes and str(source.reference[0] if source.reference else "") in name for source in sources
    )


def _shuffled(test: PipelineTest, batches: Sequence[Batch], chance: random.Random, number: int) -> Way:
    made = []
    for batch in batches:
        mixed: Batch = {}
        for name, rows in batch.items():
            keeps = test.stage.feeds[name].ordered or _changes(test, name)
            mixed[name] = rows if keeps else rows[::-1] if number == 0 else chance.sample(rows, len(rows))
        made.append(mixed)
    return Way(f"its rows in another order, in {len(made)} batch{'es' if len(made) > 1 else ''}", made)


# late rows


def _in_time(test: PipelineTest, batches: list[Batch]) -> tuple[list[Batch], int]:
    """The batches without rows that are behind a watermark if each row is a batch of its own; and how many."""
    marks = [
        (flow.source, step)
        for one in test.pipelines
        for flow in flows(one.stream)
        for step in flow.steps
        if isinstance(step, Watermark)
    ]
    if not marks:
        return batches, 0
    delay = min(step.delay for _, step in marks)
    columns = {step.column for _, step in marks}
    newest: float | None = None
    made, left_out = [], 0
    for batch in batches:
        kept: Batch = {}
        for name, rows in batch.items():
            feed = test.stage.feeds[name]
            kept[name] = []
            for row in rows:
                times = [_seconds(feed.at(row, column)) for column in columns]
                time = next((one for one in times if one is not None), None)
                if time is not None and newest is not None and time < newest - delay:
                    left_out += 1
                    continue
                newest = time if newest is None else max(newest, time if time is not None else newest)
                kept[name].append(row)
        made.append({name: rows for name, rows in kept.items() if rows})
    return [batch for batch in made if batch], left_out


def _seconds(value: object) -> float | None:
    if not isinstance(value, datetime | str):
        return None
    try:
        found: datetime = CASTERS["timestamp"](value, from_ddl("t timestamp").columns[0].kind)
    except Misfit:
        return None
    return found.timestamp()


# running and comparing


def result(test: PipelineTest, pipelines: Sequence[Pipeline], way: Way) -> Result:
    """The targets of pipelines after their rows came in a way, in a lake of its own."""
    with test.lake.fresh() as lake:
        for table, schema, rows in test.lake.given:
            lake.table(table.text, schema, rows)
        lake.declared.update(test.lake.declared)
        other = lake.test(pipelines)
        for name, feed in test.stage.feeds.items():
            other.stage.like(name, feed)
        for number, batch in enumerate(way.batches):
            known = {source: rows for source, rows in batch.items() if other.stage.reads(source)}
            for _ in range(2 if way.twice else 1):
                _give(other, known, KILLS[number % len(KILLS)] if way.killed else None)
        return {plan.write.table.text: other.held(plan) for plan in other.stage.plans()}


def _give(test: PipelineTest, batch: Batch, kill: Kill | None) -> None:
    test.give(batch, kill=kill, strict=False)
    test.settle()
    if kill is not None:
        test.replay()


def _differ(
    expected: tuple[list[Row], Schema], found: tuple[list[Row], Schema], keys: Sequence[str], ignore: Sequence[str]
) -> list[str]:
    """How two targets differ, by the columns that they have in common order, without ignored ones."""
    names = list(dict.fromkeys((*expected[1].names, *found[1].names)))
    kept = [name for name in names if name.lower() not in {one.lower() for one in ignore}]

    def rows(side: tuple[list[Row], Schema]) -> list[Row]:
        places = [side[1].names.index(name) if name in side[1].names else None for name in kept]
        return [tuple(row[place] if place is not None else None for place in places) for row in side[0]]

    return difference(rows(expected), rows(found), kept, keys, WAYS)


@dataclass(frozen=True)
class _Comparison:
    """Compares the targets of ways with those of the first one.

    Attributes:
        test: The test.
        first: The first way.
        ignore: Columns that may differ.
    """

    test: PipelineTest
    first: Way
    ignore: Sequence[str]

    def found(self, way: Way) -> Result:
        """The targets after a way.

        Raises:
            Different: A run fails in this way, and in the first one none does.
        """
        try:
            return result(self.test, self.test.pipelines, way)
        except HeliosError as error:
            raise Different(f"a run fails by how its rows come: {way.text}.\n  {error}") from error

    def same(self, expected: Result, found: Result, way: Way) -> None:
        """Raises what differs.

        Raises:
            Different: A target differs.
        """
        for number, plan in enumerate(self.test.stage.plans()):
            name = plan.write.table.text
            lines = _differ(expected[name], found[name], plan.write.mode.keys, self.ignore)
            if lines:
                where = self._narrowed(number, way)
                raise Different("\n  ".join([f"{name} depends on how its rows come: {way.text}.", *lines, where]))

    def _narrowed(self, number: int, way: Way) -> str:
        """The step before which two ways still agree, found by cutting the pipeline in front of steps."""
        test, pipeline = self.test, self.test.pipelines[number]
        steps = pipeline.stream.steps

        def agree(count: int) -> bool:
            cut = [*test.pipelines[:number], _cut(test, pipeline, count)]
            try:
                one, two = result(test, cut, self.first), result(test, cut, replace(way, twice=False))
            except HeliosError:
                return False  # it cannot be written as it is, such as an aggregate without a watermark
            name = next(reversed(one))
            return not _differ(one[name], two[name], (), self.ignore)

        last = _last_that_agrees(len(steps), agree)
        if last == len(steps):
            write = self.test.stage.plans()[number].write.mode.text()
            opaque = [step.text() for step in steps if step.traits.opaque]
            also = f", or in what {', '.join(opaque)} keeps between runs" if opaque else ""
            return f"All steps agree; the ways part in the write ({write}){also}."
        step = steps[last]
        return (
            f"The ways still agree in front of {step.text()} ({step.origin.file}:{step.origin.line}), and part there."
        )


def _last_that_agrees(count: int, agree: Callable[[int], bool]) -> int:
    """The largest number of steps whose rows agree, by bisection.

    Examples:
        >>> _last_that_agrees(5, lambda steps: steps < 3)
        2
    """
    low, high = 0, count + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if agree(middle) else (low, middle)
    return low


def _cut(test: PipelineTest, pipeline: Pipeline, count: int) -> Pipeline:
    """A pipeline that ends behind so many of its steps, in a table of its own."""
    from helios.iceberg import Iceberg

    stream = pipeline.stream
    assert isinstance(stream, Stream)
    catalog = test.lake.catalog(test.stage.context.config.default_catalog)
    kept = replace(stream, tail=stream.tail[:count])
    sink = Iceberg.sink("helios_test.cut", catalog=catalog).quarantine("helios_test.rejected")
    return Pipeline(stream=kept, sink=sink, origin=pipeline.origin)
