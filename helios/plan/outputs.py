"""The plan of a sink that is not a table, and its problems."""

from __future__ import annotations

from collections.abc import Iterator

from helios.catalog.names import OutputName
from helios.catalog.spec import Catalog
from helios.errors import DeclarationError, HeliosError
from helios.model.flow import Pipeline, flows
from helios.model.output import Output
from helios.plan.nodes import WritePlan
from helios.plan.typing.late import quarantining_watermarks
from helios.steps.expect import Expect

TEMPORARY_CATALOG = "helios_output"
"""The name of the in-memory catalog of a sink whose progress is lost when the run ends."""


def plan_output(sink: Output, home: Catalog) -> WritePlan:
    """The write plan of a sink that is not a table: rows are appended.

    `home` is the catalog whose warehouse keeps the progress, if the sink outlives the process.
    """
    catalog = home if sink.outlives_process else Catalog.memory(TEMPORARY_CATALOG)
    return WritePlan(
        table=OutputName(catalog, (sink.kind,), sink.name),
        sink=sink,
        exists=False,
        uuid=None,
        format_version=0,
        partitioning=None,
    )


def output_problems(pipeline: Pipeline, sink: Output) -> Iterator[HeliosError]:
    """Yields the problems of a pipeline whose sink is not a table.

    The pipeline may need what only tables have (a record of batches, changes, a quarantine), or the sink has wrong
    settings.
    """
    if sink.demands_exactly_once:
        yield DeclarationError(
            f"{sink.label()} cannot keep .exactly_once(): it does not record which batches it holds.",
            where=sink.origin,
            fix="write an Iceberg table, or leave .exactly_once() out: rows are delivered at least once.",
        )
    yield from sink.problems()
    all_flows = list(flows(pipeline.stream))
    for changes in [flow.source for flow in all_flows if flow.source.carries_order]:
        yield DeclarationError(
            f"{changes.label()} are changes, with deletes and updates, which {sink.label()} cannot apply.",
            where=sink.origin,
            fix="upsert them into a table and follow that table, or read the records themselves: Kafka.source(...).",
        )
    steps = [step for flow in all_flows for step in flow.steps]
    rejecting = [
        (step.text(), step.origin) for step in steps if isinstance(step, Expect) and step.on_fail == "quarantine"
    ]
    rejecting += [(step.text(), step.origin) for step in quarantining_watermarks(pipeline.stream)]
    rejecting += [(call, flow.source.origin) for flow in all_flows for call in flow.source.quarantining_calls]
    for called, origin in rejecting:
        yield DeclarationError(
            f"{called}: {sink.label()} has no quarantine for rejected rows.",
            where=origin,
            fix='choose another value than "quarantine", or write an Iceberg table with .quarantine("ns.rejected").',
        )
