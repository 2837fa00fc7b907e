"""Java exceptions: their class, their message, and which of them mean a conflict."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError

CONFLICTS = ("ValidationException", "CommitFailedException")
"""How Iceberg says that others have committed what does not go together with a change."""

FAILED = "helios: expectation failed: "
"""Prefix of a failed expectation's message inside Spark's own."""


def java_class(error: Py4JJavaError) -> str:
    """The simple class name of the Java exception behind an error."""
    return str(error.java_exception.getClass().getSimpleName())


def java_message(error: Py4JJavaError) -> str:
    """The first line of the Java exception's message."""
    text = str(error.java_exception.getMessage() or java_class(error))
    return text.splitlines()[0]
