"""Startup validation of a sink that is no table: checkpoint and pipeline must match."""

from __future__ import annotations

from collections.abc import Iterator

from helios.catalog.names import TableName
from helios.errors import InputError
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.run.startup import StartupValidator
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.output import OutputSink
from helios.spark.sinks.protocol import Sink


class OutputStartup(StartupValidator):
    """Validates the start of a pipeline whose sink keeps no record, so that it cannot be begun anew."""

    def _refuse_unresumable(self, table: JavaTable | None) -> None:
        output = self.plan.write.output
        assert output is not None
        raise InputError(
            f"--new-checkpoint and --full-refresh cannot serve {self.plan.pipeline}: {output.label()} keeps no record "
            "of what it holds, and cannot be emptied.",
            where=self.plan.origin,
            fix="give the pipeline another .named(...): it then begins at the start of its sources.",
        )

    def _targets(self, table: JavaTable | None) -> Iterator[tuple[TableName, JavaTable]]:
        """None: what the sink holds is not known."""
        yield from ()

    def _placed(self, context: SinkContext, planned: int) -> Sink:
        return OutputSink(context, anew=planned < 0)
