"""The command `status`: shows each pipeline's last commit, its lag, and the small files of its table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from helios.cli import options, output
from helios.cli.options import ScriptName
from helios.errors import HeliosError
from helios.model.values import counted

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog
    from helios.plan import Context, Plan
    from helios.table.snapshots import Table
    from helios.table.status import Status
    from helios.table.view import View


@click.command()
@options.optional_script_argument
@options.set_option
@click.option(
    "--all", "show_finished", is_flag=True, help="Also show finished pipelines, which have read their sources once."
)
@options.common
@options.json_option
@click.pass_context
def status(
    ctx: click.Context,
    *,
    script: ScriptName | None,
    values: dict[str, str],
    show_finished: bool,
    profile: str | None,
    as_json: bool,
) -> None:
    """Show how far each pipeline has come.

    It shows the pipelines of SCRIPT, or all pipelines that have written into the declared catalogs. For each pipeline
    it shows the last commit, how many snapshots of the sources wait and for how long, and the small files of the table
    (below half of the target file size). Notes name batches that have not passed their audit, and tables that were
    rolled back. No JVM is started.

    Without SCRIPT, a pipeline that has read its sources once, such as a repair, is left out if a streaming pipeline has
    written into the table since.

    \b
    Example:
      helios status
      helios status pipeline.py --json
    """
    hidden = 0
    if script is not None:
        statuses, failed = _statuses_of_script(script, profile, values)
    else:
        statuses, hidden, failed = _statuses_of_catalogs(profile, show_finished or as_json)
    if as_json:
        output.print_json([_as_json(status) for status in statuses])
    elif statuses:
        _show(statuses)
    elif not failed:
        click.echo("no pipeline has written anything yet.", err=True)
    if hidden and not as_json:
        hidden_text = "1 finished pipeline is" if hidden == 1 else f"{hidden:,} finished pipelines are"
        click.echo(f"{hidden_text} not shown: helios status --all.", err=True)
    for error in failed:
        output.report(error, output.Settings(debug=options.settings().debug))
    if failed:
        ctx.exit(max(error.exit_status for error in failed))


def _statuses_of_script(
    script: ScriptName, profile: str | None, values: dict[str, str]
) -> tuple[list[Status], list[HeliosError]]:
    from helios.plan import compile_pipelines
    from helios.plan.compile import NOT_FATAL

    loaded = options.load(script, profile, values)
    plans, problems = compile_pipelines(loaded.pipelines, loaded.context, lenient=True)
    failed = [problem for problem in problems if not isinstance(problem, NOT_FATAL)]
    view = view_of(plans, loaded.context)
    statuses: list[Status] = []
    for plan in plans:
        try:
            statuses += _statuses_of_plan(plan, view)
        except HeliosError as error:
            failed.append(error)
    return statuses, failed


def view_of(plans: Sequence[Plan], context: Context) -> View:
    """The tables, checkpoints and settings from which the status of a script's pipelines is read."""
    from helios.table.readers import warehouses
    from helios.table.refs import MAIN
    from helios.table.view import View

    catalogs = {**context.config.catalogs, **context.catalogs}
    catalogs |= {catalog.name: catalog for plan in plans for catalog in plan.catalogs}
    sinks = {plan.pipeline: plan.write.sink.iceberg for plan in plans}
    return View(
        load=_table_loader(catalogs),
        warehouses=warehouses(catalogs.values()),
        checkpoints={plan.pipeline: plan.checkpoint for plan in plans},
        file_sizes={name: sink.bytes_per_file for name, sink in sinks.items() if sink and sink.bytes_per_file},
        branches={name: plan.write.sink.branch_name or MAIN for plan in plans for name in plan.write.pipeline_names},
    )


def view_of_catalogs(catalogs: dict[str, Catalog]) -> View:
    """The tables and warehouses from which the status of all pipelines in the catalogs is read."""
    from helios.table.readers import warehouses
    from helios.table.view import View

    return View(load=_table_loader(catalogs), warehouses=warehouses(catalogs.values()))


def _statuses_of_plan(plan: Plan, view: View) -> list[Status]:
    from helios.table.status import Status, statuses

    if not plan.write.sink.target_kind.keeps_record:
        note = f"{plan.write.sink.label()} keeps no record of its batches"
        return [Status(pipeline=plan.pipeline, table=plan.write.table.text, notes=(note,))]
    names = [name for name in (plan.pipeline, plan.was) if name]
    tables = list(target_tables(plan))
    written = [status for table in tables for status in statuses(table, view) if status.pipeline in names]
    return written or [Status(pipeline=plan.pipeline, table=plan.write.table.text, notes=("has not run yet",))]


