"""Java's and Scala's own objects: classes, exceptions, collections and arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
K_co = TypeVar("K_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


class JavaObject(Protocol):
    """A `java.lang.Object`."""

    def getClass(self) -> JavaClass: ...

    def toString(self) -> str: ...


class JavaClass(JavaObject, Protocol):
    """A `java.lang.Class`."""

    def getName(self) -> str: ...

    def getSimpleName(self) -> str: ...

    def getClassLoader(self) -> JavaClassLoader: ...

    def getInterfaces(self) -> JavaArray[JavaClass]: ...

    def getMethod(self, name: str, parameters: JavaArray[JavaClass]) -> JavaObject: ...

    def getConstructors(self) -> JavaArray[JavaConstructor]: ...


class JavaConstructor(JavaObject, Protocol):
    """A `java.lang.reflect.Constructor`."""

    def newInstance(self, arguments: JavaArray[object]) -> JavaObject: ...


class JavaClassLoader(JavaObject, Protocol):
    """A `java.lang.ClassLoader`."""

    def loadClass(self, name: str) -> JavaClass: ...


class JavaThrowable(JavaObject, Protocol):
    """A `java.lang.Throwable`."""

    def getMessage(self) -> str | None: ...

    def getCause(self) -> JavaThrowable | None: ...


class JavaEnum(JavaObject, Protocol):
    """A `java.lang.Enum`; `str()` of it is its name."""

    def name(self) -> str: ...


# collections


class JavaIterator(JavaObject, Protocol[T_co]):
    """A `java.util.Iterator`."""

    def hasNext(self) -> bool: ...

    def next(self) -> T_co: ...


class JavaIterable(JavaObject, Protocol[T_co]):
    """A `java.lang.Iterable`; Python can iterate over it only if it is a list or a set."""

    def iterator(self) -> JavaIterator[T_co]: ...

    def __iter__(self) -> Iterator[T_co]: ...


class JavaCloseableIterable(JavaIterable[T_co], Protocol[T_co]):
    """An `org.apache.iceberg.io.CloseableIterable`."""

    def close(self) -> None: ...


class JavaCollection(JavaIterable[T_co], Protocol[T_co]):
    """A `java.util.Collection`; `helios.spark.jvm.classes.listed` makes a Python list of it."""

    def size(self) -> int: ...

    def isEmpty(self) -> bool: ...

    def toArray(self) -> JavaArray[T_co]: ...


class JavaList(JavaCollection[T], Protocol[T]):
    """A `java.util.List`."""

    def get(self, index: int) -> T: ...

    def add(self, element: T) -> bool: ...

    def addAll(self, elements: JavaCollection[T]) -> bool: ...

    def __len__(self) -> int: ...


class JavaSet(JavaCollection[T], Protocol[T]):
    """A `java.util.Set`."""

    def add(self, element: T) -> bool: ...

    def removeAll(self, elements: JavaIterable[T]) -> bool: ...

    def __len__(self) -> int: ...


class JavaMap(JavaObject, Protocol[K, V]):
    """A `java.util.Map`."""

    def get(self, key: K | None) -> V | None: ...

    def getOrDefault(self, key: K, default: V) -> V: ...

    def containsKey(self, key: K) -> bool: ...

    def keySet(self) -> JavaSet[K]: ...

    def __len__(self) -> int: ...

    def values(self) -> Iterable[V]:
        """The values. This is py4j's own method, which loops over the map in Python."""

    def put(self, key: K, value: V) -> V | None: ...

    def putIfAbsent(self, key: K, value: V) -> V | None: ...


class JavaArray(Protocol[T_co]):
    """A Java array."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> T_co: ...

    def __iter__(self) -> Iterator[T_co]: ...


class ScalaSeq(JavaObject, Protocol[T_co]):
    """A `scala.collection.Seq`."""

    def size(self) -> int: ...

    def apply(self, index: int) -> T_co: ...


class ScalaSet(JavaObject, Protocol[T_co]):
    """A `scala.collection.Set`."""

    def toSeq(self) -> ScalaSeq[T_co]: ...


class ScalaMap(JavaObject, Protocol[K_co, T_co]):
    """A `scala.collection.Map`."""

    def keys(self) -> ScalaSet[K_co]: ...

    def get(self, key: str) -> ScalaOption[T_co]: ...


class ScalaOption(JavaObject, Protocol[T_co]):
    """A `scala.Option`."""

    def get(self) -> T_co: ...

    def isDefined(self) -> bool: ...
