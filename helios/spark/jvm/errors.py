"""Reads the class, the message and the causes of Java exceptions, and defines the prefixes of Helios's own messages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from py4j.protocol import Py4JJavaError

from helios.spark.jvm.types.java import JavaThrowable

CONFLICTS = ("ValidationException", "CommitFailedException")
"""Iceberg's exceptions for a commit that conflicts with another writer's commit."""

EXPECTATION_PREFIX = "helios: expectation failed: "
"""The prefix of Helios's message about a failed expectation, inside Spark's message."""

EVENT_TIME_PREFIX = "helios: no event time: "
"""The prefix of Helios's message about a row without an event time, inside Spark's message."""

REGISTRY_PREFIX = "helios: registry: "
"""The prefix of a task's message about a schema that the schema registry refuses, inside Spark's message."""

BAD_ROW_PREFIX = "helios: bad row: "
"""The prefix, inside Spark's message, of a JSON object with a row that does not parse and the row's file or topic."""

FAILED_READ_PATTERN = re.compile(r"\[FAILED_READ_FILE[.\w]*\] .*?(?:reading file|File) (\S+?)\.? ", re.DOTALL)
"""The pattern of Spark's message about a file that Spark could not read."""


def java_exception(error: Py4JJavaError) -> JavaThrowable:
    exception: JavaThrowable = error.java_exception
    return exception


def java_class(error: Py4JJavaError) -> str:
    """The simple class name of the Java exception behind an error."""
    return java_exception(error).getClass().getSimpleName()


def java_message(error: Py4JJavaError) -> str:
    """The first line of the Java exception's message; the name of its class if there is no message."""
    return (java_exception(error).getMessage() or java_class(error)).splitlines()[0]


def java_causes(error: BaseException) -> Iterator[JavaThrowable]:
    """The Java exception behind an error, and its causes, outermost first; empty if no Java exception is behind it."""
    # pyspark keeps the Java exception of its own classes in `_origin`.
    cause = java_exception(error) if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    for _ in range(MAX_CAUSES):
        if cause is None:
            return
        yield cause
        cause = cause.getCause()


MAX_CAUSES = 20
"""The maximum number of exceptions in a chain that are read, because a chain of causes may have a cycle."""


def innermost_message(error: BaseException) -> str:
    """The first line of the innermost message among an error's Java causes."""
    messages = [text for cause in java_causes(error) if (text := str(cause.getMessage() or "").strip())]
    if not messages and isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getSimpleName())
    return (messages[-1] if messages else str(error)).strip().splitlines()[0]


def unreadable_file(error: BaseException) -> str | None:
    """The file that Spark could not read, as Spark's message names the file; None for any other error."""
    cause: BaseException | None = error
    while cause is not None:
        match = FAILED_READ_PATTERN.search(str(cause))
        if match is not None:
            return match[1]
        cause = cause.__cause__
    return None
