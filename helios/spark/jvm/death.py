"""Detects that the JVM of this process has ended. Calls into the JVM then fail with connection errors."""

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
"""The errors that a call into a JVM may raise after the JVM has ended."""

EXIT_SECONDS = 2.0
"""The time to wait for the exit status of the JVM: the sockets of a killed process close before its status is known."""


def java_death() -> EnvironmentProblem | None:
    """The error to raise if the JVM that this process started has ended; None if it has not ended."""
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
            "check whether the kernel killed the process for lack of memory (`dmesg`), and lower spark.driver.memory "
            "or use a larger machine; then run again: the run writes the rows that were not committed"
        )
    return EnvironmentProblem(f"the Java process of Spark has ended ({_ending(status)}).", fix=f"{fix}.")


def _ending(status: int) -> str:
    """The exit status of a process in words.

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


def hide_death_messages() -> None:
    """Hides what py4j and pyspark print after the JVM has ended, because the run reports the end in one line."""
    if _is_other_record not in logging.root.filters:
        logging.root.addFilter(_is_other_record)
    server: BaseServer | None = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is not None:
        show_error = server.handle_error

        def handle_error(request: _Request, client_address: str) -> None:
            if java_death() is None:
                show_error(request, client_address)

        server.handle_error = handle_error  # type: ignore[method-assign]


def _is_other_record(record: logging.LogRecord) -> bool:
    """True for log records that do not report the end of the JVM."""
    raised = record.exc_info[1] if record.exc_info else None
    return not (isinstance(raised, NO_ANSWER) and java_death() is not None)
