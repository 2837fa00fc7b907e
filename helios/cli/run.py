"""The command `run`: runs a script's pipelines in one Spark session, until the pipelines end or are stopped."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from helios.cli import options, output, progress, ui_page
from helios.cli.launch import Launch
from helios.cli.options import Loaded, ScriptName
from helios.errors import CheckFailed, HeliosError, InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from helios.metrics.endpoint import Endpoint
    from helios.plan import Compiled, Plan
    from helios.spark.run.run import PipelineRun
    from helios.spark.run.scheduler import Runner

REJECTED = 3
"""The exit status with `--fail-on-rejects`, if rows were rejected and no pipeline failed."""
SHOW_CURSOR, CLEAR_LINE = "\x1b[?25h", "\r\x1b[2K"


@click.command()
@options.script_argument
@click.option("--once", is_flag=True, help="Process the data that is there now, then end.")
@options.set_option
@click.option("--master", metavar="URL", help="Spark's master; overrides the master in helios.toml.")
@click.option(
    "--new-checkpoint", is_flag=True, help="Start a new checkpoint at the position that the target has recorded."
)
@click.option(
    "--full-refresh", is_flag=True, help="Empty the target and fill it from the beginning; asks you to type its name."
)
@click.option("--again", is_flag=True, help="Append the inputs of batch pipelines even if they were appended before.")
@click.option(
    "--beside",
    multiple=True,
    metavar="NAME",
    help="Start although the pipeline NAME writes rows of the same source, or with the same keys, into the table; "
    "repeat the option for several pipelines.",
)
@click.option(
    "--confirm",
    is_flag=True,
    help="If the plan has changed by more than additions since the last run, ask before the run.",
)
@click.option("--fail-on-rejects", is_flag=True, help="Exit with status 3 when rows were quarantined or dropped.")
@click.option(
    "--fail-fast",
    is_flag=True,
    help="If a pipeline fails its check, start no pipeline; if a pipeline fails later, stop the others.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Serve /metrics and /healthz on this port while the run lasts; 0 takes a free port.",
)
@click.option(
    "--metrics-host",
    metavar="H",
    help="The address on which metrics are served; by default 127.0.0.1, which only this machine can reach.",
)
@ui_page.option
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@options.common
@options.json_option
@click.pass_context
def run(
    ctx: click.Context,
    *,
    script: ScriptName,
    once: bool,
    values: dict[str, str],
    master: str | None,
    new_checkpoint: bool,
    full_refresh: bool,
    again: bool,
    beside: tuple[str, ...],
    confirm: bool,
    fail_on_rejects: bool,
    fail_fast: bool,
    metrics_port: int | None,
    metrics_host: str | None,
    ui: str | None,
    log_format: str,
    profile: str | None,
    as_json: bool,
) -> None:
    """Run the pipelines of a script, or one of them.

    Ctrl-C and SIGTERM stop the run after the running batch; a second signal ends the process at once.

    \b
    Example:
      helios run pipeline.py --once
      helios run pipeline.py:orders --profile prod --set day=2026-01-01
    """
    if new_checkpoint and full_refresh:
        raise click.UsageError("--new-checkpoint keeps the target's rows, --full-refresh deletes them: pass one.")
    loaded = _on_master(options.load(script, profile, values), master)
    # The servers start before Spark, so that a port in use is reported at once. `observed` gets the runs later. Until
    # then, the endpoint shows a healthy run without pipelines.
    observed: list[PipelineRun] = []
    endpoint = _start_endpoint(ctx, observed, metrics_port, metrics_host)
    page = ui_page.serve_run(ctx, ui, observed, loaded)
    display = _progress_display(log_format, observed, err=as_json)
    run_options: dict[str, Any] = {"once": once, "new_checkpoint": new_checkpoint, "full_refresh": full_refresh}
    # All pipelines of the script, even if they do not run: none of these names can be another pipeline's former name.
    names = (pipeline.name for pipeline in loaded.script.pipelines.values() if pipeline.name is not None)
    run_options |= {"again": again, "fail_fast": fail_fast, "beside": beside, "declared_names": tuple(names)}
    confirmations = [*([_confirm_changes] if confirm else []), *([_confirm_full_refresh] if full_refresh else [])]
    status, exit_status = _run_pipelines(
        loaded, display, run_options, observed, endpoint, page=page, confirmations=confirmations
    )
    if as_json:
        output.print_json(status)
    ctx.exit(exit_status or (REJECTED if fail_on_rejects and any(row["rejected"] for row in status) else 0))


def _run_pipelines(
    loaded: Loaded,
    display: progress.Progress,
    run_options: dict[str, Any],
    observed: list[PipelineRun],
    endpoint: Endpoint | None,
    *,
    page: ui_page.Page | None,
    confirmations: Sequence[Callable[[list[Plan]], None]],
) -> tuple[list[dict[str, Any]], int]:
    """Runs the pipelines until they end. Returns the status of each pipeline, and the exit status."""
    signals = Signals(display)
    plans, refused, session = _compile_and_launch(
        loaded, display, confirmations=confirmations, fail_fast=run_options["fail_fast"]
    )
    signals.install()  # again, since SparkContext has installed a handler of SIGINT that kills the batch
    from helios.spark.run.scheduler import Runner
    from helios.spark.session.session import stop

    runner = Runner(plans, session, emit=page.tee(display.emit) if page is not None else display.emit, **run_options)
    try:
        _show_start(display, plans, endpoint)
        if page is not None:
            page.open(plans, refused, runner.stop, display.note)
        observed += runner.runs
        signals.stop = runner.stop
        runner.run()
    finally:
        status = runner.status() + [_refused_status(result) for result in refused]
        display.close(status)
        stop(session)
    exit_status = _report_failures(runner, debug=options.settings().debug)
    return status, 1 if refused else exit_status


def _on_master(loaded: Loaded, master: str | None) -> Loaded:
    """The script, with the Spark master of `--master` if the option is given."""
    if master is None:
        return loaded
    config = replace(loaded.context.config, master=master)
    return replace(loaded, context=replace(loaded.context, config=config))


def _compile_and_launch(
    loaded: Loaded,
    display: progress.Progress,
    *,
    confirmations: Sequence[Callable[[list[Plan]], None]],
    fail_fast: bool,
) -> tuple[list[Plan], list[Compiled], SparkSession]:
    """Compiles a script while Spark starts. Returns the plans, the pipelines that cannot run, and the session."""
    from helios.plan import components_before_compiling

    debug = options.settings().debug
    try:
        # The start of the JVM takes seconds. The pipelines are compiled meanwhile. If none can run, this process ends,
        # and the JVM ends with it.
        launch = Launch(loaded, components_before_compiling(loaded.pipelines, loaded.context), display, debug=debug)
        plans, refused = _compile_runnable(loaded, fail_fast=fail_fast)
        for confirm in confirmations:
            confirm(plans)
        return plans, refused, launch.session(plans)
    except BaseException:
        display.hide()
        raise


def _compile_runnable(loaded: Loaded, *, fail_fast: bool) -> tuple[list[Plan], list[Compiled]]:
    """Compiles the pipelines, and reports their problems. Returns the plans that can run, and the other pipelines.

    Raises:
        CheckFailed: No pipeline can run; or a pipeline has a problem, and `fail_fast` is set.
    """
    from helios.engine import already_running_problems
    from helios.plan import compile_each, without_duplicates

    refused: list[Compiled] = []
    pipelines = loaded.pipelines
    while True:
        compiled = compile_each(pipelines, loaded.context)
        for result in compiled:
            if result.plan is not None and not result.fatal_problems:
                result.problems.extend(already_running_problems(result.plan))
        faulty = [result for result in compiled if result.fatal_problems]
        refused += faulty
        problems = without_duplicates(problem for result in refused for problem in result.fatal_problems)
        if problems and (fail_fast or len(faulty) == len(compiled)):
            failed = CheckFailed(problems)
            failed.exit_status = min(InputError.exit_status if isinstance(p, InputError) else 1 for p in problems)
            raise failed
        if not faulty:
            break
        # The other pipelines are compiled again, since they may read a table that a faulty pipeline would have created.
        pipelines = [result.pipeline for result in compiled if not result.fatal_problems]
    for problem in problems:
        output.say_error(output.paragraph(problem), problem.code)
    if refused:
        output.say("note", f"{', '.join(result.name for result in refused)} will not run; the others do.", "yellow")
    return [result.plan for result in compiled if result.plan is not None], refused


def _refused_status(refused: Compiled) -> dict[str, Any]:
    """The status of a pipeline that was not started, in the form of a run's status."""
    error = "\n".join(map(str, refused.fatal_problems))
    counts = {"batches": 0, "rows": 0, "rejected": 0, "left": [], "snapshot": None}
    return {
        "pipeline": refused.name,
        "target": refused.pipeline.sink.label(),
        "state": "failed",
        **counts,
        "error": error,
    }


