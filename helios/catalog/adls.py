"""Azure Data Lake Storage (and Blob Storage, through its dfs address)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from helios.catalog.keys import HTTP, Fault, Key, Setting, Settings, Value, as_conf
from helios.catalog.rows import StorageRow
from helios.model.values import Secret

if TYPE_CHECKING:
    from helios.catalog.storage import Storage

SUFFIX = "core.windows.net"
"""The domain of Azure's public cloud. Azure's other clouds have other domains, such as core.chinacloudapi.cn."""
_MSI = "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider"


def parsed_connection_string(connection_string: str) -> dict[str, str]:
    """The settings in a connection string of the Azure portal, by name; empty for any other text.

    Examples:
        >>> parsed_connection_string("AccountName=lake;AccountKey=a2V5;EndpointSuffix=core.windows.net")["AccountName"]
        'lake'
    """
    pairs = (part.partition("=") for part in connection_string.split(";") if part.strip())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


class Account:
    """An Azure storage account, from a storage's settings or its connection string."""

    def __init__(self, storage: Storage) -> None:
        connection_string = storage.option("connection_string")
        settings = parsed_connection_string(connection_string.reveal()) if isinstance(connection_string, Secret) else {}
        self.name = str(
            storage.option("account") or settings.get("AccountName") or _account_in(settings.get("BlobEndpoint"))
        )
        self.key = storage.option("account_key") or _secret(settings.get("AccountKey"))
        sas = storage.option("sas_token") or _secret(settings.get("SharedAccessSignature"))
        self.sas = Secret(sas.reveal().removeprefix("?")) if isinstance(sas, Secret) else None
        self.endpoint = storage.option("endpoint")
        self.suffix = settings.get("EndpointSuffix") or SUFFIX
        address = settings.get("BlobEndpoint")
        if address and (suffix := _azure_suffix(address)):
            self.suffix = suffix
        else:
            self.endpoint = self.endpoint or address
        self.host = f"{self.name}.dfs.{self.suffix}"

    def connection_string(self) -> Secret | None:
        """A connection string for clients without a setting for an endpoint; None if the account has no endpoint."""
        if not self.endpoint:
            return None
        pairs = {"BlobEndpoint": str(self.endpoint), "AccountName": self.name}
        if isinstance(self.key, Secret):
            pairs["AccountKey"] = self.key.reveal()
        if self.sas:
            pairs["SharedAccessSignature"] = self.sas.reveal()
        pairs = {"DefaultEndpointsProtocol": urlsplit(str(self.endpoint)).scheme, **pairs}
        return Secret(";".join(f"{name}={value}" for name, value in pairs.items()))


def _secret(text: str | None) -> Secret | None:
    return Secret(text) if text else None


def _azure_suffix(endpoint: str) -> str | None:
    """The domain of an Azure cloud, from a blob endpoint as Azure assigns it; None for any other endpoint."""
    address = urlsplit(endpoint)
    _, service, suffix = (address.hostname or "").partition(".blob.")
    is_plain = address.scheme == "https" and not address.path.strip("/") and address.port in (None, 443)
    return suffix if service and is_plain else None


def _account_in(endpoint: str | None) -> str:
    """The account in a blob endpoint: a part of the host, or the path of an emulator (http://127.0.0.1:10000/name)."""
    parts = urlsplit(endpoint or "")
    in_path = parts.path.strip("/").split("/")[0]
    return in_path or (parts.hostname or "").split(".")[0]


def _warehouse_problem(uri: SplitResult, storage: Storage | None) -> str | None:
    container, _, host = uri.netloc.partition("@")
    if not container or not host or ":" in container:
        return "names no container@account"
    uri_account = host.partition(".")[0]
    account = Account(storage).name if storage is not None else ""
    if account in ("", uri_account):
        return None
    return f"is in the account {uri_account!r}, and the account of its storage is {account!r}"


def _spark(storage: Storage) -> dict[str, Value]:
    account = Account(storage)
    keys: dict[str, Setting | None] = {
        "adls.auth.shared-key.account.name": account.name if account.key else None,
        "adls.auth.shared-key.account.key": account.key,
        f"adls.sas-token.{account.host}": account.sas,
        # Iceberg's "connection string" is the account's address.
        f"adls.connection-string.{account.host}": account.endpoint,
    }
    return as_conf({"io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO", **keys})


