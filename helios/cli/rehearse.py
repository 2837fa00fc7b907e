"""The command `rehearse`: shows what a changed script would have written in the last commits."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from helios.cli import options, output, progress
from helios.cli.options import Loaded, ScriptName
from helios.errors import InputError, near_miss
from helios.model.values import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

    from helios.plan import Plan
    from helios.spark.rehearse.report import Counts, Rehearsed, RehearsedCommit
    from helios.table.rehearsal import CommittedBatch, History

DIFFERS = 2
"""The exit status with `--exit-code` if anything would have come out differently."""
LAST = 10
"""The number of commits that are rehearsed by default."""


@click.command()
@options.script_argument
@click.option("--last", type=click.IntRange(min=1), metavar="N", help=f"The last N commits; by default {LAST}.")
@click.option("--since", metavar="T", help="The commits since a time: 2026-01-05, or 2026-01-05T09:00Z.")
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Stop after the commit that brings the written and compared rows to N.",
)
@click.option("--key", "keys", metavar="COLUMNS", help="Pair appended rows by these columns: id, or id,line.")
@click.option("--exit-code", is_flag=True, help="Exit with 2 if anything would have come out differently.")
@options.set_option
@options.common
@options.json_option
def rehearse(
    script: ScriptName,
    *,
    last: int | None,
    since: str | None,
    rows: int,
    keys: str | None,
    exit_code: bool,
    values: dict[str, str],
    profile: str | None,
    as_json: bool,
) -> None:
    """Show what a changed script would have written in past commits.

    The command reads the input of a pipeline's last commits again, and runs the current script on it. The output goes
    into a temporary folder, and nothing is written to the real tables.

    \b
    Example:
      helios rehearse pipeline.py:orders --last 20
    """
    if last is not None and since is not None:
        raise click.UsageError("--last selects a number of commits, --since a time: pass one.")
    from helios.plan.past import committed_history

    loaded = options.load(script, profile, values)
    plan = _plan(loaded)
    history = committed_history(plan)
    commits = _chosen_commits(history, last, since)
    key_columns = [name.strip() for name in (keys or "").split(",") if name.strip()]
    _check_keys(plan, key_columns)
    given_options = {"last": last, "since": since, "rows": rows, "key": keys, "set": values, "profile": profile}
    restart_command = options.command_line("rehearse", script, **given_options)
    result = _run_rehearsal(loaded, plan, history, commits, restart_command, rows=rows, keys=key_columns)
    if as_json:
        output.print_json(result.as_json())
    else:
        _print(result)
    if last is not None and last > len(history.batches):
        output.say(
            "note", f"--last {last}: the target has only {len(history.batches)} commits of {plan.pipeline}.", "yellow"
        )
    if exit_code and result.has_differences:
        click.get_current_context().exit(DIFFERS)


def _plan(loaded: Loaded) -> Plan:
    """The plan of the only chosen pipeline.

    Raises:
        InputError: Several pipelines were chosen, or the pipeline cannot be rehearsed.
    """
    from helios.plan.checks.rehearsal import rehearsal_problem

    plan = options.single_plan(loaded, "rehearse")
    problem = rehearsal_problem(plan)
    if problem is not None:
        raise problem
    return plan


def _chosen_commits(history: History, last: int | None, since: str | None) -> Sequence[CommittedBatch]:
    """The commits to rehearse, oldest first.

    Raises:
        InputError: There is no commit since the time.
    """
    from helios.table.snapshots import as_moment

    if since is None:
        return history.batches[-(last or LAST) :]
    moment = as_moment(since)
    since_then = [commit for commit in history.batches if commit.committed >= moment]
    if not since_then:
        newest = history.batches[-1].committed
        raise InputError(
            f"--since {since}: the last commit is of {newest:%Y-%m-%d %H:%M:%S} UTC.", fix="give an earlier time."
        )
    return since_then


def _check_keys(plan: Plan, keys: Sequence[str]) -> None:
    """Checks that the target or the script has every column of `--key`."""
    if not keys or plan.schema is None:  # some scripts have columns that are known only when they run
        return
    from helios.plan.typing.schema import from_pyiceberg

    table = plan.write.table.catalog.load(plan.write.table.name_in_catalog)
    target_columns = from_pyiceberg(table.iceberg.schema()).names
    columns = list(dict.fromkeys([*target_columns, *plan.schema.names]))
    for key in keys:
        if key.lower() not in {name.lower() for name in columns}:
            raise InputError(f"--key {key}: {plan.write.table.text} has no such column. {near_miss(key, columns)}")


def _run_rehearsal(
    loaded: Loaded,
    plan: Plan,
    history: History,
    commits: Sequence[CommittedBatch],
    restart_command: str,
    *,
    rows: int,
    keys: Sequence[str],
) -> Rehearsed:
    """Starts Spark and rehearses the commits; if it is stopped, a message names `restart_command`."""
    from helios.cli.launch import Launch
    from helios.spark.session.session import stop

    with tempfile.TemporaryDirectory(prefix="helios-rehearsal-") as folder_name:
        _install_signal_handlers(Path(folder_name), restart_command)
        lines = progress.Lines(err=True)
        components = tuple(dict.fromkeys((*plan.components, "iceberg", "sqlite")))
        session = Launch(loaded, components, lines, debug=options.settings().debug).session([plan])
        # Install them a second time, because SparkContext has replaced the handler of SIGINT.
        _install_signal_handlers(Path(folder_name), restart_command)
        try:
            from helios.spark.rehearse.rehearsal import Rehearsal

            lines.note(f"rehearsing {counted(len(commits), 'commit')} of {plan.pipeline} ...")
            return Rehearsal(
                plan=plan,
                spark=session,
                history=history,
                commits=commits,
                keys=keys,
                max_rows=rows,
                folder=Path(folder_name),
            ).run()
        finally:
            stop(session)


def _install_signal_handlers(folder: Path, restart_command: str) -> None:
    """Makes SIGINT and SIGTERM delete the folder and end the process at once.

    The last message then names `restart_command`, which starts the rehearsal again.
    """
    from helios.cli.run import end_jvm

    def end_process(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):
            # os.write does not use Python's buffers: the signal may have interrupted a write to them.
            message = f"stopped; no table was changed, and no result is kept. Start again: {restart_command}\n"
            os.write(sys.stderr.fileno(), message.encode())
        end_jvm()  # before the folder is deleted, because the JVM writes into it
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end_process)


# output


def _print(result: Rehearsed) -> None:
    click.echo(f"{result.pipeline} into {result.target} ({result.mode}), by the script as it is now:")
    for line in result.steps:
        click.echo(f"  {line}")
    click.echo()
    _print_table(result)
    click.echo()
    for line in _differences(result):
        click.echo(line)


def _differences(result: Rehearsed) -> Iterator[str]:
    failed = [commit for commit in result.commits if commit.failed]
    for error in dict.fromkeys(commit.failed for commit in failed):
        with_same_error = [commit for commit in failed if commit.failed == error]
        more = f" and {len(with_same_error) - 1} more" if len(with_same_error) > 1 else ""
        yield f"fails on {_name(with_same_error[0])}{more}: {error}"
    yield f"in all: {_counts(result.differs)}"
    yield from (f"  column {line}" for line in result.columns)
    for reject in result.rejects:
        rejected_then = (
            f"{reject.before:,} at the time" if reject.before is not None else "the number at the time was not kept"
        )
        yield f"  rejected by {reject.step}: {reject.now:,} rows now, {rejected_then}"
    for before_row, now in result.changed:
        yield f"  changed  {_change(before_row, now, result.keys)}"
    yield from (f"  missing  {_row(row)}" for row in result.missing)
    yield from (f"  added    {_row(row)}" for row in result.added)
    printed_rows = (result.changed, result.missing, result.added)
    counts = (result.differs.changed, result.differs.missing, result.differs.added)
    sections = zip(("changed", "missing", "added"), counts, map(len, printed_rows), strict=True)
    if more := ", ".join(f"{count - printed:,} {kind}" for kind, count, printed in sections if count > printed):
        yield f"  and more rows: {more}"
    yield from (f"note: {note}." for note in result.notes)
    if not result.has_differences:
        yield "Nothing would have come out differently."


def _print_table(result: Rehearsed) -> None:
    rows = [
        (
            _name(commit),
            f"{commit.committed:%Y-%m-%d %H:%M:%S} UTC" if commit.committed is not None else "",
            commit.batch if commit.batch is not None else "",
            f"{commit.before:,}",
            f"{commit.now:,}",
            f"not rehearsed: {commit.unread}"
            if commit.unread
            else "fails, see below"
            if commit.failed
            else _counts(commit.differs),
        )
        for commit in result.commits
    ]
    output.print_table(
        ("snapshot", "committed", "batch", "rows", "rows now", "differs"), rows, numbers=("rows", "rows now")
    )


def _name(commit: RehearsedCommit) -> str:
    return str(commit.snapshot) if commit.snapshot is not None else "(after the last)"


def _counts(counts: Counts) -> str:
    parts = [
        f"{count:,} {word}"
        for count, word in ((counts.added, "added"), (counts.missing, "missing"), (counts.changed, "changed"))
        if count
    ]
    return ", ".join(parts) or "the same"


def _row(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in row.items())


def _change(before: Mapping[str, Any], now: Mapping[str, Any], keys: Sequence[str]) -> str:
    key = ", ".join(f"{name}={_value(now[name])}" for name in keys)
    changes = [
        f"{name} is {_value(value)}, was {_value(before[name])}"
        for name, value in now.items()
        if not output.is_same(value, before[name])
    ]
    return f"{key}: {'; '.join(changes)}"


def _value(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return repr(value) if isinstance(value, (str, bytes)) or value is None else str(value)
