"""Checks whether the servers of a catalog and its storage answer, and names the credentials that their clients use."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from helios.catalog.adls import Account
from helios.catalog.catalogs import CATALOGS
from helios.catalog.conf import pyiceberg_properties, storage_of, warehouse
from helios.catalog.connections import ask, failure
from helios.catalog.diagnosis import diagnose
from helios.catalog.spec import Catalog
from helios.catalog.storage import Storage
from helios.catalog.storages import storage_type_of
from helios.errors import HeliosError
from helios.model.values import Secret

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

T = TypeVar("T")

PROBE_SECONDS = 8.0
"""The time limit of a probe."""
CONNECT_SECONDS = 3.0
_SHORT_TIMEOUTS = {
    "s3.request-timeout": "5",
    "s3.retry-strategy-impl": "helios.catalog.clients.single_attempt.SingleAttempt",
}
_PORTS = {"http": 80, "https": 443, "thrift": 9083}
# Diagnoses that do not prove wrong settings: credentials may be allowed to write a table, but not to list its bucket.
_INCONCLUSIVE = ("forbidden", "unauthorized", "no credentials", "no catalog")


class TooLong(TimeoutError):
    """A probe took longer than its limit."""


def with_time_limit(probe: Callable[[], T], seconds: float = PROBE_SECONDS) -> T:
    """Runs a probe in a thread of its own. After the time limit, abandons the thread and raises `TooLong`."""
    answers: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(probe())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="helios-look", daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    if not answers:
        raise TooLong(f"no answer within {seconds:g} s")
    return answers[0]


def reach(address: str) -> None:
    """Connects to a server, with a TLS handshake if the address is https. Raises an OSError if it cannot be reached."""
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 443)
    if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        return  # clients connect to the proxy, not to the server
    with socket.create_connection((host, port), CONNECT_SECONDS) as connection:
        if parts.scheme == "https":
            # The certificate is not checked here, because each client has its own certificate authorities.
            context = ssl._create_unverified_context()
            context.wrap_socket(connection, server_hostname=host).close()


def storage_addresses(storage: Storage) -> tuple[str, ...]:
    """The addresses of a storage's servers; empty if its client knows the cloud's address."""
    if storage.type == "adls":
        account = Account(storage)
        return (str(account.endpoint or f"https://{account.name}.blob.{account.suffix}"),)
    endpoint = storage.option("endpoint")
    return (str(endpoint),) if endpoint else ()


def check_storage_access(catalog: Catalog, location: str) -> None:
    """Checks that the credentials of a catalog's storage can list a location, without writing.

    Raises:
        ConfigError: The settings of the storage are wrong.
        RunError: The storage cannot be reached.
    """
    storage = storage_of(catalog)
    if (
        storage is None
        or storage.type != storage_type_of(location)
        or storage.type == "local"
        or vends_credentials(catalog)
    ):
        return

    def ask_storage() -> None:
        for address in storage_addresses(storage):
            reach(address)
        _list_missing_folder(file_io(catalog, location), location)

    try:
        with_time_limit(ask_storage)
    except (FileNotFoundError, TooLong):
        return  # not a wrong setting: the first table creates the folder, and a busy machine may be slow
    except Exception as error:
        # The clients' libraries have no common base class for errors.
        diagnosis = diagnose(error)
        if diagnosis is not None and diagnosis.name not in _INCONCLUSIVE:
            raise _storage_error(catalog, location, error) from error


def vends_credentials(catalog: Catalog) -> bool:
    """True if the catalog's server vends the credentials of its storage."""
    return CATALOGS[catalog.type].vends_credentials and not (catalog.storage and _secret_names(catalog.storage))


def _storage_error(catalog: Catalog, location: str, error: BaseException) -> HeliosError:
    storage = storage_of(catalog)
    addresses = ", ".join(storage_addresses(storage)) if storage else ""
    at = f" at {addresses}" if addresses else ""
    what = f"catalog {catalog.name!r}: its storage {location}{at} failed"
    return failure(catalog, what, error, storage.origin if storage else None)


def file_io(catalog: Catalog, location: str) -> FileIO:
    """PyIceberg's file access to a location, with short timeouts."""
    from pyiceberg.io import load_file_io

    return load_file_io({**pyiceberg_properties(catalog), **_SHORT_TIMEOUTS}, location)


