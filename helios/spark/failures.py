"""Errors of Spark, Iceberg and the services behind them, as the user should read them."""

from __future__ import annotations

from collections.abc import Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from helios.errors import HeliosError, Origin, RunError
from helios.model.flow import flows
from helios.model.steps import Expect
from helios.plan.plan import Plan
from helios.spark.evolve import null_refused
from helios.spark.ledger import java_class, java_message
from helios.spark.steps import FAILED, refusal

AWAY = (
    "ConnectException",
    "ConnectTimeoutException",
    "ConnectionClosedException",
    "ConnectionRequestTimeoutException",
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
"""Java exceptions that say that a catalog or a storage does not answer."""

BUSY = ("SQLITE_BUSY", "database is locked")
"""What a catalog in a SQLite file says while somebody else holds it."""


def plain(error: BaseException, plan: Plan) -> BaseException:
    """An error as the user should read it."""
    if isinstance(error, HeliosError):
        return error
    broken = expectation(error, plan)
    if broken is None and isinstance(error, PySparkException):
        broken = null_refused(error, plan.write.table.text, plan.declared.sink.origin)
    if broken is not None:
        wrapped: BaseException = broken
    elif isinstance(error, AnalysisException):
        return refusal(plan.pipeline, error, plan.origin)
    elif isinstance(error, Py4JJavaError):
        wrapped = RunError(f"{plan.pipeline}: {java_class(error)}: {java_message(error)}")
    elif isinstance(error, (PySparkException, OSError)):
        wrapped = RunError(f"{plan.pipeline}: {first_line(error)}")
    elif isinstance(error, Exception):
        wrapped = RunError(f"{plan.pipeline}: {type(error).__name__}: {first_line(error)}")
    else:
        return error
    wrapped.__cause__ = error
    return wrapped


def expectation(error: BaseException, plan: Plan) -> RunError | None:
    """The failure of an `expect(..., on_fail="fail")` inside Spark's own words; None for any other error."""
    text = str(error)
    if FAILED not in text:
        return None
    said = text.split(FAILED, 1)[1].splitlines()[0].split(" SQLSTATE:")[0]
    said = said if len(said) <= 400 else f"{said[:400]}..."
    steps = [step for flow in flows(plan.stream) for step in flow.steps if isinstance(step, Expect)]
    meant = [s for s in steps if s.on_fail == "fail" and any(f"{n} ({c})" in said for n, c in s.conditions)]
    where: Origin | None = meant[0].origin if meant else plan.origin
    return RunError(
        f"a row does not meet the expectation {said}; nothing of its batch was written.",
        where=where,
        fix='mend the source, or write on_fail="drop" or "quarantine".',
    )


def is_away(error: BaseException) -> bool:
    """Whether a failure says that a catalog or a storage does not answer, and may answer again."""
    for one in _causes(error):
        if isinstance(one, Py4JJavaError):
            names, text = zip(*_java_causes(one), strict=True)
            if set(names) & set(AWAY) or any(word in line for line in text for word in BUSY):
                return True
        elif isinstance(one, StreamingQueryException):
            text_of_all = str(one)
            if any(f".{name}" in text_of_all for name in AWAY) or any(word in text_of_all for word in BUSY):
                return True
    return False


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _java_causes(error: Py4JJavaError) -> Iterator[tuple[str, str]]:
    one = error.java_exception
    for _ in range(20):  # a chain of causes may be a circle
        yield str(one.getClass().getSimpleName()), str(one.getMessage())
        one = one.getCause()
        if one is None:
            return


def engine_failure(error: StreamingQueryException, plan: Plan) -> RunError:
    """A failure of Spark's own, outside the batches: its deepest cause in one line."""
    text = str(error)
    causes = [line.removeprefix("Caused by:").strip() for line in text.splitlines() if line.startswith("Caused by:")]
    return expectation(error, plan) or RunError(
        f"{plan.pipeline}: {(causes or [first_line(error)])[-1]}", where=plan.origin
    )


def first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]
