"""The command `backfill`: replaces rows of a target by those that the current script computes."""

from __future__ import annotations

import os
import threading
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from helios.cli import options, output, progress
from helios.cli.options import Loaded, ScriptName
from helios.errors import InputError, NotFound
from helios.model.values import counted

if TYPE_CHECKING:
    from helios.catalog.names import TableName
    from helios.plan import Plan
    from helios.plan.backfills import Ask
    from helios.spark.backfill.result import Backfilled, SliceProgress


@click.command()
@options.script_argument
@click.option("--where", metavar="FILTER", help="The rows to repair: a condition over columns of the target.")
@click.option(
    "--commits", metavar="A..B", help="The commits to repair, by snapshot id or batch number: A..B, or one commit."
)
@click.option("--by", metavar="hour|day|month|COLUMN", help="Split the rows into slices, each with its own commit.")
@click.option("--from", "other", metavar="TABLE|FOLDER", help="Read this table or folder instead of the source.")
@click.option("--trust-expired", is_flag=True, help="Treat rows whose commits have expired as the pipeline's own.")
@click.option(
    "--rows-stay", is_flag=True, help="Confirm that the fixed script moves no row into or out of FILTER or a slice."
)
@click.option("--dry-run", is_flag=True, help="Only show slices, rows and bytes.")
@options.set_option
@options.common
@options.json_option
def backfill(
    *,
    script: ScriptName,
    where: str | None,
    commits: str | None,
    by: str | None,
    other: str | None,
    trust_expired: bool,
    rows_stay: bool,
    dry_run: bool,
    values: dict[str, str],
    profile: str | None,
    as_json: bool,
) -> None:
    """Repair rows of earlier batches with the current script.

    The rows that match --where, or that --commits wrote, are replaced by the rows that the script now computes from its
    source. The pipeline may run meanwhile. A stopped backfill resumes when it is started with the same options.

    \b
    Example:
      helios backfill pipeline.py:orders --where "day >= '2026-01-05' AND day < '2026-01-08'" --by day
      helios backfill pipeline.py:orders --commits 5809139621336470672
    """
    from helios.plan.backfills import Ask

    if (where is None) is (commits is None):
        raise click.UsageError("--where and --commits are two ways to select rows: pass one of them.")
    if commits is not None and (by is not None or other is not None or rows_stay or trust_expired):
        raise click.UsageError(
            "--by, --from, --rows-stay and --trust-expired go with --where: a commit is repaired as a whole, from "
            "the pipeline's source."
        )
    if where is not None and not where.strip():
        raise InputError("--where is empty.", fix="name columns of the target: --where \"day >= '2026-01-05'\".")
    ask = Ask(where=where or "", commits=commits, by=by, other=other, trusts_expired=trust_expired, rows_stay=rows_stay)
    given_options = {"where": where, "commits": commits, "by": by, "from": other, "trust_expired": trust_expired}
    resume_command = options.command_line(
        "backfill", script, **given_options, rows_stay=rows_stay, set=values, profile=profile
    )
    result = _run_backfill(options.load(script, profile, values), ask, resume_command, dry_run=dry_run)
    if as_json:
        output.print_json(asdict(result))
    else:
        _print(result, resume_command)


def _run_backfill(loaded: Loaded, ask: Ask, resume_command: str, *, dry_run: bool) -> Backfilled:
    """Starts Spark and runs the backfill; messages name `resume_command` as the command that resumes it."""
    from helios.cli.launch import Launch
    from helios.cli.run import Signals
    from helios.plan import components_before_compiling
    from helios.plan.backfills import refuse_ask, refuse_backfill, refuse_other_source

    plan = options.single_plan(loaded, "backfill")
    refuse_backfill(plan)
    source = None
    if ask.other is not None:
        refuse_other_source(plan)
        source = _replacement_source(loaded, ask.other)
        if not isinstance(source, str):
            plan = replace(plan, catalogs=tuple(dict.fromkeys((*plan.catalogs, source.catalog))))
    refuse_ask(plan, ask)
    _note_changed_steps(plan)
    lines = progress.Lines(err=True)
    kept_slices = "the slices before the running one stay repaired"
    effect = "nothing was written." if dry_run else f"{kept_slices}. Continue with the running one: {resume_command}"
    signals = Signals(lines, "slice", f"stopped; {effect}\n")
    stop_requested = threading.Event()
    components, debug = components_before_compiling(loaded.pipelines, loaded.context), options.settings().debug
    session = Launch(loaded, components, lines, debug=debug).session([plan])
    signals.install()  # a second time, since SparkContext has replaced the handler of SIGINT
    signals.stop = stop_requested.set
    try:
        from helios.spark.backfill.backfill import Backfill

        repair = Backfill(
            plan, session, ask, other=source, tell=_show_slice, note=lines.note, stopping=stop_requested.is_set
        )
        return repair.run(dry_run=dry_run)
    finally:
        session.stop()