def target_tables(plan: Plan) -> Iterator[Table]:
    """The existing tables that a pipeline writes: its quarantine, and the target or targets of its sink."""
    quarantine = plan.write.quarantine
    if quarantine is not None and quarantine.catalog.exists(quarantine.name_in_catalog):
        yield quarantine.catalog.load(quarantine.name_in_catalog)
    catalog, target = plan.write.table.catalog, plan.write.table.name_in_catalog
    if not plan.write.sink.many_tables:
        if catalog.exists(target):
            yield catalog.load(target)
        return
    namespace = target.rpartition(".")[0]
    prefix = plan.write.table.prefix.removeprefix(f"{catalog.name}.")
    if namespace in catalog.namespaces():
        quarantine_name = (
            quarantine.name_in_catalog if quarantine is not None and quarantine.catalog == catalog else None
        )
        names = [name for name in catalog.tables(namespace) if name.startswith(prefix) and name != quarantine_name]
        yield from (catalog.load(name) for name in names)


def _statuses_of_catalogs(profile: str | None, show_finished: bool) -> tuple[list[Status], int, list[HeliosError]]:
    """The status of the pipelines in all configured catalogs.

    Returns:
        The statuses, the number of finished pipelines that are hidden, and the errors of catalogs that cannot be read.
    """
    from helios.table.status import statuses, unfinished

    catalogs = options.load_configuration(profile).catalogs
    view = view_of_catalogs(catalogs)
    shown: list[Status] = []
    failed: list[HeliosError] = []
    hidden = 0
    for catalog in catalogs.values():
        try:
            names = table_names(catalog)
        except HeliosError as error:
            failed.append(error)  # the other catalogs are still shown
            continue
        for name in names:
            try:
                of_table = statuses(catalog.load(name), view)
            except HeliosError as error:
                failed.append(error)  # the other tables are still shown
                continue
            kept = of_table if show_finished else unfinished(of_table)
            shown, hidden = shown + kept, hidden + len(of_table) - len(kept)
    return shown, hidden, failed


def table_names(catalog: Catalog) -> list[str]:
    """The names of all tables of a catalog, as "namespace.table"."""
    return [name for namespace in catalog.namespaces() for name in catalog.tables(namespace)]


def catalog_tables(catalog: Catalog) -> Iterable[Table]:
    return (catalog.load(name) for name in table_names(catalog))


def _table_loader(catalogs: dict[str, Catalog]) -> Callable[[str], Table | None]:
    """Returns a function that loads a table by its full name. It loads each table only once."""

    @cache
    def load(name: str) -> Table | None:
        catalog, _, name_in_catalog = name.partition(".")
        if catalog not in catalogs:
            return None
        try:
            return catalogs[catalog].load(name_in_catalog)
        except HeliosError:
            return None  # a missing or unreachable table, or a path with a dot: the lag is unknown

    return load


# output


COLUMNS = ("pipeline", "table", "batch", "committed", "rows", "behind", "small files", "notes")


def _show(statuses: Sequence[Status]) -> None:
    """Prints the statuses without empty columns. On a terminal, which is narrow, the notes follow the table."""
    notes_follow = sys.stdout.isatty()
    rows = [_row(status) for status in statuses]
    columns = list(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    shown_columns = [
        (name, cells)
        for name, cells in columns
        if any(map(_has_value, cells)) and not (notes_follow and name == "notes")
    ]
    lines = list(zip(*(cells for _, cells in shown_columns), strict=True))
    output.print_table([name for name, _ in shown_columns], lines, numbers=("batch", "rows"))
    for status in statuses if notes_follow else ():
        for note in status.notes:
            output.print_wrapped(f"{status.pipeline}: {note}.")


def _has_value(cell: object) -> bool:
    return cell not in (None, "")


def _row(status: Status) -> tuple[object, ...]:
    from helios.table.quarantine import shown_time

    return (
        status.pipeline,
        status.table if status.table != status.pipeline else "",
        status.batch,
        shown_time(status.committed) if status.committed is not None else "",
        f"{status.rows:,}" if status.rows is not None else "",
        _behind(status),
        f"{status.small:,} of {status.files:,}" if status.batch is not None else "",
        "; ".join(status.notes),
    )


def _behind(status: Status) -> str:
    """A text about the data that waits for a pipeline, and for how long.

    Examples:
        >>> from helios.table.status import Status
        >>> _behind(Status(pipeline="p", table="t", batch=1, behind_files=2, behind_bytes=3 << 20, seconds=90.0))
        '2 files (3 MB), 90 s'
    """
    if status.behind is None and status.behind_files is None and status.behind_records is None:
        return "" if status.batch is None else "unknown"
    from helios.plan.text import show_bytes

    waiting = [counted(status.behind, "snapshot")] if status.behind else []
    if status.behind_files:
        files = counted(status.behind_files, "file")
        waiting.append(f"{files} ({show_bytes(status.behind_bytes or 0)})")
    if status.behind_records:
        waiting.append(counted(status.behind_records, "record"))
    return f"{', '.join(waiting)}, {_age(status.seconds or 0)}" if waiting else "no"


def _age(seconds: float) -> str:
    """A duration in the largest unit of which there are at least two.

    Examples:
        >>> _age(35.2), _age(150), _age(90_000)
        ('35 s', '2 min', '25 h')
    """
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def _as_json(status: Status) -> dict[str, Any]:
    committed = status.committed.isoformat(timespec="milliseconds").replace("+00:00", "Z") if status.committed else None
    return {**asdict(status), "committed": committed, "notes": list(status.notes)}
