"""`run`: a script's pipelines in one Spark session, until they end or are stopped."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

import click

from helios.cli import options, output, progress
from helios.cli.options import Loaded, Target
from helios.errors import HeliosError, InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from helios.metrics.endpoint import Endpoint
    from helios.plan import Plan
    from helios.spark.run.run import PipelineRun
    from helios.spark.run.scheduler import Runner

SHOW_CURSOR = "\x1b[?25h"


@click.command()
@options.script_argument
@click.option("--once", is_flag=True, help="Drain what is there now, then end.")
@options.set_option
@click.option("--master", metavar="URL", help="Spark's master, before that of helios.toml.")
@click.option(
    "--new-checkpoint", is_flag=True, help="Start a new checkpoint at the position that the target has recorded."
)
@click.option(
    "--full-refresh", is_flag=True, help="Empty the target, and fill it from the beginning; asks for its name."
)
@click.option("--again", is_flag=True, help="Append the inputs of batch pipelines even if they were appended before.")
@click.option("--fail-fast", is_flag=True, help="When one pipeline fails, stop the others.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Serve /metrics and /healthz on this port of 127.0.0.1 while the run lasts; 0 takes a free one.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@options.common
@options.json_option
@click.pass_context
def run(
    ctx: click.Context,
    *,
    target: Target,
    once: bool,
    values: dict[str, str],
    master: str | None,
    new_checkpoint: bool,
    full_refresh: bool,
    again: bool,
    fail_fast: bool,
    metrics_port: int | None,
    log_format: str,
    profile: str | None,
    as_json: bool,
) -> None:
    """Run the pipelines of a script, or one of them.

    Ctrl-C and SIGTERM stop after the running batch; a second one stops at once.

    \b
    Example:
      helios run pipeline.py --once
      helios run pipeline.py:orders --profile prod --set day=2026-01-01
    """
    if new_checkpoint and full_refresh:
        raise click.UsageError("--new-checkpoint keeps what the target holds and --full-refresh empties it: pass one.")
    loaded = _on_master(options.load(target, profile, values), master)
    # A port that is taken is told of before Spark starts; whoever looks meanwhile sees a healthy run of no pipelines.
    observed: list[PipelineRun] = []
    endpoint = _endpoint(ctx, observed, metrics_port) if metrics_port is not None else None
    shown = _progress(log_format, err=as_json)
    signals = Signals(shown)
    plans, session = _launched(loaded, shown, confirm=full_refresh)
    signals.install()  # once more: SparkContext puts its own handler for SIGINT, which kills the running batch
    from helios.spark.run.scheduler import Runner

    how = {"new_checkpoint": new_checkpoint, "full_refresh": full_refresh, "again": again, "fail_fast": fail_fast}
    runner = Runner(plans, session, emit=shown.emit, once=once, **how)
    try:
        _open(shown, plans, endpoint)
        observed += runner.runs
        signals.stop = runner.stop
        runner.run()
    finally:
        shown.close(runner.status())
        session.stop()
    if as_json:
        output.to_json(runner.status())
    ctx.exit(_conclude(runner, debug=options.settings().debug))


def _on_master(loaded: Loaded, master: str | None) -> Loaded:
    """The script with Spark's master from the command line, if one was given."""
    if master is None:
        return loaded
    config = replace(loaded.context.config, master=master)
    return replace(loaded, context=replace(loaded.context, config=config))


def _launched(loaded: Loaded, shown: progress.Progress, *, confirm: bool) -> tuple[list[Plan], SparkSession]:
    """The plans of a script, compiled while Spark starts, and the session."""
    from helios.engine import runnable
    from helios.plan import compile_pipelines, components_ahead

    debug = options.settings().debug
    try:
        # The JVM takes seconds to come up, in which the pipelines are compiled; wrong ones end the process with it.
        launch = Launch(loaded, components_ahead(loaded.pipelines, loaded.context), shown, debug=debug)
        plans = runnable(*compile_pipelines(loaded.pipelines, loaded.context, lenient=True))
        if confirm:
            _confirm(plans)
        return plans, launch.session(plans)
    except BaseException:
        if isinstance(shown, progress.Board):
            shown.hide()
        raise


