"""The end of this process's JVM, after which each call into the JVM fails with a connection error."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
from socketserver import BaseServer

from py4j.protocol import Py4JError
from pyspark import SparkContext

from helios.errors import EnvironmentProblem

_Request = socket.socket | tuple[bytes, socket.socket]
NO_ANSWER = (Py4JError, OSError)
"""The errors of a call into a JVM that is gone."""

EXIT_SECONDS = 2.0
"""How long to wait for the exit status of a killed process: its socket is closed before the status can be read."""


def java_death() -> EnvironmentProblem | None:
    """The error of a JVM that this process started and that has ended; None while it lives."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        status = process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    fix = "run again: the run writes the rows that were not committed"
    if status == -signal.SIGKILL:
        fix = (
            "check whether the kernel killed it for lack of memory (`dmesg`), and lower spark.driver.memory or use a "
            "larger machine; then run again: the run writes the rows that were not committed"
        )
    return EnvironmentProblem(f"the Java process of Spark has ended ({_ending(status)}).", fix=f"{fix}.")


def _ending(status: int) -> str:
    """The end of a process in words, from its status.

    Examples:
        >>> _ending(-9), _ending(3)
        ('killed by SIGKILL', 'exit status 3')
    """
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def quiet_death() -> None:
    """Hides the output of py4j and pyspark at the JVM's end, which the run reports in one line."""
    if _no_death not in logging.root.filters:
        logging.root.addFilter(_no_death)
    server: BaseServer | None = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is not None:
        show_error = server.handle_error

        def handle_error(request: _Request, client_address: str) -> None:
            if java_death() is None:
                show_error(request, client_address)

        server.handle_error = handle_error  # type: ignore[method-assign]


def _no_death(record: logging.LogRecord) -> bool:
    """True if a log record is not about the end of the JVM."""
    raised = record.exc_info[1] if record.exc_info else None
    return not (isinstance(raised, NO_ANSWER) and java_death() is not None)
