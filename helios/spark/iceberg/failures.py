"""Turns errors of Spark, Iceberg and other services into errors for the user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from helios.catalog.diagnosis import diagnose
from helios.errors import HeliosError, LeaseError, Origin, RunError, first_line
from helios.model.flow import flows
from helios.plan.nodes import Plan
from helios.sources.kinds import is_outage_message, source_kind
from helios.spark.iceberg.bad_rows import MAX_SHOWN, bad_row_error, row_in
from helios.spark.iceberg.freshness import StaleReplica
from helios.spark.iceberg.origins import locate, origin_of
from helios.spark.iceberg.schema import null_violation_error
from helios.spark.jvm.death import NO_ANSWER, java_death
from helios.spark.jvm.errors import EVENT_TIME_PREFIX, EXPECTATION_PREFIX, java_causes, java_class, java_message
from helios.spark.jvm.sql import refusal
from helios.steps.expect import Expect

TARGET_FAILURE = "helios.sources.iceberg.spark.failures:failure"
"""The function that returns the error for a data file of the target that cannot be read."""

OUTAGES = (
    "ConnectException",
    "ConnectTimeoutException",
    "ConnectionClosedException",
    "ConnectionRequestTimeoutException",
    "EofException",
    "HttpHostConnectException",
    "NoHttpResponseException",
    "NoRouteToHostException",
    "ServiceFailureException",
    "ServiceUnavailableException",
    "SocketException",
    "SocketTimeoutException",
    "TTransportException",
    "UnknownHostException",
)
"""Java exceptions of a catalog or a storage that does not answer."""

OUTAGE_MESSAGES = re.compile(
    # A SQLite catalog that another process has locked, or a gateway whose server does not answer.
    r"SQLITE_BUSY|database is locked|Unable to process \(code: (408|429|502|504)\b"
    # A storage, as Amazon's client reports it.
    r"|Service: S3, Status Code: (408|429|50[0234])\b|XMinioServerNotInitialized|SlowDown"
)
"""Messages of a service that does not answer, in exceptions of other classes."""

OUTAGE_DIAGNOSES = ("dns", "refused", "unreachable", "connect timeout", "timeout", "reset", "away")
"""The diagnoses of `helios.catalog.diagnosis` which say that a service does not answer a Python client."""

WORKER_ERROR = re.compile(r"PythonException|from the Python worker")
WORKER_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?P<frames>(?:[ \t].*\n)*)(?P<message>\S.*)")
FRAME = re.compile(r'^ +File "([^"]+)", line (\d+)', re.MULTILINE)
"""Patterns for the failure of a user's function in a Python worker, for its traceback, and for the frames in it."""

INSTALL_MODULE = (
    "install it where the executors run, or name a Python that has it: PYSPARK_PYTHON, or spark.pyspark.python in "
    "[spark.conf]. Modules beside the script need no installation."
)

FIXES = {
    "Table UUID does not match": "a table was dropped and created again while the pipeline ran. Run again: the next "
    "start names the table and the remedy.",
    "NoSuchTableException": "a table was dropped or renamed while the pipeline ran. Run again: the next start names "
    "the table and the remedy.",
}
"""The fixes for some exceptions of Iceberg, by a part of the exception's text."""

JAVA_EXCEPTION = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+([\w$]+(?:Exception|Error))(?:: (.*))?$", re.MULTILINE)
"""An exception in the text of a stack trace."""


