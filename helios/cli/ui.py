"""The command `ui`: serves the live page of pipelines that run in other processes, or are stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from helios.cli import options, output, status, ui_page
from helios.cli.options import ScriptName

if TYPE_CHECKING:
    from helios.table.snapshots import Table
    from helios.ui.watch import WatchedLake


@click.command()
@options.optional_script_argument
@options.set_option
@click.option(
    "--at", "address", default="", metavar="HOST:PORT", help="Where to serve the page; by default 127.0.0.1:4848."
)
@options.common
@options.json_option
def ui(script: ScriptName | None, address: str, values: dict[str, str], profile: str | None, as_json: bool) -> None:
    """Serve the live page of running or stopped pipelines.

    It shows the pipelines of SCRIPT, or all that have written into the declared catalogs. Their state is read from the
    metadata of their tables. Nothing is written, and no JVM is started. Ctrl-C and SIGTERM end the command.

    \b
    Example:
      helios ui pipeline.py
    """
    from helios.ui.address import address as parse_address

    parsed_address = parse_address(address)
    lake = (
        _watch_script(script, profile, values, parsed_address.token)
        if script
        else _watch_catalogs(profile, parsed_address.token)
    )
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        server = ui_page.start_server(lake, parsed_address)
        if as_json:
            output.print_json({"url": server.url})
        click.echo(f"page at {server.url}", err=as_json)
        while not ended.wait(0.5):
            pass
        server.stop()
    finally:
        lake.close()
    click.echo("stopped", err=as_json)


def _watch_script(script: ScriptName, profile: str | None, values: dict[str, str], token: str) -> WatchedLake:
    """The data of the live page for a script's pipelines. Pipelines with problems are reported and left out."""
    from helios.catalog.operations import forget_all
    from helios.plan import compile_pipelines
    from helios.plan.compile import NOT_FATAL
    from helios.ui.watch import WatchedLake

    loaded = options.load(script, profile, values)
    plans, problems = compile_pipelines(loaded.pipelines, loaded.context, lenient=True)
    for problem in problems:
        if not isinstance(problem, NOT_FATAL):
            output.say_error(output.paragraph(problem))
    view = partial(status.view_of, plans, loaded.context)
    catalogs = {catalog.name: catalog for plan in plans for catalog in plan.catalogs}

    def read_tables() -> Iterator[Table]:
        for catalog in catalogs.values():
            forget_all(catalog)
        return ui_page.tables_of(plans)

    return WatchedLake(
        read_tables,
        view,
        token=token,
        title=script.path,
        graph=ui_page.graph_json(ui_page.named_pipelines(plans), loaded.context),
        maintenance=ui_page.declared_maintenance(plans),
        targets={plan.pipeline: plan.write.table.text for plan in plans},
    )


def _watch_catalogs(profile: str | None, token: str) -> WatchedLake:
    """The data of the live page for all pipelines that have written into the configured catalogs."""
    from helios.ui.watch import WatchedLake

    catalogs = options.load_configuration(profile).catalogs
    read_tables, view = partial(ui_page.tables_in, catalogs), partial(status.view_of_catalogs, catalogs)
    return WatchedLake(read_tables, view, token=token, title=", ".join(catalogs))
