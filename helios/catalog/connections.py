"""Connections to catalogs: one per catalog value and process, with failover between replicas."""

from __future__ import annotations

import os
import pkgutil
import re
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from helios.catalog.catalogs import CATALOGS
from helios.catalog.conf import pyiceberg_properties, replicas
from helios.catalog.diagnosis import brief, chain, diagnose, evidence
from helios.catalog.spec import Catalog
from helios.errors import ConfigError, HeliosError, Origin, RunError

if TYPE_CHECKING:
    import pyiceberg.catalog

    PyCatalog = pyiceberg.catalog.Catalog

T = TypeVar("T")


def prepare(catalog: Catalog) -> None:
    """Creates what a writer needs, such as an embedded catalog's folder; call it before Spark starts.

    Raises:
        EnvironmentProblem: It cannot be created.
    """
    make = CATALOGS[catalog.type].prepare
    if make is not None:
        make(catalog)


def client(catalog: Catalog) -> PyCatalog:
    """PyIceberg's own catalog object, connected to the replica that answered last.

    Raises:
        RunError: It cannot be reached.
    """
    return ask(catalog, lambda connection: connection)


def ask(catalog: Catalog, question: Callable[[PyCatalog], T], passing: tuple[type[Exception], ...] = ()) -> T:
    """Runs a call against a catalog: first on the replica that answered last, then on the others.

    Another replica is tried only if the one before certainly never received the request.

    Args:
        catalog: The catalog.
        question: The call, given PyIceberg's client.
        passing: Errors to raise unchanged, besides Helios's own and PyIceberg's about missing or existing names.

    Raises:
        RunError: No replica answered, or one failed; the message has the likely cause and the fix.
        ConfigError: The settings are wrong, such as a credential.
    """
    ordered = _by_luck(catalog)
    for tried, replica in enumerate(ordered, 1):
        try:
            answer = question(_connected(replica))
        except Exception as error:
            if isinstance(error, (HeliosError, *passing, *_names())):
                raise
            # Clients raise what their HTTP, SQL or Thrift library raises: there is no common root to name.
            diagnosis = diagnose(error)
            if diagnosis is not None and diagnosis.unreached and tried < len(ordered):
                continue
            raise failed(catalog, error, every=tried == len(ordered) > 1) from error
        if len(ordered) > 1:
            _ANSWERED[os.getpid(), catalog] = replica
        return answer
    raise AssertionError("a catalog has at least one address")


def failed(catalog: Catalog, error: BaseException, every: bool = False) -> ConfigError | RunError:
    """The error for a failure of a catalog, with its likely cause, the evidence and the fix."""
    address = _address(catalog, error)
    more = " (all replicas were tried)" if every else ""
    what = f"catalog {catalog.name!r} ({catalog.type}){f' at {address}' if address else ''} failed{more}"
    return failure(catalog, what, error)


def failure(catalog: Catalog, what: str, error: BaseException, where: Origin | None = None) -> ConfigError | RunError:
    """The error for a failure of a catalog or its storage: of the input or of the run, with cause and fix."""
    diagnosis, where = diagnose(error), where or catalog.origin
    if diagnosis is None:
        return RunError(f"{what}: {brief(error)}", where=where, fix=f"run `helios doctor --catalog {catalog.name}`.")
    kind = ConfigError if diagnosis.settings else RunError
    return kind(f"{what}: {diagnosis.cause} ({evidence(error)}).", where=where, fix=f"{diagnosis.fix}.")


def lock_of(key: Hashable) -> threading.Lock:
    """The lock under which one thread creates a shared object."""
    with _LOCK:
        return _LOCKS.setdefault(key, threading.Lock())


_LOCK = threading.Lock()
_LOCKS: dict[Hashable, threading.Lock] = {}
_POOL: dict[tuple[int, Catalog], PyCatalog] = {}
_ANSWERED: dict[tuple[int, Catalog], Catalog] = {}


def _by_luck(catalog: Catalog) -> list[Catalog]:
    every = replicas(catalog)
    last = _ANSWERED.get((os.getpid(), catalog))
    return sorted(every, key=lambda replica: replica != last) if last is not None else list(every)


def _connected(catalog: Catalog) -> PyCatalog:
    # A forked child must not share its parent's sockets.
    key = (os.getpid(), catalog)
    with lock_of(key):
        if key not in _POOL:
            prepare(catalog)
            _POOL[key] = _connect(catalog)
        return _POOL[key]


def _connect(catalog: Catalog) -> PyCatalog:
    own, properties = CATALOGS[catalog.type].client, pyiceberg_properties(catalog)
    if own is None:
        from pyiceberg.catalog import load_catalog

        return load_catalog(catalog.name, **properties)
    made: PyCatalog = pkgutil.resolve_name(own)(catalog.name, **properties)
    return made


def _names() -> tuple[type[Exception], ...]:
    """PyIceberg's errors for namespaces and tables that are missing, or exist already."""
    from pyiceberg import exceptions

    return (
        exceptions.NamespaceAlreadyExistsError,
        exceptions.NoSuchNamespaceError,
        exceptions.NoSuchTableError,
        exceptions.TableAlreadyExistsError,
    )


def addresses(catalog: Catalog) -> tuple[str, ...]:
    """The addresses in a catalog's settings: of its servers and of its token endpoint."""
    given = (catalog.option(name) or () for name in ("uri", "endpoint", "oauth2_server_uri"))
    return tuple(address for one in given for address in (one if isinstance(one, tuple) else (str(one),)))


def _address(catalog: Catalog, error: BaseException) -> str:
    """The addresses that an error mentions; empty if it is about something else, such as the storage."""
    said = " ".join(map(str, chain(error)))
    return ", ".join(address for address in addresses(catalog) if _spoken_of(address, said))


def _spoken_of(address: str, said: str) -> bool:
    parts = urlsplit(address)
    port = parts.port is None or re.search(rf"\b{parts.port}\b", said) is not None
    return (parts.hostname or address) in said and port