def _replacement_source(loaded: Loaded, name: str) -> TableName | str:
    """The table or folder that `--from` names. A name that has a slash or is an existing path is a folder.

    Raises:
        NotFound: No table or folder has this name.
    """
    from helios.model.values import Identifier, caller

    if "/" in name or os.path.exists(name):
        return name
    table = loaded.context.resolve(Identifier.parse(name), None, caller())
    if not table.catalog.exists(table.name_in_catalog):
        raise NotFound(
            f"--from {name}: there is neither a table {table.text} nor such a folder.",
            fix="name a table, or write the path of a folder with a slash: ./old.",
        )
    return table


def _note_changed_steps(plan: Plan) -> None:
    """Prints a note for each step that has changed since the pipeline's last run.

    A pipeline that is still running computes new rows with the old steps until it is restarted.
    """
    from helios.plan.changed import plan_difference

    difference = plan_difference(plan)
    changed_steps = [change for change in difference.changes if change.part == "step"] if difference is not None else []
    for change in changed_steps:
        lines = "\n".join(f"  {line}" for line in change.lines)
        output.say(
            "note",
            f"{plan.pipeline} last ran with other steps, and writes new rows with them until it is restarted:\n{lines}",
            "yellow",
        )


def _show_slice(current: SliceProgress) -> None:
    result = current.last_slice
    repeated = f", in {result.again + 1} attempts, because new rows arrived meanwhile" if result.again else ""
    time_left = f"; about {_duration(current.seconds_left)} left" if current.number < current.slices else ""
    rows = f"{counted(result.before, 'row')} replaced by {result.after:,}" if result.snapshot else "no rows changed"
    click.echo(f"{current.number} of {current.slices}  {result.slice}: {rows}{repeated}{time_left}", err=True)


def _duration(seconds: float) -> str:
    """A length of time in one unit.

    Examples:
        >>> _duration(3.4), _duration(400), _duration(9000)
        ('3 s', '7 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _print(result: Backfilled, resume_command: str) -> None:
    before, after = sum(done.before for done in result.slices), sum(done.after for done in result.slices)
    slices, rows = counted(len(result.slices), "slice"), counted(before, "row")
    if result.dry_run:
        output.print_table(
            ("slice", "rows now", "rows after"),
            [(done.slice, f"{done.before:,}", f"{done.after:,}") for done in result.slices],
            numbers=("rows now", "rows after"),
        )
        size = f" in {result.bytes:,} bytes of files" if result.bytes is not None else ""
        click.echo(f"{result.table}: {slices} would be written; {rows}{size} would be replaced by {after:,}.")
        return
    if result.left:
        count = result.resumed + len(result.slices)
        click.echo(
            f"{result.table}: stopped; {count:,} of {count + result.left:,} slices are repaired, and "
            f"{counted(result.left, 'slice')} left. Continue with the next one: {resume_command}"
        )
        return
    earlier = f", {result.resumed:,} more before the stop" if result.resumed else ""
    if not result.slices and not result.resumed:
        click.echo(f"{result.table}: neither the table nor the source has selected rows; nothing was written.")
    else:
        click.echo(f"{result.table}: {slices} repaired{earlier}; {rows} replaced by {after:,}.")