def _pyiceberg(storage: Storage) -> dict[str, Value]:
    account = Account(storage)
    return as_conf(
        {
            "py-io-impl": "helios.catalog.clients.adls.AdlsFileIO",
            "adls.account-name": account.name,
            "adls.account-host": None if account.suffix == SUFFIX else f"{account.name}.blob.{account.suffix}",
            "adls.account-key": account.key,
            "adls.sas-token": account.sas,
            "adls.connection-string": account.connection_string(),
        }
    )


def _hadoop(storage: Storage, authority: str) -> dict[str, Value]:
    account = Account(storage)
    host = authority.rpartition("@")[2] or account.host
    settings: dict[str, Setting | None] = {f"fs.azure.account.key.{host}": account.key}
    if account.sas and not account.key:
        settings = {f"fs.azure.account.auth.type.{host}": "SAS", f"fs.azure.sas.fixed.token.{host}": account.sas}
    elif not account.key:
        settings = {
            f"fs.azure.account.auth.type.{host}": "OAuth",
            f"fs.azure.account.oauth.provider.type.{host}": _MSI,
        }
    settings |= _endpoint_settings(account, host)
    # By default Hadoop's driver retries 30 times, which takes a quarter of an hour.
    return as_conf({**settings, "fs.azure.io.retry.max.retries": "5", "fs.azure.io.retry.max.backoff.interval": "2000"})


def _endpoint_settings(account: Account, host: str) -> dict[str, Setting | None]:
    """Hadoop's settings for the endpoint. They select the Blob protocol: no emulator speaks the ADLS protocol."""
    if not account.endpoint:
        return {}
    address = urlsplit(str(account.endpoint))
    secure = address.scheme == "https"
    return {
        f"fs.azure.abfs.endpoint.{host}": f"{address.hostname}:{address.port or (443 if secure else 80)}",
        f"fs.azure.fns.account.service.type.{host}": "BLOB",
        f"fs.azure.account.hns.enabled.{host}": False,
        # This setting applies to all accounts; locations that begin with abfss:// are encrypted anyway.
        "fs.azure.always.use.https": None if secure else False,
    }


def _checkpoint_problem(storage: Storage, location: str) -> str | None:
    account = Account(storage)
    address = urlsplit(str(account.endpoint or ""))
    if account.endpoint and address.path.strip("/") != account.name:
        return f"Hadoop's driver takes an endpoint only with the account as its path, as in http://host:port/{account.name}"
    if address.scheme == "http" and location.startswith("abfss:"):
        return "its endpoint is http://, for which Hadoop's driver needs a location that begins with abfs://"
    return None


def _fault(settings: Settings) -> Fault | None:
    given = [name for name in ("account_key", "sas_token", "connection_string") if settings.get(name) is not None]
    if len(given) > 1:
        return given[1], f"{given[0]} and {given[1]} are two ways to log in: give one of them."
    connection_string = settings.get("connection_string")
    if connection_string is None:
        return None if settings.get("account") else (None, "it needs account, or connection_string.")
    pairs = parsed_connection_string(
        connection_string.reveal() if isinstance(connection_string, Secret) else str(connection_string)
    )
    if not (pairs.get("AccountName") or pairs.get("BlobEndpoint")):
        return "connection_string", (
            "connection_string names no account: copy it from the portal's access keys "
            '("DefaultEndpointsProtocol=https;AccountName=...;AccountKey=...").'
        )
    if settings.get("endpoint") and pairs.get("BlobEndpoint"):
        return "endpoint", "endpoint and the BlobEndpoint of connection_string are one setting: give one of them."
    return None


ADLS = StorageRow(
    keys=(
        Key("account", "the storage account"),
        Key("account_key", "an access key of the account; by default Azure's credential chain", secret=True),
        Key("sas_token", "a shared access signature, instead of `account_key`", secret=True),
        Key("connection_string", "a text with the account, its address, and a key or signature", secret=True),
        Key("endpoint", "another address of the account, such as Azurite's", schemes=HTTP),
    ),
    spark=_spark,
    pyiceberg=_pyiceberg,
    hadoop=_hadoop,
    example="abfss://container@account.dfs.core.windows.net/folder",
    checkpoint_problem=_checkpoint_problem,
    warehouse_problem=_warehouse_problem,
    schemes={"abfss": "abfss", "abfs": "abfs"},
    fault=_fault,
    components=("azure",),
    checkpoint_components=("abfs",),
    extra="adls",
    gaps=(
        "without a key or signature, checkpoints use the machine's managed identity: Hadoop's driver supports no other "
        "part of the chain",
        "with `endpoint`, a checkpoint can be stored only if `endpoint` has the form `http://host:port/account`, and "
        "the checkpoint's location begins with abfs:// (or with abfss://, if `endpoint` begins with https://)",
    ),
)