def user_error(error: BaseException, plan: Plan) -> BaseException:
    """The error to raise for the user: a `HeliosError` for any error of Spark, Iceberg or a service.

    Returns:
        The error itself if it is a `HeliosError` or not an `Exception`; else a `HeliosError`. Its cause is the given
        error, except for an error of Spark's analyzer.
    """
    if isinstance(error, HeliosError):
        locate(error, plan)
        return error
    if isinstance(error, NO_ANSWER) and (death := java_death()) is not None:
        death.__cause__ = error
        return death
    where = origin_of(error, plan) or plan.origin
    known_failure: HeliosError | None = expectation_failure(error, plan)
    if known_failure is None and isinstance(error, PySparkException):
        known_failure = null_violation_error(error, plan.write.table.text, plan.declared.sink.origin)
    known_failure = known_failure or source_failure(error, plan) or worker_failure(error, plan)
    if known_failure is not None:
        wrapped: BaseException = known_failure
    elif isinstance(error, AnalysisException):
        return refusal(plan.pipeline, error, plan.origin)
    elif isinstance(error, Py4JJavaError):
        message = f"{plan.pipeline}: {java_class(error)}: {java_message(error)}"
        fix = next((fix for part, fix in FIXES.items() if part in message), None)
        wrapped = RunError(message, where=where, fix=fix)
    elif isinstance(error, (PySparkException, OSError)):
        wrapped = RunError(f"{plan.pipeline}: {first_line(error)}", where=where)
    elif isinstance(error, Exception):
        wrapped = RunError(f"{plan.pipeline}: {type(error).__name__}: {first_line(error)}", where=where)
    else:
        return error
    wrapped.__cause__ = error
    return wrapped


def expectation_failure(error: BaseException, plan: Plan) -> RunError | None:
    """The error for a row that fails `expect(..., on_fail="fail")`, or has no event time; None for any other error."""
    text = str(error)
    if EVENT_TIME_PREFIX in text:
        return _missing_event_time_error(text, plan)
    if EXPECTATION_PREFIX not in text:
        return None
    expectation = shortened(_line_after(EXPECTATION_PREFIX, text), MAX_SHOWN)
    steps = [step for flow in flows(plan.stream) for step in flow.steps if isinstance(step, Expect)]
    failed_steps = [
        step
        for step in steps
        if step.on_fail == "fail" and any(f"{name} ({condition})" in expectation for name, condition in step.conditions)
    ]
    where: Origin | None = failed_steps[0].origin if failed_steps else plan.origin
    return RunError(
        f"a row does not meet the expectation {expectation}; nothing of its batch was written.",
        where=where,
        fix='repair the source, or write on_fail="drop" or "quarantine".',
    )


def _line_after(prefix: str, text: str) -> str:
    """The rest of the line after a prefix in Spark's message, without Spark's SQLSTATE."""
    return text.split(prefix, 1)[1].splitlines()[0].split(" SQLSTATE:")[0]


def source_failure(error: BaseException, plan: Plan) -> HeliosError | None:
    """The error for a row, record or file that a source or the target cannot read; None for any other error."""
    names = [source_kind(read.source).failures for read in plan.reads]
    if plan.write.sink.iceberg is not None:
        names.append(TARGET_FAILURE)
    for name in filter(None, dict.fromkeys(names)):
        failure: HeliosError | None = resolve_name(name)(error, plan)
        if failure is not None:
            return failure
    row = row_in(error)
    if row is None or "at" not in row or "fix" not in row:
        return None
    return bad_row_error(row, plan, row["at"], row["fix"])  # a row that a MERGE refuses


def _missing_event_time_error(text: str, plan: Plan) -> RunError:
    message = _line_after(EVENT_TIME_PREFIX, text)
    steps = [step for flow in flows(plan.stream) for step in flow.steps]
    where = next((step.origin for step in steps if message.startswith(step.text())), plan.origin)
    return RunError(
        f"{shortened(message, MAX_SHOWN)}; nothing of its batch was written.",
        where=where,
        fix='leave such rows out with where("<column> IS NOT NULL") before the watermark, or give them a time with '
        "coalesce(...).",
    )


def worker_failure(error: BaseException, plan: Plan) -> RunError | None:
    """The error for a user's function that failed in a Python worker; None for any other error."""
    text = str(error)
    tracebacks = list(WORKER_TRACEBACK.finditer(text)) if WORKER_ERROR.search(text) else []
    if not tracebacks:
        return None
    frames = [(file, int(line)) for file, line in FRAME.findall(tracebacks[-1]["frames"])]
    in_script = [Origin(file, line) for file, line in frames if Path(file).name == Path(plan.origin.file).name]
    message = tracebacks[-1]["message"].strip()
    return RunError(
        f"{plan.pipeline}: {message}",
        where=in_script[-1] if in_script else plan.origin,
        fix=INSTALL_MODULE if message.startswith("ModuleNotFoundError") else None,
    )


