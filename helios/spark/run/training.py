"""`python -m helios.spark.run.training ARCHIVE` makes the class archive, with which later JVMs start faster.

It runs small pipelines, and the JVM archives the classes that they load. The pipelines use a batch, a followed table, a
join, a filter and an aggregate.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import SparkContext

from helios.catalog.spec import Catalog
from helios.config import load
from helios.environment.class_archive import QUIET
from helios.iceberg import Iceberg
from helios.model.partition import bucket
from helios.plan import Context, compile_pipelines
from helios.sources.memory.declare import Memory
from helios.spark.run.run import PipelineRun
from helios.spark.session import session
from helios.steps.aggregate import aggregate
from helios.steps.join import join
from helios.steps.where import where


def main(archive: str) -> None:
    """Runs the pipelines, ends the JVM and waits until it has written its archive."""
    folder = Path.cwd()
    catalog = Catalog.local(path=folder / "catalog")
    context = Context(config=load(folder), catalogs={"local": catalog})
    rows = Memory.source([{"id": i, "name": f"name {i}"} for i in range(100)])
    table = Iceberg.source("training.rows")
    pipelines = (
        rows >> Iceberg.sink("training.rows").partition_by(bucket(2, "id")),
        table.incremental() >> where("id > 1") >> join(table, on="id", how="semi") >> Iceberg.sink("training.copy"),
        table >> aggregate("name", n="count(*)") >> Iceberg.sink("training.counts"),
    )
    spark = None
    for pipeline in pipelines:
        (plan,), _ = compile_pipelines([pipeline], context)
        spark = spark or session.start(
            context.config, plan.components, java_options=f'"-XX:ArchiveClassesAtExit={archive}" {QUIET}'
        )
        session.declare_catalogs(spark, [plan])
        PipelineRun(plan, spark, once=True).start().await_termination()
    gateway = SparkContext._gateway
    assert spark is not None
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main(sys.argv[1])
