"""A catalog behind Iceberg's REST protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helios.catalog.keys import HTTP, Fault, Key, Setting, Settings, Value, as_conf, unencrypted_address
from helios.catalog.rows import CatalogRow
from helios.catalog.storages import storage_type_of
from helios.model.values import Secret

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog

_DELEGATION = "header.X-Iceberg-Access-Delegation"


def _token_uri(catalog: Catalog) -> Setting | None:
    """The declared token endpoint, or else the endpoint of the server.

    Spark and PyIceberg would also derive the second one, but with a warning.
    """
    declared = catalog.option("oauth2_server_uri")
    if declared or not catalog.option("credential"):
        return declared
    return f"{str(catalog.option('uri')).rstrip('/')}/v1/oauth/tokens"


def _common(catalog: Catalog) -> dict[str, Setting | None]:
    return {
        "type": "rest",
        "uri": catalog.option("uri"),
        "warehouse": catalog.option("warehouse"),
        "credential": catalog.option("credential"),
        "token": catalog.option("token"),
        "scope": catalog.option("scope"),
        "oauth2-server-uri": _token_uri(catalog),
    }


def _spark(catalog: Catalog) -> dict[str, Value]:
    return as_conf(
        {
            **_common(catalog),
            # If the storage has no secrets, Spark's client asks the server for credentials, as PyIceberg does by
            # default.
            _DELEGATION: None if _has_storage_secrets(catalog) else "vended-credentials",
            "rest.client.connection-timeout-ms": "5000",
            "rest.client.socket-timeout-ms": "60000",
            # By default the client retries 5 times, and hides a gateway's 503 for 31 s. A run repeats failed requests
            # itself, and reports each failure.
            "rest.client.max-retries": "2",
        }
    )


def _has_storage_secrets(catalog: Catalog) -> bool:
    """True if the declaration of the storage has secrets, such as access keys."""
    return catalog.storage is not None and any(isinstance(value, Secret) for _, value in catalog.storage.options)


def _warehouse(catalog: Catalog) -> str | None:
    """The declared warehouse if it is a URI; None if it is a name, whose location only the server knows."""
    declared = str(catalog.option("warehouse") or "")
    return declared if storage_type_of(declared) else None


def _fault(settings: Settings) -> Fault | None:
    if settings.get("credential") is not None and settings.get("token") is not None:
        return "token", "credential and token are two ways to log in: give one of them."
    for name in ("oauth2_server_uri", "scope"):
        if settings.get(name) is not None and settings.get("credential") is None:
            return name, f"{name} configures the token request, which needs credential."
    return unencrypted_address(settings, "uri", "oauth2_server_uri")


REST = CatalogRow(
    vends_credentials=True,
    keys=(
        Key(
            "uri",
            "the address of the server, or a list of the addresses of its replicas",
            required=True,
            many=True,
            schemes=HTTP,
        ),
        Key("warehouse", "which warehouse of the server: a name, or a URI"),
        Key("credential", 'OAuth2 client credentials, "client_id:secret"', secret=True),
        Key("token", "a bearer token, instead of `credential`", secret=True),
        Key("oauth2_server_uri", "the token endpoint; by default the endpoint of the catalog's server", schemes=HTTP),
        Key("scope", 'the OAuth2 scope; by default "catalog"'),
        Key("allow_http", "whether credentials may go unencrypted to other machines", flag=True),
    ),
    spark=_spark,
    pyiceberg=lambda catalog: as_conf(_common(catalog)),
    warehouse=_warehouse,
    components=("iceberg",),
    storages=("local", "s3", "adls", "gcs"),
    fault=_fault,
    takes_multi_table_commits=True,
    client="helios.catalog.clients.rest:RestCatalog",
    gaps=(
        "if `warehouse` is a name, only the server knows the location: give `.checkpoint(...)`, and `storage=` to say "
        "which jars are needed",
        "a `token` is not renewed when it expires; with `credential`, tokens are renewed",
    ),
)
