"""PyIceberg's Hive client with timeouts, for use by many threads, and for metastores without lock tables."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import LockResponse, LockState, MetaException
from pyiceberg.catalog import hive
from pyiceberg.exceptions import CommitFailedException
from thrift.transport import TSocket, TTransport

TIMEOUT_SECONDS = 10
LOCK = "helios.hive.lock"
# This logger only logs errors that are raised as well.
logging.getLogger("thrift.transport.TSocket").disabled = True


class _Unlocked(Client):  # type: ignore[misc]
    """A client that commits by compare-and-set instead of locks, like Iceberg's Java client (HIVE-26882)."""

    def lock(self, rqst: Any) -> LockResponse:
        return LockResponse(lockid=0, state=LockState.ACQUIRED)

    def unlock(self, rqst: Any) -> None:
        return None

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: Any, environment_context: Any
    ) -> None:
        previous = new_tbl.parameters.get(hive.PROP_PREVIOUS_METADATA_LOCATION)
        environment_context.properties["expected_parameter_key"] = hive.PROP_METADATA_LOCATION
        environment_context.properties["expected_parameter_value"] = previous
        try:
            super().alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)
        except MetaException as error:
            if "has been modified" in str(error):
                raise CommitFailedException(f"{dbname}.{tbl_name} was changed meanwhile") from error
            raise


class _Connection(hive._HiveClient):
    """One connection, for one operation of one thread."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._uses_locks = properties.get(LOCK, "true") == "true"
        super().__init__(
            properties["uri"],
            properties.get("ugi"),
            properties.get(hive.HIVE_KERBEROS_AUTH, "false") == "true",
            properties.get(hive.HIVE_KERBEROS_SERVICE_NAME, hive.HIVE_KERBEROS_SERVICE_NAME_DEFAULT),
        )

    def _init_thrift_transport(self) -> Any:
        parts = urlsplit(self._uri)
        socket = TSocket.TSocket(parts.hostname, parts.port or 9083)
        socket.setTimeout(TIMEOUT_SECONDS * 1000)
        if self._kerberos_auth:
            return TTransport.TSaslClientTransport(socket, host=parts.hostname, service=self._kerberos_service_name)
        return TTransport.TBufferedTransport(socket)

    def _client(self) -> Any:
        client = super()._client()
        return client if self._uses_locks else _Unlocked(client._iprot)


class HiveCatalog(hive.HiveCatalog):
    """PyIceberg's Hive catalog, with a connection for each operation."""

    @property
    def _client(self) -> Any:
        # PyIceberg's own client has one socket, which cannot serve two threads at once.
        return _Connection(self.properties)

    @_client.setter
    def _client(self, client: Any) -> None:
        pass
