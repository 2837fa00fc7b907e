"""The JVM's classes by their Java names, and arrays and lists of its objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from py4j.java_gateway import GatewayClient, JavaClass, JavaMember
from py4j.protocol import STATIC_PREFIX
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

from helios.spark.jvm.types.java import JavaArray, JavaCollection

T = TypeVar("T")


def classes() -> Any:
    """The root of all Java packages: `classes().java.util.HashMap()`.

    py4j's own root object asks the JVM whether each part of a name is a package or a class. For a package, the JVM
    searches every jar, which takes a millisecond. The root object of this function goes by Java's naming convention
    instead: the name of a class begins with a capital letter.
    """
    gateway = SparkContext._gateway
    assert gateway is not None
    return Package("", gateway._gateway_client)


class Package:
    """A Java package, by its full name."""

    def __init__(self, name: str, client: GatewayClient) -> None:
        self._name, self._client = name, client

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._name}.{name}" if self._name else name
        return (Class if name[0].isupper() else Package)(full, self._client)


class Class(JavaClass):  # type: ignore[misc]
    """A Java class. A member with a lower-case name is taken for a static method, without asking the JVM."""

    def __getattr__(self, name: str) -> Any:
        if name[0].islower():
            return JavaMember(name, None, STATIC_PREFIX + self._fqn, self._gateway_client)
        return super().__getattr__(name)


def listed(collection: JavaCollection[T]) -> list[T]:
    """The elements of a Java collection.

    A Python loop over the collection would end with a Java exception, and pyspark makes a dozen JVM calls for it.
    """
    return list(collection.toArray())


def java_array(element: JavaClass, elements: Sequence[T] = (), *, size: int | None = None) -> JavaArray[T]:
    """A Java array.

    Args:
        element: The Java class of the elements, from `classes()`.
        size: The length of the array; by default the number of elements.
    """
    gateway = SparkContext._gateway
    assert gateway is not None
    array = gateway.new_array(element, len(elements) if size is None else size)
    for index, value in enumerate(elements):
        array[index] = value
    typed: JavaArray[T] = array
    return typed


def allow_callbacks() -> None:
    """Allows threads of the JVM to call Python objects that implement Java interfaces."""
    ensure_callback_server_started(SparkContext._gateway)  # type: ignore[no-untyped-call]
