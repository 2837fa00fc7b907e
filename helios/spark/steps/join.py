"""`join`: by keys alone, as of the time of each row, or within bounds of two event times."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from helios.errors import DeclarationError, RunError
from helios.model.modes import VALID_FROM, VALID_TO
from helios.plan.typing.as_of import (
    EVENT_TIME_TYPES,
    VALIDITY_TYPES,
    commit_time_problems,
    has_validity,
    short_text,
    stateful_as_of,
    time_problem,
)
from helios.plan.typing.schema import Column as TypedColumn
from helios.spark.jvm.sql import quoted
from helios.spark.steps.dedupe import event_time, require_time, watermark_columns
from helios.spark.steps.steps import AsOfSide, Scope
from helios.steps.join import Join
from helios.table.commit_times import CommitTimes

TIME, STATE, KEY = "__helios_as_of", "__helios_state", "__helios_on_"
"""The columns with the time of a row and with the index of a state, and the prefix of renamed key columns."""
BEFORE = -1
"""The index for rows whose time is before the first state."""


def apply_step(df: DataFrame, step: Join, scope: Scope) -> DataFrame:
    if step.as_of is None:
        return joined(df, scope.read(step.other), step)
    assert scope.read_as_of is not None
    return joined_as_of(df, scope.read_as_of(step.other), step)


def joined(df: DataFrame, other: DataFrame, step: Join) -> DataFrame:
    """A join by keys, within the bounds of the two event times if the step has bounds."""
    if step.within is not None:
        return _within(df, other, step, step.within)
    return df.crossJoin(other) if step.how == "cross" else df.join(other, on=list(step.on), how=step.how)


def joined_as_of(df: DataFrame, other: AsOfSide, step: Join) -> DataFrame:
    """An as-of join: each row is joined with the rows that the right side had at the row's time.

    They are found by the columns `valid_from` and `valid_to` of the right side, or else by the commit times of its
    snapshots.

    Raises:
        DeclarationError: A column is not a time, or the right side has no earlier states.
        RunError: A row's time is before the retained history.
    """
    assert step.as_of is not None
    time = _time_column(df, step, step.as_of, EVENT_TIME_TYPES, "left")
    if has_validity(step, other.current.columns):
        return _by_validity(df, other.current, step, time)
    for problem in commit_time_problems(step):
        raise problem
    if other.stateful:
        raise stateful_as_of(step)
    if other.past is None:
        return df.join(other.current, on=list(step.on), how=step.how)
    return _by_commits(df, other, step, time, other.past.commits())


def _time_column(df: DataFrame, step: Join, name: str, allowed: tuple[str, ...], side: str) -> Column:
    """A column that must be a time, as a timestamp."""
    named = next((field.name for field in df.schema.fields if field.name.lower() == name.lower()), None)
    column = F.col(quoted(named)) if named is not None else F.col(name)
    type_name = df.select(column).schema[0].dataType.simpleString()
    problem = time_problem(step, TypedColumn(name, type_name), allowed, side)
    if problem is not None:
        raise problem
    return column.cast("timestamp")


# by validity


def _by_validity(df: DataFrame, other: DataFrame, step: Join, time: Column) -> DataFrame:
    begin, end = (_time_column(other, step, name, VALIDITY_TYPES, "right") for name in (VALID_FROM, VALID_TO))
    is_valid = time.isNotNull() & (begin.isNull() | (begin <= time)) & (end.isNull() | (time < end))
    return _join_on(df, other, step, is_valid)


def _join_on(df: DataFrame, other: DataFrame, step: Join, condition: Column) -> DataFrame:
    """A join by the keys and a condition, with the same columns as a join by the keys alone."""
    keys = {name.lower(): f"{KEY}{index}" for index, name in enumerate(step.on)}
    renamed = {name: keys[name.lower()] for name in other.columns if name.lower() in keys}
    same_keys = [F.col(quoted(name)) == F.col(keys[name.lower()]) for name in step.on]
    out = df.join(other.withColumnsRenamed(renamed), reduce(Column.__and__, same_keys) & condition, step.how)
    left = [name for name in df.columns if name.lower() not in keys]
    right = [name for name in other.columns if name.lower() not in keys]
    return out.select(*map(quoted, (*step.on, *left, *right)))


# by commit times


def _by_commits(df: DataFrame, other: AsOfSide, step: Join, time: Column, commits: CommitTimes) -> DataFrame:
    """A join of each row with the state that was current at the row's time.

    A state is the content of the table between two commits. Each state that is needed is read once.
    """
    timed = df.withColumn(TIME, F.unix_micros(time)).withColumn(STATE, F.expr(_state_at(commits.starts)))
    needed_states = {row[STATE] for row in timed.select(STATE).distinct().collect()}
    if BEFORE in needed_states and not commits.complete:
        raise _before_history(timed, step, commits)
    read_states = sorted(state for state in needed_states if state is not None and state != BEFORE)
    parts = [other.at_snapshot(commits.snapshots[state]).withColumn(STATE, F.lit(state)) for state in read_states]
    right = reduce(DataFrame.unionByName, parts) if parts else other.current.limit(0).withColumn(STATE, F.lit(BEFORE))
    # The join reads the rows a second time. A row that then has another time must not be lost, so it raises an error.
    is_known = F.col(STATE).isNull() | F.col(STATE).isin(BEFORE, *read_states)
    changed = F.raise_error(
        F.lit(f"helios: {short_text(step)}: the time of a row is not the same when it is read again")
    )
    timed = timed.withColumn(STATE, F.when(is_known, F.col(STATE)).otherwise(changed.cast("int"))).drop(TIME)
    return timed.join(right, on=[*step.on, STATE], how=step.how).drop(STATE)


def _state_at(starts: Sequence[int]) -> str:
    """The SQL for the index of the state at a row's time: a binary search for the last start that is not after it."""

    def search(low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high + 1) // 2
        return f"if({TIME} >= {starts[middle]}L, {search(middle, high)}, {search(low, middle - 1)})"

    return f"if({TIME} IS NULL, CAST(NULL AS int), {search(BEFORE, len(starts) - 1)})"


