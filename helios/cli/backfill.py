"""The command `backfill`: repairs the history of a target with the script as it is now."""

from __future__ import annotations

import os
import threading
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from helios.cli import options, output, progress
from helios.cli.options import Loaded, Target
from helios.errors import InputError, NotFound
from helios.model.values import counted

if TYPE_CHECKING:
    from helios.catalog.names import TableName
    from helios.plan import Plan
    from helios.plan.backfills import Ask
    from helios.spark.backfill.result import Backfilled, Progress


@click.command()
@options.script_argument
@click.option("--where", metavar="FILTER", help="The rows to repair: a condition over columns of the target.")
@click.option("--commits", metavar="A..B", help="The commits to repair, as `helios history` shows them; one is enough.")
@click.option("--by", metavar="hour|day|month|COLUMN", help="Cuts them into slices, each a commit of its own.")
@click.option("--from", "other", metavar="TABLE|FOLDER", help="Reads this in place of the source.")
@click.option("--trust-expired", is_flag=True, help="Takes rows whose commits have expired for the pipeline's own.")
@click.option("--rows-stay", is_flag=True, help="The mended script moves no row over the edge of --where or a slice.")
@click.option("--dry-run", is_flag=True, help="Only show slices, rows and bytes.")
@options.set_option
@options.common
@options.json_option
def backfill(
    *,
    target: Target,
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
    """Repair rows of earlier batches with the present script.

    The pipeline may be running meanwhile. The rows that --where names, or that --commits wrote, are replaced by the
    rows that the script gives of its source now. A stopped backfill goes on if it is started with the same options.

    \b
    Example:
      helios backfill pipeline.py:orders --where "day >= '2026-01-05' AND day < '2026-01-08'" --by day
      helios backfill pipeline.py:orders --commits 5809139621336470672
    """
    from helios.plan.backfills import Ask

    if (where is None) is (commits is None):
        raise click.UsageError("--where names rows, and --commits those of some commits: pass one.")
    if commits is not None and (by is not None or other is not None or rows_stay):
        raise click.UsageError(
            "--by, --from and --rows-stay go with --where: a commit is repaired as a whole, from its source."
        )
    if where is not None and not where.strip():
        raise InputError("--where is empty.", fix="name columns of the target: --where \"day >= '2026-01-05'\".")
    ask = Ask(where=where or "", commits=commits, by=by, other=other, trusts_expired=trust_expired, rows_stay=rows_stay)
    given = {"where": where, "commits": commits, "by": by, "from": other, "trust_expired": trust_expired}
    again = options.as_typed("backfill", target, **given, rows_stay=rows_stay, set=values, profile=profile)
    done = _backfilled(options.load(target, profile, values), ask, again, dry_run=dry_run)
    if as_json:
        output.to_json(asdict(done))
    else:
        _print(done, again)


def _backfilled(loaded: Loaded, ask: Ask, again: str, *, dry_run: bool) -> Backfilled:
    """Starts Spark and repairs what is asked for; `again` is the command that goes on."""
    from helios.cli.launch import Launch
    from helios.cli.run import Signals
    from helios.plan import components_ahead
    from helios.plan.backfills import refuse_ask, refuse_backfill, refuse_other_source

    plan = options.only_plan(loaded, "backfill")
    refuse_backfill(plan)
    source = None
    if ask.other is not None:
        refuse_other_source(plan)
        source = _other(loaded, ask.other)
        if not isinstance(source, str):
            plan = replace(plan, catalogs=tuple(dict.fromkeys((*plan.catalogs, source.catalog))))
    refuse_ask(plan, ask)
    _tell_changed(plan)
    shown = progress.Lines(err=True)
    done = f"the slices before the running one are repaired, and stay so. Go on with the next one: {again}"
    signals = Signals(shown, "slice", "stopped; nothing was written.\n" if dry_run else f"stopped; {done}\n")
    ending = threading.Event()
    components, debug = components_ahead(loaded.pipelines, loaded.context), options.settings().debug
    session = Launch(loaded, components, shown, debug=debug).session([plan])
    signals.install()  # once more: SparkContext puts its own handler for SIGINT
    signals.stop = ending.set
    try:
        from helios.spark.backfill.backfill import Backfill

        made = Backfill(plan, session, ask, other=source, tell=_tell, note=shown.note, stopping=ending.is_set)
        return made.run(dry_run=dry_run)
    finally:
        session.stop()


def _other(loaded: Loaded, other: str) -> TableName | str:
    """The table or the folder that `--from` names: what is there, or has a slash, is a folder.

    Raises:
        NotFound: There is neither.
    """
    from helios.model.values import Identifier, caller

    if "/" in other or os.path.exists(other):
        return other
    table = loaded.context.resolve(Identifier.parse(other), None, caller())
    if not table.catalog.exists(table.within):
        raise NotFound(
            f"--from {other}: there is no table {table.text}, and no such folder.",
            fix="name a table, or write the path of a folder with a slash: ./old.",
        )
    return table


def _tell_changed(plan: Plan) -> None:
    """Says first where the pipeline has last run with other steps: its later batches are still written by those."""
    from helios.plan.changed import changed

    found = changed(plan)
    steps = [change for change in found.changes if change.part == "step"] if found is not None else []
    for change in steps:
        lines = "\n".join(f"  {line}" for line in change.lines)
        output.say(
            "note",
            f"{plan.pipeline} has last run with other steps, and writes newer rows with them until it is started "
            f"again:\n{lines}",
            "yellow",
        )


def _tell(step: Progress) -> None:
    done = step.done
    again = f", done {done.again + 1} times as rows came for it" if done.again else ""
    left = f"; about {_duration(step.seconds)} left" if step.number < step.slices else ""
    rows = f"{counted(done.before, 'row')} replaced by {done.after:,}" if done.snapshot else "no rows changed"
    click.echo(f"{step.number} of {step.slices}  {done.slice}: {rows}{again}{left}", err=True)


def _duration(seconds: float) -> str:
    """A length of time in one unit.

    Examples:
        >>> _duration(3.4), _duration(400), _duration(9000)
        ('3 s', '7 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _print(done: Backfilled, again: str) -> None:
    before, after = sum(one.before for one in done.slices), sum(one.after for one in done.slices)
    slices, rows = counted(len(done.slices), "slice"), counted(before, "row")
    if done.dry_run:
        output.table(
            ("slice", "rows now", "rows then"),
            [(one.slice, f"{one.before:,}", f"{one.after:,}") for one in done.slices],
            numbers=("rows now", "rows then"),
        )
        click.echo(
            f"{done.table}: {slices} would be written; {rows} in {done.bytes or 0:,} bytes of files would be replaced "
            f"by {after:,}."
        )
        return
    if done.left:
        count = done.resumed + len(done.slices)
        click.echo(
            f"{done.table}: stopped; {count:,} of {count + done.left:,} slices are repaired, and "
            f"{counted(done.left, 'slice')} left. Go on with the next one: {again}"
        )
        return
    earlier = f", {done.resumed:,} more before it was stopped" if done.resumed else ""
    if not done.slices and not done.resumed:
        click.echo(f"{done.table}: neither it nor the source has such rows; nothing was written.")
    else:
        click.echo(f"{done.table}: {slices} repaired{earlier}; {rows} replaced by {after:,}.")
