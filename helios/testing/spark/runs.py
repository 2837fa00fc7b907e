"""Runs the pipelines of a test in a session of their own, kills their driver, and repeats batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from helios.catalog.spec import Catalog
from helios.config import Config
from helios.errors import EnvironmentProblem, HeliosError, RunError
from helios.plan.nodes import Plan
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.spark import JavaSessionState
from helios.spark.run import batches
from helios.spark.run.events import Event
from helios.spark.run.job import Job
from helios.spark.run.run import PipelineRun
from helios.spark.session import session
from helios.spark.session.launch import DEFAULTS, EXTENSIONS, STATE_STORE_CONF

SMALL = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}
"""Spark settings for few rows: one shuffle partition, and no adaptive plans."""

AT_START = {"spark.sql.codegen.wholeStage": "false", **SMALL}
"""Settings of the Spark that a test starts: for few rows, generated code is not worth its compilation."""

RUN_SECONDS = 300.0
"""The time limit of a run."""


class Killed(Exception):
    """Simulates the death of the driver at the moment that the test chose."""


def new_session(config: Config, components: Sequence[str]) -> SparkSession:
    """A new session in the JVM of this process; the JVM is started if there is none.

    Raises:
        EnvironmentProblem: The running session has no Iceberg extensions, or Spark does not start.
    """
    if SparkContext._active_spark_context is None:
        conf = {**AT_START, **config.spark_conf}
        small = replace(config, master="local[2]", spark_conf=conf)
        session.start(small, components)
    base = SparkSession.builder.getOrCreate()
    if EXTENSIONS not in (base.conf.get("spark.sql.extensions", "") or ""):
        raise EnvironmentProblem(
            "the Spark session has no Iceberg extensions, which can only be set before it starts.",
            fix=f'build it with .config("spark.sql.extensions", "{EXTENSIONS}") and Iceberg\'s runtime jar, or let '
            "helios.testing start it.",
        )
    spark = base.newSession()
    for key in ("spark.sql.session.timeZone", "spark.sql.variable.substitute"):
        spark.conf.set(key, DEFAULTS[key])
    for key, value in {**STATE_STORE_CONF, **SMALL}.items():
        spark.conf.set(key, value)
    return spark


def declare(spark: SparkSession, catalog: Catalog) -> None:
    """Declares a catalog of the lake in a session."""
    from helios.catalog.connections import prepare

    prepare(catalog)
    session.declare_catalog(spark, catalog)


def run(plan: Plan, spark: SparkSession, emit: Callable[[Event], None], *, again: bool = False) -> PipelineRun:
    """Runs a pipeline until it has drained its sources; raises a `HeliosError` if the run fails."""
    session.declare_catalogs(spark, [plan])
    handle = PipelineRun(plan, spark, once=True, again=again, emit=emit).start()
    if not handle.await_termination(RUN_SECONDS):
        handle.stop()
        raise RunError(f"{plan.pipeline} has not ended after {RUN_SECONDS:.0f} seconds.")
    return handle


def run_killed(plan: Plan, spark: SparkSession, emit: Callable[[Event], None], moment: str, again: bool) -> bool:
    """Runs a pipeline and kills its driver at a moment. Returns False if the run ends without reaching the moment.

    Raises:
        HeliosError: The run failed for another reason.
    """
    with dying(moment) as died:
        try:
            run(plan, spark, emit, again=again)
        except HeliosError:
            if not died:
                raise
    return bool(died)


MOMENTS: Mapping[str, tuple[object, str, bool]] = {
    "after_rejects": (batches, "_with_confirmation", False),
    "before_commit": (Job, "confirm", True),
    "after_commit": (batches, "execute", True),
}
"""Each moment at which a driver dies: the owner and name of a function, and whether the driver dies after its call.

`_with_confirmation` is called once the rejected rows of a batch are written, `confirm` once the files of a batch are
written. When `execute` returns, the target has the batch, and Spark's log of commits does not have it yet.
"""


@contextmanager
def dying(moment: str) -> Iterator[list[str]]:
    """Makes the driver die once at a moment in the block. The yielded list is empty until the driver dies."""
    owner, name, after_call = MOMENTS[moment]
    real = getattr(owner, name)
    died: list[str] = []

    @wraps(real)
    def killing(*args: object, **kwargs: object) -> object:
        result = real(*args, **kwargs) if after_call or died else None
        # `execute` returns None if it has committed nothing.
        if died or (moment == "after_commit" and result is None):
            return result
        died.append(moment)
        raise Killed(f"the test killed the driver ({moment})")

    setattr(owner, name, killing)
    try:
        yield died
    finally:
        setattr(owner, name, real)


def forget_last(plan: Plan) -> bool:
    """Removes the last batch from Spark's log of commits, so that the batch is repeated; False if there is none."""
    folder = Path(plan.checkpoint.removeprefix("file://")) / "commits"
    numbers = sorted(int(file.name) for file in folder.glob("[0-9]*")) if folder.is_dir() else []
    if not numbers:
        return False
    for name in (f"{numbers[-1]}", f".{numbers[-1]}.crc"):
        (folder / name).unlink(missing_ok=True)
    return True


CLOCKS = {"current_timestamp": "TIMESTAMP", "now": "TIMESTAMP", "current_date": "DATE"}
"""The functions of the current time, with the types of their results."""


def set_clock(spark: SparkSession, moment: str) -> None:
    """Replaces a session's functions of the current time by functions that return a fixed time, given as ISO text."""
    state: JavaSessionState = spark._jsparkSession.sessionState()
    for name, kind in CLOCKS.items():
        # This drops Spark's own function, or the function of the last call.
        state.functionRegistry().dropFunction(classes().org.apache.spark.sql.catalyst.FunctionIdentifier(name))
        value = moment if kind == "TIMESTAMP" else moment[:10]
        spark.sql(f"CREATE TEMPORARY FUNCTION {name}() RETURNS {kind} RETURN {kind} '{value}'").collect()
