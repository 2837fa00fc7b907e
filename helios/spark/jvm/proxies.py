"""Python's proxies of Java objects, without the reference cycles of py4j's own.

The JVM releases an object when Python frees the object's proxy. But py4j's own proxies keep the methods that were
called, and a method keeps its proxy: only Python's full garbage collection frees this cycle, perhaps an hour later.
Until then the JVM keeps all objects of a batch, such as a table's metadata with every snapshot. The proxies of this
module create a method at each access, and are freed with their last reference.

That is too early for a proxy that Python returns to a call from the JVM: py4j sends the object's id and drops the
proxy, and the JVM may release the object before it has looked up the id. So each thread keeps the last proxy that it
sent. The thread sends the next proxy only after the JVM has looked up that id.
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
        if self._auto_field:  # py4j's option to reach fields by their names, which pyspark does not use
            return super().__getattr__(name)
        return _member(self, name)


def _member(proxy: Proxy, name: str) -> JavaMember:
    return JavaMember(name, proxy, proxy._target_id, proxy._gateway_client)


def _method(name: str) -> property:
    """A property for a Java method that py4j's own collection keeps as an attribute."""
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
"""How often py4j's thread releases the objects of freed proxies. In one second, py4j's default, many tables load."""

PROXIES: dict[str, type[Proxy]] = {
    protocol.REFERENCE_TYPE: Proxy,
    protocol.ARRAY_TYPE: ProxyArray,
    protocol.ITERATOR_TYPE: ProxyIterator,
    protocol.LIST_TYPE: ProxyList,
    protocol.MAP_TYPE: ProxyMap,
    protocol.SET_TYPE: ProxySet,
}
"""The proxy class of each of py4j's types of results."""


def free_with_last_reference() -> None:
    """Makes py4j use these proxies from now on in the whole process, and release their objects soon.

    Existing objects keep their proxies.
    """
    for kind, proxy in PROXIES.items():
        register_output_converter(kind, proxy)
    clientserver.DEFAULT_WORKER_SLEEP_TIME = RELEASE_SECONDS
