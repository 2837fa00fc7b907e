"""The command `quarantine`: shows, replays and deletes rejected rows, and sets aside a batch that failed its audit."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from helios.cli import options, output, progress
from helios.cli.options import ScriptName
from helios.cli.session import spark_session
from helios.cli.tables import open_table, table_argument
from helios.errors import EngineNeeded, HeliosError, InputError
from helios.model.values import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from helios.catalog.names import TableName
    from helios.config import Config
    from helios.plan import Plan
    from helios.spark.replay.replay import Replayed
    from helios.table.quarantine import DiscardedBatch
    from helios.table.snapshots import Table

SHOW = "show"


class Quarantine(click.Group):
    """A group that reads `helios quarantine TABLE` as `helios quarantine show TABLE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first_words = {*self.commands, "-h", "--help"}
        if args and args[0] not in first_words:
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


@click.group(cls=Quarantine, subcommand_metavar="TABLE | replay SCRIPT[:name] | clear TABLE")
def quarantine() -> None:
    """Show rejected rows, set a batch aside, replay or delete rows.

    TABLE is a quarantine, or with --batch the target of a pipeline with an audit. `helios quarantine show --help` lists
    the options for TABLE.

    \b
    Example:
      helios quarantine shop.rejected --rows 5
      helios quarantine shop.orders --batch 7
      helios quarantine replay pipeline.py
    """


@quarantine.command(SHOW)
@table_argument
@click.option("--rows", "count", type=click.IntRange(1), metavar="N", help="Show the N rows that were rejected last.")
@click.option(
    "--batch",
    type=click.IntRange(0),
    metavar="N",
    help="Set aside batch N of the target TABLE, which failed its audit.",
)
@click.option(
    "--pipeline",
    metavar="NAME",
    help="The pipeline that wrote batch N; needed if a batch N of several pipelines has failed its audit.",
)
@options.common
@options.json_option
def show(
    name: str, *, count: int | None, batch: int | None, pipeline: str | None, profile: str | None, as_json: bool
) -> None:
    """Show the rejected rows of TABLE, or set aside a batch of TABLE.

    TABLE is a quarantine. With --batch it is the target of a pipeline, and N is a batch that failed its audit. The
    batch stays readable under a tag. Its rejected rows leave the quarantine, and the pipeline continues with the next
    batch.

    \b
    Example:
      helios quarantine shop.rejected --rows 5
      helios quarantine shop.orders --batch 7
    """
    if batch is not None and count is not None:
        raise click.UsageError("--batch sets a batch of a target aside, and --rows shows a quarantine: pass one.")
    if pipeline is not None and batch is None:
        raise click.UsageError("--pipeline goes with --batch.")
    config, table_name, table = open_table(name, profile)
    if batch is not None:
        discarded = _set_aside(config, table_name, table, batch, pipeline)
        quarantined = _clear_quarantines(config, table, discarded)
        _print_set_aside(table, replace(discarded, quarantined=quarantined), as_json)
    elif count is not None:
        _print_rows(table, count, as_json)
    else:
        _print_groups(table, as_json)


def _print_groups(table: Table, as_json: bool) -> None:
    from helios.table.quarantine import groups, shown_time

    rejected = groups(table)
    if as_json:
        output.print_json([{**asdict(group), "newest": _iso(group.newest)} for group in rejected])
    elif not rejected:
        click.echo(f"{table.name} has no rows.", err=True)
    else:
        output.print_table(
            ("pipeline", "reason", "rows", "batches", "newest", "step"),
            [
                (
                    group.pipeline,
                    group.reason,
                    f"{group.rows:,}",
                    _ranges(group.batches),
                    shown_time(group.newest),
                    group.step,
                )
                for group in rejected
            ],
            numbers=("rows",),
        )


def _print_rows(table: Table, count: int, as_json: bool) -> None:
    from helios.table.quarantine import rows, shown_time

    rejected = rows(table, count)
    if as_json:
        output.print_json([{**row, "at": _iso(row["at"])} for row in rejected])
    elif not rejected:
        click.echo(f"{table.name} has no rows.", err=True)
    else:
        output.print_table(
            ("pipeline", "batch", "reason", "at", "payload"),
            [
                (row["pipeline"], row["batch"], row["reason"], shown_time(row["at"]), json.dumps(row["payload"]))
                for row in rejected
            ],
            numbers=("batch",),
        )


def _set_aside(config: Config, table_name: TableName, table: Table, batch: int, pipeline: str | None) -> DiscardedBatch:
    from helios.table.quarantine import discard_batch, plan_discard

    try:
        return discard_batch(table, batch, pipeline)
    except EngineNeeded:
        discarded, record = plan_discard(table, batch, pipeline)
        with spark_session(config, table_name) as spark:
            from helios.spark.replay.discard import commit_discard

            commit_discard(spark, table_name, discarded, record)
        return discarded


def _clear_quarantines(config: Config, target: Table, discarded: DiscardedBatch) -> int:
    """Removes the rejected rows of a batch from the quarantines of all declared catalogs. Returns their number."""
    from helios.table.quarantine import clear_discarded

    removed = 0
    for catalog in config.catalogs.values():
        try:
            names = [name for namespace in catalog.namespaces() for name in catalog.tables(namespace)]
            for name in names:
                removed += clear_discarded(target, discarded, catalog.load(name))
        except HeliosError as error:  # only a note: the batch itself is set aside, and the command can be repeated
            problem = output.paragraph(error)
            note = f"rejected rows of the batch stay in the quarantines of catalog {catalog.name}: {problem}"
            output.say("note", note, "yellow")
    return removed


def _print_set_aside(table: Table, discarded: DiscardedBatch, as_json: bool) -> None:
    if as_json:
        output.print_json({"table": table.name, **asdict(discarded)})
        return
    outcome = "was set aside before" if discarded.again else f"is set aside ({counted(discarded.rows, 'row')})"
    click.echo(
        f"{table.name}: batch {discarded.batch} of {discarded.pipeline} {outcome}, under the tag {discarded.tag}."
    )
    if discarded.quarantined:
        rows = counted(discarded.quarantined, "rejected row")
        click.echo(f"{rows} of the batch left the quarantine table, and can be read under the same tag of that table.")
    if not discarded.again:
        click.echo("A streaming pipeline continues with the next batch.")


@quarantine.command()
@table_argument
@click.option("--pipeline", metavar="NAME", help="Only rows of this pipeline.")
@click.option("--step", metavar="TEXT", help="Only rows of steps whose text contains TEXT.")
@click.option("--reason", metavar="TEXT", help="Only rows whose reason contains TEXT.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.common
@options.json_option
def clear(
    name: str,
    *,
    pipeline: str | None,
    step: str | None,
    reason: str | None,
    yes: bool,
    profile: str | None,
    as_json: bool,
) -> None:
    """Delete rejected rows that were repaired elsewhere.

    A replay removes its rows itself. This command is for rows that were delivered again, for example in a repaired
    file, and for rows that nobody needs. TABLE is a quarantine. Deleted rows stay readable in its older snapshots
    until those expire.

    \b
    Example:
      helios quarantine clear shop.rejected --reason "null key"
    """
    from helios.table.quarantine import delete_groups, matching_groups

    _, _, table = open_table(name, profile)
    rejected = matching_groups(table, pipeline, step, reason)
    rows = counted(sum(group.rows for group in rejected), "row")
    if rejected and not yes:
        click.confirm(f"Delete {rows} from {table.name}?", abort=True, err=True)
    deleted = delete_groups(table, rejected)
    if as_json:
        output.print_json({"table": table.name, "rows": deleted})
    else:
        click.echo(f"{table.name}: {f'{rows} deleted' if deleted else 'no row matches'}.")


@quarantine.command()
@options.script_argument
@click.option("--step", metavar="TEXT", help="Only rows of steps whose text contains TEXT.")
@options.set_option
@options.common
@options.json_option
@click.pass_context
def replay(
    ctx: click.Context,
    *,
    script: ScriptName,
    step: str | None,
    values: dict[str, str],
    profile: str | None,
    as_json: bool,
) -> None:
    """Replay rejected rows through the repaired steps of a script.

    Each row starts at the expectation that rejected it. Rows that fail again stay in the quarantine. The pipeline must
    not run meanwhile.

    \b
    Example:
      helios quarantine replay pipeline.py:orders
    """
    from helios.cli.launch import Launch
    from helios.engine import require_runnable
    from helios.plan import compile_pipelines, components_before_compiling

    loaded = options.load(script, profile, values)
    if not any(pipeline.sink.quarantine_table for pipeline in loaded.pipelines):
        raise InputError(
            f"no pipeline of {script.path} has a quarantine.", fix='add .quarantine("ns.rejected") to a sink.'
        )
    debug = options.settings().debug
    launch = Launch(
        loaded, components_before_compiling(loaded.pipelines, loaded.context), progress.Lines(err=True), debug=debug
    )
    plans = require_runnable(*compile_pipelines(loaded.pipelines, loaded.context, lenient=True))
    session = launch.session(plans)
    try:
        results, failures = _replay_each(plans, session, step, echo=not as_json)
    finally:
        session.stop()
    if as_json:
        output.print_json(
            [*map(asdict, results), *({"pipeline": name, **output.as_json(error)} for name, error in failures)]
        )
    if debug or not as_json:
        for _, failure in failures:
            output.report(failure, output.Settings(debug=debug))
    if failures:
        ctx.exit(min(failure.exit_status for _, failure in failures))


def _replay_each(
    plans: list[Plan], session: SparkSession, step: str | None, *, echo: bool
) -> tuple[list[Replayed], list[tuple[str, HeliosError]]]:
    """Replays the quarantine of each pipeline. Returns the results, and the failures with the pipelines' names."""
    from helios.spark.replay.replay import Replay

    results: list[Replayed] = []
    failures: list[tuple[str, HeliosError]] = []
    for plan in (plan for plan in plans if plan.write.quarantine is not None):
        try:
            results.append(Replay(plan, session, step).run())
        except HeliosError as error:
            failures.append((plan.pipeline, error))  # the replays of other pipelines continue
            continue
        if echo:
            click.echo(_summary(results[-1]))
    return results, failures


def _summary(result: Replayed) -> str:
    if not result.taken and not result.stayed:
        return f"{result.pipeline}: {result.quarantine} has nothing to replay{_not_replayed(result)}."
    resumed = " (an interrupted replay was finished)" if result.resumed else ""
    snapshot_text = f", snapshot {result.snapshot}" if result.snapshot is not None else ""
    rows = counted(result.taken - result.moved, "row")
    parts = [f"{result.pipeline}: {rows} replayed into {result.target}{resumed}{snapshot_text}"]
    if result.moved:
        parts.append(f"{counted(result.moved, 'row')} rejected by another step now")
    if result.stayed:
        parts.append(f"{counted(result.stayed, 'row')} of {result.quarantine} would fail again")
    return f"{'; '.join(parts)}{_not_replayed(result)}."


def _not_replayed(result: Replayed) -> str:
    """A text about the rows that the replay left out, and what to do about them."""
    parts = []
    if result.waiting:
        rows = counted(result.waiting, "row")
        parts.append(f"; {rows} of an unfinished batch wait: run the pipeline first, so that it repeats the batch")
    if result.of_sources:
        rows = counted(result.of_sources, "row")
        parts.append(
            f"; {rows} that a source rejected stay: repair them at their origin, and delete them here with "
            "`helios quarantine clear`"
        )
    return "".join(parts)


# shared


def _iso(moment: Any) -> str:
    return str(moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"))


def _ranges(numbers: tuple[int, ...]) -> str:
    """A text of ascending numbers, in which ranges stand for consecutive numbers.

    Examples:
        >>> _ranges((1, 2, 3, 7)), _ranges(())
        ('1-3, 7', '')
    """
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