def _show_start(display: progress.Progress, plans: list[Plan], endpoint: Endpoint | None) -> None:
    """Shows that the run begins, and the address of its metrics."""
    display.open([plan.pipeline for plan in plans])
    if endpoint is not None:
        display.note(f"metrics at {endpoint.url}/metrics")


def _start_endpoint(
    ctx: click.Context, observed: list[PipelineRun], port: int | None, host: str | None
) -> Endpoint | None:
    """Serves the metrics of the runs in `observed` until the command ends. Runs may be added to `observed` later.

    Returns:
        The endpoint; None if there is no port.
    """
    if port is None and host is not None:
        raise click.UsageError("--metrics-host needs --metrics-port: pass both.")
    if port is None:
        return None
    from helios.metrics.endpoint import LOOPBACK, Endpoint

    return ctx.with_resource(Endpoint(observed, port=port, host=host or LOOPBACK))


def _progress_display(log_format: str, observed: Sequence[PipelineRun], *, err: bool) -> progress.Progress:
    if log_format == "json":
        return progress.JsonLines(err=err)
    if (sys.stderr if err else sys.stdout).isatty():
        from helios.cli.board import Board

        return Board(observed, err=err)
    return progress.Lines(err=err)


def _confirm_full_refresh(plans: list[Plan]) -> None:
    """Asks the user to type the name of every target that will be emptied."""
    for table in (plan.write.table.text for plan in plans):
        typed_name = click.prompt(f"--full-refresh deletes every row of {table}. Write its name to confirm", err=True)
        if not sys.stdin.isatty():
            click.echo(typed_name, err=True)  # unlike a terminal, a pipe does not echo the answer
        if typed_name.strip() != table:
            raise InputError(f"{typed_name!r} is not {table!r}: nothing was deleted.", fix="write the name as shown.")


