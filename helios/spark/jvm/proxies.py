"""Python's proxies of Java objects, without the reference cycles of py4j's own.

py4j has the JVM let an object go when its proxy in Python is freed. But its proxies remember each method that they were
asked for, and a method holds its proxy: only Python's full collection of cycles frees such a pair, and that may be an
hour away. Until then the JVM keeps what each batch has loaded, a table's metadata with every snapshot among it. These
proxies make a method whenever one is asked for, so that they are freed with the last reference to them.

That is too early for what Python returns to a call of the JVM's: py4j sends the id of the object, drops the proxy, and
the JVM may forget the object before it has looked the id up. So each thread keeps the last object that it sent: it
sends another one only after the JVM has taken that one.
"""

from __future__ import annotations

import threading
from typing import Any

from py4j import clientserver, protocol
from py4j.java_collections import JavaArray, JavaIterator, JavaList, JavaMap, JavaSet
from py4j.java_gateway import GatewayClient, JavaMember, JavaObject, is_magic_member
from py4j.protocol import Py4JError, register_output_converter

_SENT = threading.local()


class Proxy(JavaObject):  # type: ignore[misc]
    """A Java object."""

    def __init__(self, target_id: str, gateway_client: GatewayClient) -> None:
        JavaObject.__init__(self, target_id, gateway_client)  # py4j's collections would keep methods as attributes

    def _get_object_id(self) -> str:
        """The id, for a message to the JVM."""
        _SENT.last = self
        return str(self._target_id)

    def __getattr__(self, name: str) -> Any:
        if is_magic_member(name):
            raise AttributeError(name)
        if self._auto_field:  # fields and methods have one name space; pyspark does not ask for it
            return super().__getattr__(name)
        return _member(self, name)


def _member(proxy: Proxy, name: str) -> JavaMember:
    return JavaMember(name, proxy, proxy._target_id, proxy._gateway_client)


def _method(name: str) -> property:
    """A property for a method that py4j keeps as an attribute of a collection."""
    return property(lambda proxy: _member(proxy, name))


class ProxyArray(Proxy, JavaArray):  # type: ignore[misc]
    """A Java array."""


class ProxyIterator(Proxy, JavaIterator):  # type: ignore[misc]
    """A `java.util.Iterator`."""

    def next(self) -> Any:
        try:
            return _member(self, "next")()
        except Py4JError:
            raise StopIteration from None

    __next__ = next


class ProxyList(Proxy, JavaList):  # type: ignore[misc]
    """A `java.util.List`."""

    java_remove = _method("remove")


class ProxyMap(Proxy, JavaMap):  # type: ignore[misc]
    """A `java.util.Map`."""

    _get = _method("get")


class ProxySet(Proxy, JavaSet):  # type: ignore[misc]
    """A `java.util.Set`."""

    _add, _clear, _remove = _method("add"), _method("clear"), _method("remove")


LOOKS = 0.05
"""Seconds between two looks of py4j's thread at what Python has freed; in its own second tables are loaded often."""

PROXIES: dict[str, type[Proxy]] = {
    protocol.REFERENCE_TYPE: Proxy,
    protocol.ARRAY_TYPE: ProxyArray,
    protocol.ITERATOR_TYPE: ProxyIterator,
    protocol.LIST_TYPE: ProxyList,
    protocol.MAP_TYPE: ProxyMap,
    protocol.SET_TYPE: ProxySet,
}
"""By py4j's names of the kinds of what a call returns."""


def free_with_last_reference() -> None:
    """Makes py4j use these proxies from now on, and free their objects soon, for the whole process.

    Objects that are there keep theirs.
    """
    for kind, proxy in PROXIES.items():
        register_output_converter(kind, proxy)
    clientserver.DEFAULT_WORKER_SLEEP_TIME = LOOKS
