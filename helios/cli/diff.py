"""The command `diff`: the difference between two states of a table, or between two tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from helios.cli import options, output
from helios.cli.maintain import parse_point
from helios.cli.session import spark_session
from helios.cli.tables import open_table, table_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from helios.catalog.names import TableName
    from helios.config import Config
    from helios.table.compared_columns import ColumnChange
    from helios.table.states import RowDiff, State

DIFFERS = 2
"""The exit status with `--exit-code` if the states differ."""
LONGEST_CELL = 40
"""The maximum number of characters of a value in the printed table; a longer value is cut."""


@click.command()
@table_argument
@click.argument("other", metavar="[OTHER]", required=False)
@click.option(
    "--from",
    "before",
    metavar="STATE",
    help="A snapshot id, a time, a branch or a tag; by default the commit before --to; main with OTHER, or if "
    "--to is another branch than main.",
)
@click.option(
    "--to", "after", metavar="STATE", help="The second state, in the same forms; by default the current state."
)
@click.option(
    "--key", "keys", multiple=True, metavar="COLUMN", help="Pair rows by this column; repeat it for each key column."
)
@click.option("--rows", type=click.IntRange(min=0), default=10, show_default=True, help="Show N rows of each kind.")
@click.option("--exit-code", is_flag=True, help="Exit with 2 if the states differ.")
@options.common
@options.json_option
@click.pass_context
def diff(
    ctx: click.Context,
    name: str,
    other: str | None,
    *,
    before: str | None,
    after: str | None,
    keys: tuple[str, ...],
    rows: int,
    exit_code: bool,
    profile: str | None,
    as_json: bool,
) -> None:
    """Show how two states of TABLE differ: columns and rows.

    By default it shows the last commit of TABLE. With OTHER, TABLE is compared with that
    table. Files that both states have are not read. Spark starts only if files differ.

    \b
    Example:
      helios diff shop.orders --from end-of-2026 --key id
    """
    from helios.table import compared_columns, states

    config, old_name, table = open_table(name, profile)
    _, new_name, new_table = open_table(other, profile) if other is not None else (config, old_name, table)
    new = states.state_at(new_table, parse_point(after) if after is not None else None)
    if before is not None or other is not None:
        old = states.state_at(table, parse_point(before) if before is not None else None)
    elif new.is_branch_head:  # a branch is compared with the table's current state
        old = states.state_at(table, None)
    else:
        old = states.state_before(new)
    columns, row_keys = compared_columns.column_changes(old, new), states.row_key_columns(old, new, keys)
    row_diff = states.RowDiff()
    if not (old.same_table(new) and states.same_files(old, new)):
        row_diff = _compare_rows(config, (old_name, old), (new_name, new), row_keys, rows)
    if as_json:
        output.print_json(_fields(old, new, columns, row_keys, row_diff))
    else:
        _print(old, new, columns, row_keys, row_diff)
    if exit_code and (columns or row_diff.differs):
        ctx.exit(DIFFERS)


def _compare_rows(
    config: Config, old: tuple[TableName, State], new: tuple[TableName, State], keys: Sequence[str], samples: int
) -> RowDiff:
    from helios.table import compared_columns

    old_table, before = old
    new_table, after = new
    fields = compared_columns.fields_to_read(before, after)
    with spark_session(config, old_table, new_table) as spark:
        from helios.spark.diff.rows import Comparison, Side, compare_rows

        comparison = Comparison(columns=fields, keys=keys, same_table=before.same_table(after), samples=samples)
        return compare_rows(spark, Side(old_table, before.snapshot), Side(new_table, after.snapshot), comparison)


def _fields(
    old: State, new: State, columns: Sequence[ColumnChange], keys: Sequence[str], rows: RowDiff
) -> dict[str, Any]:
    from helios.table.compared_columns import compared_columns

    return {
        **{
            side: {"table": state.table.name, "state": state.text, "snapshot": state.snapshot}
            for side, state in (("from", old), ("to", new))
        },
        "columns": [asdict(change) for change in columns],
        "compared": compared_columns(old, new),
        "keys": list(keys),
        "rows": {"added": rows.added, "removed": rows.removed, "changed": rows.changed},
        "added": list(rows.sample_added),
        "removed": list(rows.sample_removed),
        "changed": [{"before": before, "after": after} for before, after in rows.sample_changed],
        "files_read": rows.files,
    }


def _print(old: State, new: State, columns: Sequence[ColumnChange], keys: Sequence[str], rows: RowDiff) -> None:
    from helios.table.compared_columns import incomparable_columns

    if old.same_table(new):
        click.echo(f"{old.table.name}: {old.text} -> {new.text}")
    else:
        click.echo(f"{old.table.name}, {old.text} -> {new.table.name}, {new.text}")
    for change in columns:
        click.echo(f"column {change.text()}")
    excluded = incomparable_columns(old, new) if not old.same_table(new) else []
    if excluded:
        click.echo(f"rows are compared without {', '.join(excluded)}: the types differ.")
    by_keys = f", by {', '.join(keys)}" if keys else ""
    counts = [(rows.added, "added"), (rows.removed, "removed"), *([(rows.changed, "changed")] if keys else [])]
    if not rows.differs:
        click.echo(f"rows: no difference{by_keys}.")
        return
    click.echo(f"rows: {', '.join(f'{count:,} {kind}' for count, kind in counts)}{by_keys}.")
    lines = [["+", *map(_cell, row.values())] for row in rows.sample_added]
    lines += [["-", *map(_cell, row.values())] for row in rows.sample_removed]
    lines += [["~", *(_change(before[name], after[name]) for name in after)] for before, after in rows.sample_changed]
    if lines:
        samples = [*rows.sample_added, *rows.sample_removed, *(after for _, after in rows.sample_changed)]
        click.echo()
        output.print_table(("", *samples[0]), lines)
    more = rows.added + rows.removed + rows.changed - len(lines)
    if more and lines:
        click.echo(f"\n{more:,} more; --rows N shows N of each kind.")


def _change(before: object, after: object) -> str:
    return _cell(after) if output.is_same(before, after) else f"{_cell(before)} -> {_cell(after)}"


def _cell(value: object) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 3]}..."