def _confirm_changes(plans: list[Plan]) -> None:
    """Asks the user to confirm every plan that has changed by more than additions since its last run."""
    from helios.plan.changed import as_text, plan_difference

    for plan in plans:
        difference = plan_difference(plan)
        if difference is None or all(change.additive for change in difference.changes):
            continue
        click.echo(f"pipeline {plan.pipeline}\n{as_text(difference)}", err=True)
        if not sys.stdin.isatty():
            raise InputError(
                f"{plan.pipeline}: --confirm asks before the run, but there is no terminal to ask on; nothing was run.",
                fix="look at the change with `helios plan`, and run without --confirm.",
            )
        if not click.confirm(f"Run {plan.pipeline} with these changes?", err=True):
            raise InputError(
                f"{plan.pipeline} was not confirmed; nothing was run.", fix="undo the change in the script."
            )


def _report_failures(runner: Runner, *, debug: bool) -> int:
    """Reports every failure, and returns the exit status."""
    failures = [run.error for run in runner.runs if run.error is not None]
    reported: set[str] = set()
    for error in failures:
        # Pipelines that share a source or a service may fail with the same error, which is reported only once.
        for problem in output.problems_of(error) if isinstance(error, HeliosError) else [error]:
            text = (
                output.paragraph(problem)
                if isinstance(problem, HeliosError)
                else f"{type(problem).__name__}: {problem}"
            )
            if text not in reported:
                reported.add(text)
                output.say_error(text, problem.code if isinstance(problem, HeliosError) else "")
        if debug:
            output.show_traceback(error)
    if not failures:
        return 0
    return InputError.exit_status if all(isinstance(error, InputError) for error in failures) else 1


class Signals:
    """Handles SIGINT and SIGTERM.

    The first signal asks the run to stop, and the second signal ends the process. Before the run begins, the first
    signal ends the process.

    Args:
        display: The display, which shows a note after the first signal.
        unit: The unit of work that the run finishes after the first signal, such as "batch".
        end_message: The message that is printed after the second signal.
    """

    def __init__(self, display: progress.Progress, unit: str = "batch", end_message: str = "") -> None:
        self.stop: Callable[[], None] | None = None  # asks the run to stop; None before the run begins
        self._unit, self._end_message = unit, end_message
        self._display = display
        self._stopping = False
        self.install()

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stop is None or self._stopping:
            with suppress(OSError):
                # The signal may have interrupted a write to Python's buffers, which os.write does not use.
                os.write(sys.stderr.fileno(), self._final_message().encode())
            if self.stop is None:
                end_jvm()
            # A JVM that has started ends by itself, since the end of this process closes the pipe to the JVM.
            os._exit(128 + number)
        self._stopping = True
        self._display.note(f"stopping after the running {self._unit} (press Ctrl-C again to stop at once)")
        self.stop()

    def _final_message(self) -> str:
        on_terminal = sys.stdout.isatty() or sys.stderr.isatty()
        too_early = f"{CLEAR_LINE if on_terminal else ''}stopped before the run began; nothing was written.\n"
        return f"{SHOW_CURSOR if on_terminal else ''}{too_early if self.stop is None else self._end_message}"


def end_jvm() -> None:
    """Kills Spark's JVM.

    A JVM that is still starting does not notice that Python has closed the pipe to the JVM, and would live on for
    seconds.
    """
    # On systems without /proc, nothing is killed, and the JVM ends by itself some seconds later.
    for children_file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            for child in children_file.read_text().split():
                if b"spark" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)  # a starting JVM ignores other signals