def outage_reason(error: BaseException) -> str | None:
    """The reason why a service does not answer, if a later try may succeed; None for any other failure."""
    for cause in _causes(error):
        if isinstance(cause, StaleReplica):
            return cause.what
        exceptions = list(_java_exceptions(cause))
        outages = [
            (name, text)
            for name, text in exceptions
            if name in OUTAGES or OUTAGE_MESSAGES.search(text) or is_outage_message(text)
        ]
        if outages:
            return shortened(_named(*outages[-1]))  # the innermost
        if not exceptions and not isinstance(cause, (HeliosError, PySparkException)):
            diagnosis = diagnose(cause)
            if diagnosis is not None and diagnosis.name in OUTAGE_DIAGNOSES and isinstance(error, HeliosError):
                return shortened(error.what)
    return None


def is_outage(error: BaseException) -> bool:
    """True if a service does not answer, and a later try may succeed."""
    return outage_reason(error) is not None


def expired_token_message(error: BaseException) -> str | None:
    """The message of a catalog that no longer accepts the session's token; None for any other failure."""
    exceptions = [found for cause in _causes(error) for found in _java_exceptions(cause)]
    expired = [(name, text) for name, text in exceptions if name == "NotAuthorizedException"]
    return shortened(_named(*expired[-1])) if expired else None


def _named(name: str, text: str) -> str:
    """An exception with its message, if it has one."""
    return name if text in ("", "-", "None") else f"{name}: {text}"  # None is Java's null


def shortened(text: str, length: int = 200) -> str:
    """The first line of a text; `...` replaces what follows its first `length` characters."""
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= length else f"{line[:length]}..."


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its chain of causes, outermost first."""
    while error is not None:
        yield error
        error = error.__cause__


def _java_exceptions(error: BaseException) -> Iterator[tuple[str, str]]:
    """The class and message of each Java exception behind an error, outermost first."""
    for cause in java_causes(error):
        text = str(cause.getMessage())
        yield str(cause.getClass().getSimpleName()), shortened(text or "-")
        # A message may contain the stack trace of a failed task, query or callback.
        yield from ((name, shortened(message or "-")) for name, message in JAVA_EXCEPTION.findall(text))
    if isinstance(error, PySparkException):
        yield from ((name, shortened(text or "-")) for name, text in JAVA_EXCEPTION.findall(str(error)))


CONCURRENT_QUERY = re.compile(r"\[CONCURRENT_STREAM_LOG_UPDATE\].*?detected for (?P<batch>\d+)", re.DOTALL)
"""The pattern of Spark's error for a query that finds another query on its checkpoint."""


def second_driver_error(error: StreamingQueryException, plan: Plan) -> LeaseError | None:
    """The error for a query that found another query on its checkpoint; None for any other error."""
    match = CONCURRENT_QUERY.search(str(error))
    if match is None:
        return None
    return LeaseError(
        f"another driver has planned or finished batch {match['batch']} of {plan.pipeline} on the checkpoint "
        f"{plan.checkpoint} while this driver ran; this driver stops.",
        where=plan.origin,
        fix="let one driver run each pipeline; the next run continues after the other driver's batches.",
    )


def engine_failure(error: StreamingQueryException, plan: Plan) -> HeliosError:
    """The error for a failure of Spark outside of the batches, with its innermost cause in one line."""
    text = str(error)
    causes = [line.removeprefix("Caused by:").strip() for line in text.splitlines() if line.startswith("Caused by:")]
    innermost = causes[-1] if causes else first_line(error)
    return (
        expectation_failure(error, plan)
        or source_failure(error, plan)
        or worker_failure(error, plan)
        or second_driver_error(error, plan)
        or RunError(f"{plan.pipeline}: {innermost}", where=plan.origin)
    )