def _list_missing_folder(io: FileIO, location: str) -> None:
    """Lists a folder that does not exist. An error other than FileNotFoundError shows why the storage refuses access.

    A folder is listed, because servers give no reason when they refuse access to a single file. If the file access
    is fsspec's, the container is looked up instead.
    """
    from pyiceberg.io.pyarrow import PyArrowFileIO

    parts = urlsplit(location)
    if isinstance(io, PyArrowFileIO):
        from pyarrow.fs import FileSelector

        folder = f"{parts.netloc}/{parts.path.strip('/')}/.helios-look"
        io.fs_by_scheme(parts.scheme, parts.netloc).get_file_info(FileSelector(folder, allow_not_found=False))
    else:
        fsspec_io: Any = io
        container = parts.netloc.split("@")[0]
        try:
            fsspec_io.get_fs(parts.scheme, parts.hostname).info(container)
        except FileNotFoundError as error:
            raise OSError(f"NoSuchBucket: {container} does not exist") from error


# Folders of tables, also if only the server knows them


def table_folder(catalog: Catalog) -> tuple[str, FileIO] | None:
    """A folder in which a catalog has tables or creates them, and file access to it; None if the server names none.

    Raises:
        RunError: The catalog cannot be reached.
    """
    declared = warehouse(catalog)
    if declared is not None and not vends_credentials(catalog):
        return declared, file_io(catalog, declared)
    return ask(catalog, lambda connection: _folder_of_tables(catalog, connection, declared))


def _folder_of_tables(catalog: Catalog, connection: Any, declared: str | None) -> tuple[str, FileIO] | None:
    """The folder of the first table, or else the first folder for tables that the server names, with file access."""
    namespaces = list(connection.list_namespaces())
    for namespace in namespaces:
        for name in connection.list_tables(namespace):
            table = connection.load_table(name)  # the response has the credentials, if the server vends any
            return table.location(), table.io
    candidates = [declared, connection.properties.get("warehouse"), connection.properties.get("default-base-location")]
    candidates += [connection.load_namespace_properties(namespace).get("location") for namespace in namespaces]
    folder = next((str(candidate) for candidate in candidates if candidate and storage_type_of(str(candidate))), None)
    return (folder, file_io(catalog, folder)) if folder else None


# Credentials, whose values are never shown


def catalog_credentials(catalog: Catalog) -> str | None:
    """A text with the names and the origin of the credentials of a catalog's client; None if there is no login."""
    if catalog.type == "glue":
        profile = catalog.option("profile")
        return f"profile {profile}" if profile else _shown_secrets(catalog.storage) or _aws_chain()
    if not any(key.secret for key in CATALOGS[catalog.type].keys):
        return None
    return _shown_secrets(catalog) or "none are given"


def storage_credentials(catalog: Catalog) -> str | None:
    """A text with the names and the origin of the credentials of a catalog's storage; None for local folders."""
    storage = storage_of(catalog)
    if storage is None or storage.type == "local":
        return "those that the server vends" if vends_credentials(catalog) and warehouse(catalog) is None else None
    if storage.type == "gcs" and str(storage.option("endpoint") or "").startswith("http://"):
        return "none: an http:// endpoint is an emulator"
    vended = "those that the server vends, else " if vends_credentials(catalog) else ""
    return _shown_secrets(storage) or f"{vended}{_CHAINS[storage.type]()}"


def _secret_names(declared: Catalog | Storage) -> list[str]:
    return [name for name, value in declared.options if isinstance(value, Secret) or name == "service_account_key"]


def _shown_secrets(declared: Catalog | Storage | None) -> str | None:
    """The names of the declared secrets, and where they are declared; None if there is none."""
    names = _secret_names(declared) if declared else []
    if declared is None or not names:
        return None
    where = f" at {declared.origin}" if declared.origin else ""
    return f"{', '.join(f'{name} ***' for name in names)}, given{where}"


def _aws_chain() -> str:
    try:
        from botocore.session import Session
    except ImportError:
        return _from_environment("AWS", ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN"))
    session: Any = Session()
    credentials = session.get_credentials()
    profile = f", profile {session.profile}" if session.profile else ""
    method = f": {credentials.method}" if credentials else ", which has none"
    return f"AWS's default chain{method}{profile}"


def _from_environment(cloud: str, variables: tuple[str, ...]) -> str:
    present = [name for name in variables if os.environ.get(name)]
    suffix = f": {', '.join(present)} in the environment" if present else ""
    return f"{cloud}'s default chain{suffix}"


_CHAINS: dict[str, Callable[[], str]] = {
    "s3": _aws_chain,
    "adls": lambda: _from_environment("Azure", ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID")),
    "gcs": lambda: _from_environment("Google", ("GOOGLE_APPLICATION_CREDENTIALS",)),
}
