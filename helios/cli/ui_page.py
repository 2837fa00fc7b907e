"""Serves the live page of a command, and collects the graph and the tables that the page shows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from helios.cli import graph, status
from helios.cli.options import Loaded
from helios.errors import EnvironmentProblem

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog
    from helios.model.flow import Pipeline
    from helios.plan import Compiled, Context, Plan
    from helios.spark.run.events import Event
    from helios.spark.run.run import PipelineRun
    from helios.table.snapshots import Table
    from helios.ui.address import Address
    from helios.ui.facts import FactSource, PipelineFacts
    from helios.ui.live import LiveRun
    from helios.ui.server import Server

DEFAULT_ADDRESS = ""
"""The value of `--ui` without an address. The page then has the default address."""
MIN_SECONDS_BETWEEN_READS = 5.0
"""The minimum seconds between two reads of a run's tables."""
MAX_READ_SHARE = 0.05
"""The maximum share of the run's time that is spent on reading the tables."""

option = click.option(
    "--ui",
    is_flag=False,
    flag_value=DEFAULT_ADDRESS,
    metavar="[HOST:PORT]",
    help="Serve the live page while the run lasts; by default on 127.0.0.1:4848.",
)


class Page:
    """The live page of a run."""

    def __init__(self, live_run: LiveRun, server: Server, loaded: Loaded) -> None:
        self._live_run, self._server, self._loaded = live_run, server, loaded

    def tee(self, emit: Callable[[Event], None]) -> Callable[[Event], None]:
        """A function that passes each event to the page and to `emit`."""

        def emit_to_both(event: Event) -> None:
            self._live_run.emit(event)
            emit(event)

        return emit_to_both

    def open(
        self, plans: Sequence[Plan], refused: Sequence[Compiled], stop: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        """Shows the plans when the run begins.

        Args:
            refused: The pipelines that have problems, and so do not run.
            stop: Asks the run to end after the running batches.
            say: Prints a line for the user.
        """
        from helios.ui.lake import LakeReader

        def stop_on_request() -> None:
            say("stopping after the running batch, as requested on the page")
            stop()

        context = self._loaded.context
        lake = LakeReader(
            partial(tables_of, plans),
            partial(status.view_of, plans, context),
            min_seconds=MIN_SECONDS_BETWEEN_READS,
            max_share=MAX_READ_SHARE,
        )
        graph_values = graph_json(
            [*named_pipelines(plans), *((result.name, result.pipeline) for result in refused)], context
        )
        self._live_run.mark_opened(
            graph_values,
            lake,
            stop_on_request,
            maintenance=declared_maintenance(plans),
            refused=[_refused_facts(result) for result in refused],
        )
        say(f"page at {self._server.url}")

    def close(self) -> None:
        """Shows that the run has ended, and stops the server."""
        self._live_run.mark_ended()
        self._server.stop()


def serve_run(ctx: click.Context, address: str | None, runs: Collection[PipelineRun], loaded: Loaded) -> Page | None:
    """Serves the live page until the command ends.

    Args:
        address: The value of `--ui`; None without `--ui`.
        runs: The runs that the page shows. The command may add runs later.

    Returns:
        The page; None without `--ui`.
    """
    if address is None:
        return None
    parsed_address = _parse_address(address)
    from helios.ui.live import LiveRun

    live_run = LiveRun(runs, token=parsed_address.token, title=str(loaded.script.path))
    try:
        page = Page(live_run, start_server(live_run, parsed_address), loaded)
    except BaseException:
        live_run.mark_ended()
        raise
    ctx.call_on_close(page.close)
    return page


def _parse_address(text: str) -> Address:
    from helios.ui.address import address

    return address(text)


def start_server(facts: FactSource, address: Address) -> Server:
    """Starts the server of the live page.

    Raises:
        EnvironmentProblem: The extra `helios-iceberg[ui]` is not installed.
        RunError: The address is in use.
    """
    try:
        from helios.ui.server import Server
    except ImportError as error:
        raise EnvironmentProblem(
            f"the live page is served with {error.name}, which is not installed.",
            fix="pip install 'helios-iceberg[ui]'.",
        ) from error
    return Server(facts, address)


def _refused_facts(result: Compiled) -> PipelineFacts:
    from helios.ui.facts import PipelineFacts
    from helios.ui.live import problem_of

    problem = problem_of(result.fatal_problems[0])
    return PipelineFacts(name=result.name, target=result.pipeline.sink.label(), state="failed", problem=problem)


def named_pipelines(plans: Sequence[Plan]) -> list[tuple[str, Pipeline]]:
    """The name and the declared pipeline of each plan."""
    return [(plan.pipeline, plan.declared) for plan in plans]


def graph_json(pipelines: Sequence[tuple[str, Pipeline]], context: Context) -> dict[str, Any]:
    """The graph of named pipelines as JSON values. Each node has the names of its pipelines."""
    drawing = graph.draw([pipeline for _, pipeline in pipelines], context)
    names = [name for name, _ in pipelines]
    nodes = [{**asdict(node), "pipelines": [names[index] for index in node.pipelines]} for node in drawing.nodes]
    return {"nodes": nodes, "edges": [asdict(edge) for edge in drawing.edges]}


def declared_maintenance(plans: Sequence[Plan]) -> dict[str, str]:
    """For each pipeline that declares maintenance, the maintenance as text."""
    from helios.plan.text import maintenance_text

    sinks = ((plan.pipeline, plan.write.sink.iceberg) for plan in plans)
    return {name: maintenance_text(s.maintenance) for name, s in sinks if s is not None and s.maintenance}


def tables_of(plans: Sequence[Plan]) -> Iterator[Table]:
    """The targets and the quarantines of pipelines, each once."""
    seen: set[str] = set()
    for plan in plans:
        for table in status.target_tables(plan) if plan.write.sink.target_kind.keeps_record else ():
            if table.name not in seen:
                seen.add(table.name)
                yield table


def tables_in(catalogs: dict[str, Catalog]) -> Iterator[Table]:
    """The current tables of the catalogs."""
    from helios.catalog.operations import forget_all

    for catalog in catalogs.values():
        forget_all(catalog)
        yield from status.catalog_tables(catalog)
