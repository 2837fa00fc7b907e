"""The JVM's classes, by names that Python understands by itself."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass
from pyspark import SparkContext


def classes() -> Any:
    """The root of all Java packages: `classes().java.util.HashMap()`.

    py4j's own root asks the JVM what each part of a name is, and for a package the JVM looks through every jar, a
    millisecond each time. Java's convention says the same: a class begins with a capital letter, a package does not.
    """
    gateway: Any = SparkContext._gateway
    return Package("", gateway._gateway_client)


class Package:
    """A Java package.

    Args:
        name: Its full name.
        client: The gateway's client.
    """

    def __init__(self, name: str, client: Any) -> None:
        self._name, self._client = name, client

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._name}.{name}" if self._name else name
        return (JavaClass if name[0].isupper() else Package)(full, self._client)


def listed(collection: Any) -> list[Any]:
    """The elements of a Java collection.

    Python's own loop over one ends with a Java exception, which pyspark asks a dozen times what it is.
    """
    return list(collection.toArray())
