"""Proxies of Java objects in Python, without the reference cycles of py4j's own proxies.

The JVM releases an object when Python frees the object's proxy. But py4j's own proxies keep the methods that were
called, and each method keeps its proxy. Only a full garbage collection of Python frees such a cycle, perhaps an hour
later. Until then, the JVM keeps all objects of a batch, such as a table's metadata with every snapshot. The proxies of
this module create a method at each access, so they are freed with their last reference.

But a proxy that Python returns to a call from the JVM would be freed too early. py4j sends the object's id and drops
the proxy, so the JVM could release the object before the JVM has looked up the id. Therefore each thread keeps the last
proxy that it sent: the thread sends the next proxy only after the JVM has looked up the previous id.
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
        # This skips the constructors of py4j's collections, which would keep methods as attributes.
        JavaObject.__init__(self, target_id, gateway_client)

    def _get_object_id(self) -> str:
        """The object's id, for a message to the JVM; keeps this proxy until the thread sends the next proxy."""
        _SENT.last = self
        return str(self._target_id)

    def __getattr__(self, name: str) -> Any:
        if is_magic_member(name):
            raise AttributeError(name)
        if self._auto_field:  # py4j's option to access Java fields by name, which pyspark does not use
            return super().__getattr__(name)
        return _member(self, name)


def _member(proxy: Proxy, name: str) -> JavaMember:
    return JavaMember(name, proxy, proxy._target_id, proxy._gateway_client)


def _method(name: str) -> property:
    """A property that creates a Java method at each access, where py4j's own collections store the method."""
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


RELEASE_SECONDS = 0.05
"""The interval at which py4j's thread releases the objects of freed proxies. py4j's default is one second, and many
tables can be loaded in a second."""

PROXIES: dict[str, type[Proxy]] = {
    protocol.REFERENCE_TYPE: Proxy,
    protocol.ARRAY_TYPE: ProxyArray,
    protocol.ITERATOR_TYPE: ProxyIterator,
    protocol.LIST_TYPE: ProxyList,
    protocol.MAP_TYPE: ProxyMap,
    protocol.SET_TYPE: ProxySet,
}
"""The proxy class for each of py4j's result types."""


def free_with_last_reference() -> None:
    """Makes py4j use the proxies of this module in the whole process, and release the objects of freed proxies soon.

    Objects that exist already keep their old proxies.
    """
    for result_type, proxy in PROXIES.items():
        register_output_converter(result_type, proxy)
    clientserver.DEFAULT_WORKER_SLEEP_TIME = RELEASE_SECONDS
