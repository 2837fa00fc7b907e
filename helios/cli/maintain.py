"""The commands that maintain a table: `expire`, `rollback`, `tag`, `branch`, `compact` and `orphans`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from helios.cli import options, output
from helios.cli.session import spark_session
from helios.cli.tables import open_table, table_argument
from helios.errors import EngineNeeded, RunError
from helios.model.values import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from helios.catalog.names import TableName
    from helios.config import Config
    from helios.model.values import Point
    from helios.table.maintenance import Expiry
    from helios.table.refs import RefChange
    from helios.table.snapshots import Snapshot, Table

EXPIRE_AGE = "7d"
ORPHAN_AGE = "3d"
DELETED_KINDS = ("data file", "delete file", "manifest", "manifest list")

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
snapshot_option = click.option(
    "--snapshot", metavar="ID", help="A snapshot id, a time, a tag or a branch; by default the current snapshot."
)


@click.command()
@table_argument
@click.option(
    "--older-than", metavar="AGE", help=f"An age (7d) or a time; by default {EXPIRE_AGE}, unless --retain-last is set."
)
@click.option("--retain-last", type=int, metavar="N", help="Always keep the newest N snapshots of each branch.")
@click.option(
    "--reader",
    "readers",
    multiple=True,
    metavar="PATH",
    help="The checkpoint of another reader; may be given several times.",
)
@dry_run_option
@options.common
@options.json_option
def expire(
    name: str,
    *,
    older_than: str | None,
    retain_last: int | None,
    readers: tuple[str, ...],
    dry_run: bool,
    profile: str | None,
    as_json: bool,
) -> None:
    """Expire old snapshots of TABLE.

    Deletes the files that only these snapshots use. Snapshots that a known reader still needs are kept. Known readers
    are the pipelines of the catalogs in helios.toml, and each --reader.

    \b
    Example:
      helios expire shop.orders --older-than 7d --dry-run
    """
    from helios.table.maintenance import expiry_plan
    from helios.table.readers import warehouses

    config, table_name, table = open_table(name, profile)
    age = older_than or (None if retain_last is not None else EXPIRE_AGE)
    plan = expiry_plan(table, age, retain_last, readers, warehouses(config.catalogs.values()))
    counts: dict[str, Any] = {}
    if plan.snapshots and not dry_run:
        with spark_session(config, table_name) as spark:
            from helios.spark.maintenance import maintain

            counts = asdict(maintain.expire(spark, table_name, plan))
    if as_json:
        output.print_json({"table": table.name, "dry_run": dry_run, **_as_json(plan), **counts})
        return
    _print_expiry(table.name, plan, counts, dry_run=dry_run)


def _as_json(plan: Expiry) -> dict[str, Any]:
    return {
        "snapshots": [snapshot.id for snapshot in plan.snapshots],
        "held": [{**asdict(held.reader), "keeps": list(held.snapshots)} for held in plan.held],
        "lost": [asdict(reader) for reader in plan.lost],
    }


def _print_expiry(table: str, plan: Expiry, counts: dict[str, Any], *, dry_run: bool) -> None:
    if not plan.snapshots:
        click.echo(f"{table}: nothing to expire.")
    elif dry_run:
        output.print_table(
            ("snapshot", "committed", "operation"), [(s.id, _time(s.timestamp), s.operation) for s in plan.snapshots]
        )
        click.echo(f"{table}: {counted(len(plan.snapshots), 'snapshot')} would expire.")
    else:
        deleted = ", ".join(counted(counts[f"{kind.replace(' ', '_')}s"], kind) for kind in DELETED_KINDS)
        click.echo(f"{table}: expired {counted(len(plan.snapshots), 'snapshot')}; deleted {deleted}.")
    for held in plan.held:
        click.echo(
            f"kept {counted(len(held.snapshots), 'snapshot')} for {held.reader.name}, which {held.reader.progress}."
        )
    for reader in plan.lost:
        output.say(
            "note",
            f"{reader.name} {reader.progress}, which is no longer in the table's history: no snapshot is kept for it.",
            "yellow",
        )


@click.command()
@table_argument
@click.argument("to", metavar="TO")
@options.common
@options.json_option
def rollback(name: str, to: str, profile: str | None, as_json: bool) -> None:
    """Set TABLE back to the snapshot TO: an id, a time, or a tag.

    No snapshot is deleted: a later rollback can return to a newer snapshot.

    \b
    Example:
      helios rollback shop.orders 2026-01-01T00:00:00Z
    """
    from helios.table import refs

    config, table_name, table = open_table(name, profile)
    change, result = refs.rollback(table, parse_point(to))
    if change is not None:
        _apply_change(config, table_name, table, change)
    if as_json:
        output.print_json(
            {
                "table": table.name,
                "snapshot": result.snapshot.id,
                "former": result.former.id,
                "changed": change is not None,
                "pipelines": list(result.pipelines),
            }
        )
        return
    target = f"snapshot {result.snapshot.id} of {_time(result.snapshot.timestamp)}"
    click.echo(f"{table.name}: main is at {target}{f', and was at {result.former.id}' if change else ' already'}.")
    undo = f"Take this back with `helios rollback {table.name} {result.former.id}`, or " if change else ""
    for pipeline in result.pipelines:
        output.say("note", _rollback_note(pipeline, table, undo), "yellow")


def _rollback_note(pipeline: str, table: Table, undo: str) -> str:
    """The note about what a rollback means for a pipeline, its backfill or its replays. `undo` begins the fix."""
    from helios.table.quarantine import is_quarantine
    from helios.table.refs import BACKFILL, REPLAY

    resume = "with `helios run --new-checkpoint`. A pipeline that has read this table past the snapshot stops too."
    if pipeline.endswith(BACKFILL):
        return (
            f"{pipeline.removesuffix(BACKFILL)} was backfilled after this snapshot: the rows are as they were before "
            f"the backfill. {undo}start `helios backfill` again."
        )
    replayed = pipeline.removesuffix(REPLAY)
    if replayed == pipeline:
        return (
            f"{pipeline} has written batches that main no longer holds: its next batch stops with an error. {undo}"
            f"continue without those rows {resume} Rows that these batches quarantined then stay in the quarantine, "
            f"under the name '{pipeline} (rolled back)', and are not replayed."
        )
    if is_quarantine(table):
        return (
            f"{replayed} has replayed rows that this quarantine holds again: its next batch and its next replay stop "
            f"with an error. {undo}give .quarantine() a table of another name."
        )
    return (
        f"{replayed} has replayed rows that main no longer holds: its next batch and its next replay stop with an "
        f"error. {undo}continue without them {resume}"
    )


def _ref_command(kind: str, help_text: str, *own_options: Callable[[Any], Any]) -> click.Command:
    """Builds the command `tag` or `branch`. The two differ in their texts and in `own_options`."""

    @click.command(kind, help=help_text)
    @table_argument
    @click.argument("ref", metavar="[NAME]", required=False)
    @snapshot_option
    @click.option("--delete", is_flag=True, help=f"Remove the {kind}; its snapshot stays until it expires.")
    @options.common
    @options.json_option
    def command(
        name: str,
        *,
        ref: str | None,
        snapshot: str | None,
        delete: bool,
        publish: bool = False,
        profile: str | None,
        as_json: bool,
    ) -> None:
        from helios.table import refs

        if publish and (snapshot is not None or ref is None or delete):
            raise click.UsageError("--publish needs a NAME, and excludes --snapshot and --delete.")
        if delete and (snapshot is not None or ref is None):
            raise click.UsageError("--delete needs a NAME, and excludes --snapshot.")
        config, table_name, table = open_table(name, profile)
        if ref is None:
            _list_refs(kind, table, as_json)
            return
        if publish:
            from helios.cli.publish import publish as publish_branch

            publish_branch(config, table_name, table, ref, as_json=as_json)
            return
        point = parse_point(snapshot) if snapshot is not None else None
        change = (
            refs.removal(table, f"remove_{kind}", ref) if delete else refs.creation(table, f"create_{kind}", ref, point)
        )
        target = _apply_change(config, table_name, table, change)
        if as_json:
            output.print_json({"table": table.name, kind: ref, "snapshot": target.id, "deleted": delete})
            return
        location = f"snapshot {target.id} of {_time(target.timestamp)}"
        click.echo(f"{table.name}: {kind} {ref} {'removed; it was' if delete else 'is'} at {location}.")

    for option in own_options:
        command = option(command)
    return command


tag = _ref_command(
    "tag",
    "Name a snapshot of TABLE.\n\nA snapshot with a tag does not expire. Without a NAME, list the tags.\n\n"
    "\b\nExample:\n  helios tag shop.orders end-of-2026",
)
branch = _ref_command(
    "branch",
    "Create or publish a branch of TABLE.\n\nWithout a NAME, list the branches.\n\n"
    "\b\nExample:\n  helios branch shop.orders audit --snapshot end-of-2026\n"
    "  helios branch shop.orders staged --publish",
    click.option(
        "--publish", is_flag=True, help="Move main to the branch, if main has not moved since the branch began."
    ),
)


def _list_refs(kind: str, table: Table, as_json: bool) -> None:
    refs = table.tags() if kind == "tag" else table.branches()
    if as_json:
        output.print_json([{kind: name, "snapshot": snapshot} for name, snapshot in refs.items()])
    elif refs:
        output.print_table((kind, "snapshot"), list(refs.items()))
    else:
        click.echo(f"table {table.name} has no {'tags' if kind == 'tag' else 'branches'}.", err=True)


@click.command()
@table_argument
@click.option("--target-size", metavar="SIZE", help="The target size of files, such as 128MB; by default the table's.")
@click.option("--branch", metavar="NAME", help="Compact a branch instead of main.")
@options.common
@options.json_option
@click.pass_context
def compact(
    ctx: click.Context, name: str, *, target_size: str | None, branch: str | None, profile: str | None, as_json: bool
) -> None:
    """Rewrite the small files of TABLE.

    If another writer commits meanwhile, the compaction yields to it.

    \b
    Example:
      helios compact shop.orders --target-size 256MB
    """
    from helios.model.values import size
    from helios.plan.text import show_bytes

    target_bytes = size(target_size, "--target-size") if target_size is not None else 0
    config, table_name, _ = open_table(name, profile)
    with spark_session(config, table_name) as spark:
        from helios.spark.maintenance.compact import compact as run_compaction

        result = run_compaction(spark, table_name, target_bytes, branch=branch)
    if as_json:
        output.print_json(asdict(result))
    elif result.rewritten or result.deletes or result.manifests:
        more = "".join(
            f", {counted(number, kind)} rewritten"
            for number, kind in ((result.deletes, "delete file"), (result.manifests, "manifest"))
            if number
        )
        click.echo(
            f"{result.table}: {counted(result.rewritten, 'file')} ({show_bytes(result.read)}) became {result.added}"
            f"{more}. The table has {counted(result.files, 'file')}, {show_bytes(result.bytes)}; "
            f"the target file size is {show_bytes(result.target)}."
        )
    elif result.gave_up is None:
        click.echo(f"{result.table}: nothing to compact: {counted(result.files, 'file')}, {show_bytes(result.bytes)}.")
    if result.gave_up is not None:
        if not as_json:
            error = RunError(f"{result.table}: {result.gave_up}", fix="compact when the table is quieter.")
            output.report(error, options.settings())
        ctx.exit(RunError.exit_status)


@click.command()
@table_argument
@click.option(
    "--older-than", metavar="AGE", default=ORPHAN_AGE, show_default=True, help="The minimum age of a file, at least 1d."
)
@dry_run_option
@options.common
@options.json_option
def orphans(name: str, older_than: str, dry_run: bool, profile: str | None, as_json: bool) -> None:
    """Delete the files in TABLE's folder that no snapshot uses.

    Failed commits leave these files there.

    \b
    Example:
      helios orphans shop.orders --dry-run
    """
    from helios.model.maintenance import orphan_age

    age = orphan_age(older_than, "--older-than")
    config, table_name, _ = open_table(name, profile)
    with spark_session(config, table_name) as spark:
        from helios.spark.maintenance import maintain

        result = maintain.remove_orphans(spark, table_name, age, dry_run=dry_run)
    if as_json:
        output.print_json(asdict(result))
        return
    for file in result.files:
        click.echo(file)
    click.echo(f"{result.table}: {counted(len(result.files), 'orphan file')}{'' if dry_run else ' deleted'}.", err=True)


# shared


def parse_point(text: str) -> Point:
    """Parses a point in a table's history: digits are a snapshot id, any other text is a time, a tag or a branch."""
    return int(text) if text.isdigit() else text


def _apply_change(config: Config, table_name: TableName, table: Table, change: RefChange) -> Snapshot:
    """Changes a branch or tag through PyIceberg, or with Spark if PyIceberg cannot write the table's metadata."""
    from helios.table import refs

    try:
        return refs.apply(table, change)
    except EngineNeeded:
        with spark_session(config, table_name) as spark:
            from helios.spark.maintenance import maintain

            maintain.change_ref(spark, table_name, change)
        return table.snapshot(change.snapshot)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