def _open(shown: progress.Progress, plans: list[Plan], endpoint: Endpoint | None) -> None:
    """Shows that the run begins, and where its metrics are."""
    shown.open([plan.pipeline for plan in plans])
    if endpoint is not None:
        shown.note(f"metrics at {endpoint.url}/metrics")


def _endpoint(ctx: click.Context, observed: list[PipelineRun], port: int) -> Endpoint:
    """Serves the metrics of the runs that will be there, until the command ends."""
    from helios.metrics.endpoint import Endpoint

    return ctx.with_resource(Endpoint(observed, port=port))


def _progress(log_format: str, *, err: bool) -> progress.Progress:
    if log_format == "json":
        return progress.JsonLines(err=err)
    if (sys.stderr if err else sys.stdout).isatty():
        return progress.Board(err=err)
    return progress.Lines(err=err)


def _confirm(plans: list[Plan]) -> None:
    """Has the user write the name of every target that is to be emptied."""
    for table in (plan.write.table.text for plan in plans):
        written = click.prompt(f"--full-refresh deletes every row of {table}. Write its name to confirm", err=True)
        if written.strip() != table:
            raise InputError(f"{written!r} is not {table!r}: nothing was deleted.", fix="write the name as shown.")


class Launch:
    """A Spark session on its way, in a thread of its own."""

    def __init__(self, loaded: Loaded, components: Sequence[str], shown: progress.Progress, *, debug: bool) -> None:
        self._loaded = loaded
        self._components = components
        self._shown = shown
        self._debug = debug
        self._made: SparkSession | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="helios-launch", daemon=True)
        self._thread.start()

    def session(self, plans: list[Plan]) -> SparkSession:
        """Waits for the session, and declares the plans' catalogs and the script's functions in it."""
        from helios.environment import jars, java
        from helios.spark.session import session
        from helios.spark.session.user_code import ship

        notice = java.find_java().notice
        if notice:
            output.say("note", notice, "yellow")
        self._shown.note(f"starting Spark {jars.installed_spark()[0]} on {self._loaded.context.config.master} ...")
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._made is not None
        session.declare_catalogs(self._made, plans)
        ship(self._loaded.script.module, self._made)
        return self._made

    def _run(self) -> None:
        from helios.environment import class_archive, jars, java
        from helios.spark.session import session

        try:
            version, _ = jars.installed_spark()
            if jars.missing(self._components, spark_version=version):
                jars.ensure(self._components, spark_version=version, progress=self._shown.note)
                class_archive.ensure(java.find_java(), version, self._shown.note)
            self._made = session.start(self._loaded.context.config, self._components, debug=self._debug)
        except BaseException as error:
            self._error = error


def _conclude(runner: Runner, *, debug: bool) -> int:
    """Tells of every failure, and returns the exit status."""
    failures = [one.error for one in runner.runs if one.error is not None]
    told: set[str] = set()
    for error in failures:
        # Pipelines that share a source or a service fail for one reason.
        for problem in output.problems_of(error) if isinstance(error, HeliosError) else [error]:
            text = (
                output.paragraph(problem)
                if isinstance(problem, HeliosError)
                else f"{type(problem).__name__}: {problem}"
            )
            if text not in told:
                told.add(text)
                output.say_error(text)
        if debug:
            output.show_traceback(error)
    if not failures:
        return 0
    return InputError.exit_status if all(isinstance(error, InputError) for error in failures) else 1


class Signals:
    """SIGINT and SIGTERM: the first asks the run to stop, the next ends the process; before the run, the first does."""

    def __init__(self, shown: progress.Progress) -> None:
        self.stop: Callable[[], None] | None = None
        self._shown = shown
        self._asked = False
        self.install()

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on)

    def _on(self, number: int, frame: FrameType | None) -> None:
        if self.stop is None or self._asked:
            # Ending Python closes the pipe by which Spark's JVM lives.
            with suppress(OSError):
                if sys.stdout.isatty() or sys.stderr.isatty():
                    os.write(sys.stderr.fileno(), SHOW_CURSOR.encode())
            os._exit(128 + number)
        self._asked = True
        self._shown.note("stopping after the running batch (again to stop at once)")
        self.stop()
