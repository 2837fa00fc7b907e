"""Connects to catalogs. Equal catalogs share a connection in each process, and replicas are tried one after another."""

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
    """Creates what a writer needs, such as an embedded catalog's folder. Raises an EnvironmentProblem if it cannot."""
    create = CATALOGS[catalog.type].prepare
    if create is not None:
        create(catalog)


def client(catalog: Catalog) -> PyCatalog:
    """PyIceberg's own catalog object, connected to the replica that answered last. Raises the errors of `ask`."""
    return ask(catalog, lambda connection: connection)


def ask(catalog: Catalog, call: Callable[[PyCatalog], T]) -> T:
    """Runs a call against a catalog: first on the replica that answered last, then on the others.

    The next replica is tried only if the previous one has certainly not received the request. Errors of Helios, and
    those of PyIceberg about names that are missing or exist already, are raised unchanged.

    Args:
        call: The call, with PyIceberg's client as its argument.

    Raises:
        RunError: No replica answered, or a call failed; the message has the likely cause and the fix.
        ConfigError: The settings are wrong, such as a credential.
    """
    ordered = _last_answered_first(catalog)
    for tried, replica in enumerate(ordered, 1):
        try:
            answer = call(_connected(replica))
        except Exception as error:
            if isinstance(error, (HeliosError, *_name_errors())):
                raise
            # The HTTP, SQL and Thrift libraries of the clients have no common base class for errors.
            diagnosis = diagnose(error)
            if diagnosis is not None and diagnosis.unreached and tried < len(ordered):
                continue
            raise _call_error(catalog, error, all_tried=len(ordered) > 1 and tried == len(ordered)) from error
        if len(ordered) > 1:
            _LAST_ANSWERED[os.getpid(), catalog] = replica
        return answer
    raise AssertionError("a catalog has at least one address")


def _call_error(catalog: Catalog, error: BaseException, all_tried: bool) -> ConfigError | RunError:
    """The error for a failed call of a catalog, with the likely cause, the evidence for it and the fix."""
    mentioned = _mentioned_addresses(catalog, error)
    at = f" at {mentioned}" if mentioned else ""
    replicas_tried = " (all replicas were tried)" if all_tried else ""
    return failure(catalog, f"catalog {catalog.name!r} ({catalog.type}){at} failed{replicas_tried}", error)


def failure(catalog: Catalog, what: str, error: BaseException, where: Origin | None = None) -> ConfigError | RunError:
    """The error for a failed call of a catalog or its storage. It is a ConfigError if the settings are wrong."""
    diagnosis, where = diagnose(error), where or catalog.origin
    if diagnosis is None:
        return RunError(f"{what}: {brief(error)}", where=where, fix=f"run `helios doctor --catalog {catalog.name}`.")
    error_class = ConfigError if diagnosis.wrong_settings else RunError
    return error_class(f"{what}: {diagnosis.cause} ({evidence(error)}).", where=where, fix=f"{diagnosis.fix}.")


def lock_of(key: Hashable) -> threading.Lock:
    """The lock for a shared object, which a thread holds while it creates or loads the object."""
    with _LOCK:
        return _LOCKS.setdefault(key, threading.Lock())


_LOCK = threading.Lock()
_LOCKS: dict[Hashable, threading.Lock] = {}
_CLIENTS: dict[tuple[int, Catalog], PyCatalog] = {}
_LAST_ANSWERED: dict[tuple[int, Catalog], Catalog] = {}


def _last_answered_first(catalog: Catalog) -> list[Catalog]:
    """The replicas of a catalog. The replica that answered the last call comes first."""
    last_answered = _LAST_ANSWERED.get((os.getpid(), catalog))
    return sorted(replicas(catalog), key=lambda replica: replica != last_answered)


def _connected(catalog: Catalog) -> PyCatalog:
    # A forked child must not share its parent's sockets.
    key = (os.getpid(), catalog)
    with lock_of(key):
        if key not in _CLIENTS:
            prepare(catalog)
            _CLIENTS[key] = _connect(catalog)
        return _CLIENTS[key]


def _connect(catalog: Catalog) -> PyCatalog:
    client_class, properties = CATALOGS[catalog.type].client, pyiceberg_properties(catalog)
    if client_class is None:
        from pyiceberg.catalog import load_catalog

        return load_catalog(catalog.name, **properties)
    connection: PyCatalog = pkgutil.resolve_name(client_class)(catalog.name, **properties)
    return connection


def _name_errors() -> tuple[type[Exception], ...]:
    """PyIceberg's errors for namespaces and tables that are missing, or exist already."""
    from pyiceberg import exceptions

    return (
        exceptions.NamespaceAlreadyExistsError,
        exceptions.NoSuchNamespaceError,
        exceptions.NoSuchTableError,
        exceptions.TableAlreadyExistsError,
    )


def addresses(catalog: Catalog) -> tuple[str, ...]:
    """The addresses in a catalog's settings: those of its servers, and that of its token endpoint."""
    listed: list[str] = []
    for name in ("uri", "endpoint", "oauth2_server_uri"):
        setting = catalog.option(name)
        if isinstance(setting, tuple):
            listed += setting
        elif setting:
            listed.append(str(setting))
    return tuple(listed)


def _mentioned_addresses(catalog: Catalog, error: BaseException) -> str:
    """The catalog's addresses that an error mentions; "" if the error is about something else, such as the storage."""
    text = " ".join(map(str, chain(error)))
    return ", ".join(address for address in addresses(catalog) if _mentions(text, address))


def _mentions(text: str, address: str) -> bool:
    parts = urlsplit(address)
    has_port = parts.port is None or re.search(rf"\b{parts.port}\b", text) is not None
    return has_port and (parts.hostname or address) in text