def _before_history(timed: DataFrame, step: Join, commits: CommitTimes) -> RunError:
    first = F.timestamp_micros(F.min(TIME)).cast("string")
    [(first_time, count)] = timed.where(F.col(STATE) == BEFORE).agg(first, F.count(F.lit(1))).collect()
    rows = "a row's time is" if count == 1 else f"the times of {count:,} rows begin at"
    since = "no commit of main is retained"
    if commits.starts:
        begin = F.timestamp_micros(F.lit(commits.starts[0])).cast("string")
        [(begin_time,)] = timed.sparkSession.range(1).select(begin).collect()
        since = f"the retained history begins at {begin_time}"
    return RunError(
        f"{short_text(step)}: {rows} {first_time}, and {since}: the state of {commits.table} at that time has expired. "
        "Nothing of the batch was written.",
        where=step.origin,
        fix=f'leave such rows out, where("{step.as_of} >= ..."), keep snapshots for longer than rows are late, or '
        "join a table with valid_from and valid_to, as .upsert(..., history=True) writes it.",
    )


# within bounds


def _within(df: DataFrame, other: DataFrame, step: Join, bounds: tuple[float, float]) -> DataFrame:
    fields = {side: _watermark_column(rows, step, side) for rows, side in ((df, "left"), (other, "right"))}
    left, right = (event_time(field) for field in fields.values())
    if step.how != "inner":
        # Spark would keep a row without an event time in its state for ever.
        df = require_time(df, left, fields["left"].name, step)
    before, after = (F.expr(f"INTERVAL {round(seconds * 1000)} MILLISECONDS") for seconds in bounds)
    return _join_on(df, other, step, (right >= left - before) & (right <= left + after))


def _watermark_column(df: DataFrame, step: Join, side: str) -> StructField:
    fields: list[StructField] = watermark_columns(df)
    if len(fields) != 1:
        names = ", ".join(field.name for field in fields)
        reason = f"there are several: {names}" if fields else "there is none"
        raise DeclarationError(
            f"{step.short}: within= goes by the event time of the watermark's column, and on the {side} side {reason}.",
            where=step.origin,
            fix="drop the time that does not count, before the join."
            if fields
            else f'write watermark("ts", "10 minutes") on the {side} side, before the join.',
        )
    return fields[0]
