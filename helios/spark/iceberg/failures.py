"""Errors of Spark, Iceberg and the services behind them, as the user should read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from helios.catalog.diagnosis import diagnose
from helios.errors import HeliosError, Origin, RunError
from helios.model.flow import flows
from helios.model.steps import Expect
from helios.plan.nodes import Plan
from helios.spark.iceberg.freshness import StaleReplica
from helios.spark.iceberg.schema import null_violation
from helios.spark.jvm.errors import FAILED, java_class, java_message
from helios.spark.jvm.sql import refusal

AWAY = (
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
"""Java exceptions that say that a catalog or a storage does not answer."""

SYMPTOMS = re.compile(
    # A catalog in a SQLite file that somebody else holds, or what a gateway answers for a server behind it.
    r"SQLITE_BUSY|database is locked|Unable to process \(code: (408|429|502|504)\b"
    # A storage, in the words of Amazon's client.
    r"|Service: S3, Status Code: (408|429|50[0234])\b|XMinioServerNotInitialized|SlowDown"
)
"""What others say in their messages."""

DIAGNOSED = ("dns", "refused", "no way", "connect timeout", "timeout", "reset", "away")
"""The same from Python's clients, as `helios.catalog.diagnosis` calls it."""

WORKER_SAID = re.compile(r"PythonException|from the Python worker")
WORKER = re.compile(r"Traceback \(most recent call last\):\n(?P<frames>(?:[ \t].*\n)*)(?P<said>\S.*)")
FRAME = re.compile(r'^ +File "([^"]+)", line (\d+)', re.MULTILINE)
"""What a Python worker tells of a function that failed in it."""

MISSING = (
    "install it where the executors run, or name a Python that has it: PYSPARK_PYTHON, or spark.pyspark.python in "
    "[spark.conf]; modules beside the script reach them by themselves."
)

NAMED = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+([\w$]+(?:Exception|Error))(?:: (.*))?$", re.MULTILINE)
"""An exception in the text of a stack trace."""


def user_error(error: BaseException, plan: Plan) -> BaseException:
    """An error as the user should read it."""
    if isinstance(error, HeliosError):
        return error
    broken = expectation_failure(error, plan)
    if broken is None and isinstance(error, PySparkException):
        broken = null_violation(error, plan.write.table.text, plan.declared.sink.origin)
    broken = broken or worker_failure(error, plan)
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


def expectation_failure(error: BaseException, plan: Plan) -> RunError | None:
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


def worker_failure(error: BaseException, plan: Plan) -> RunError | None:
    """The failure of a user's function in a Python worker; None for any other error."""
    text = str(error)
    found = list(WORKER.finditer(text)) if WORKER_SAID.search(text) else []
    if not found:
        return None
    frames = [(file, int(line)) for file, line in FRAME.findall(found[-1]["frames"])]
    own = [Origin(file, line) for file, line in frames if Path(file).name == Path(plan.origin.file).name]
    said = found[-1]["said"].strip()
    return RunError(
        f"{plan.pipeline}: {said}",
        where=own[-1] if own else plan.origin,
        fix=MISSING if said.startswith("ModuleNotFoundError") else None,
    )


def outage_reason(error: BaseException) -> str | None:
    """Why a catalog or a storage does not answer, which may answer again; None for any other failure."""
    for one in _causes(error):
        if isinstance(one, StaleReplica):
            return one.what
        told = list(_told(one))
        found = [(name, text) for name, text in told if name in AWAY or SYMPTOMS.search(text)]
        if found:
            name, text = found[-1]  # the innermost
            return shortened(f"{name}: {text}" if text and text != "None" else name)
        if not told and not isinstance(one, (HeliosError, PySparkException)):
            diagnosis = diagnose(one)
            if diagnosis is not None and diagnosis.name in DIAGNOSED and isinstance(error, HeliosError):
                return shortened(error.what)
    return None


def expired_token(error: BaseException) -> str | None:
    """What a catalog says of a token that it does not take any more; None for any other failure."""
    told = [text for one in _causes(error) for name, text in _told(one) if name == "NotAuthorizedException"]
    return shortened(f"NotAuthorizedException: {told[-1]}") if told else None


def is_outage(error: BaseException) -> bool:
    """Whether a failure says that a catalog or a storage does not answer, and may answer again."""
    return outage_reason(error) is not None


def shortened(text: str, length: int = 200) -> str:
    line = text.strip().splitlines()[0]
    return line if len(line) <= length else f"{line[:length]}..."


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _told(error: BaseException) -> Iterator[tuple[str, str]]:
    """The Java exceptions behind an error, with their messages, outermost first."""
    origin = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    for _ in range(20):  # a chain of causes may be a circle
        if origin is None:
            break
        text = str(origin.getMessage())
        yield str(origin.getClass().getSimpleName()), shortened(text or "-")
        # A task, a query and a callback tell of what failed in them as text.
        yield from ((name, shortened(said or "-")) for name, said in NAMED.findall(text))
        origin = origin.getCause()
    if isinstance(error, PySparkException):
        yield from ((name, shortened(said or "-")) for name, said in NAMED.findall(str(error)))


def engine_failure(error: StreamingQueryException, plan: Plan) -> RunError:
    """A failure of Spark's own, outside the batches: its deepest cause in one line."""
    text = str(error)
    causes = [line.removeprefix("Caused by:").strip() for line in text.splitlines() if line.startswith("Caused by:")]
    return (
        expectation_failure(error, plan)
        or worker_failure(error, plan)
        or RunError(f"{plan.pipeline}: {(causes or [first_line(error)])[-1]}", where=plan.origin)
    )


def first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]
