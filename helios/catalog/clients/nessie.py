"""A PyIceberg client of Nessie's own protocol, version 2: https://projectnessie.org/develop/rest/."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyiceberg.catalog import MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from requests import Response, Session

from helios.catalog.clients.rest import Transport
from helios.catalog.rows import Moved

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.update import TableRequirement, TableUpdate

TABLE, NAMESPACE = "ICEBERG_TABLE", "NAMESPACE"
# As Iceberg's Java client: other branches may need the files.
_DEFAULTS = {"gc.enabled": "false", "write.metadata.delete-after-commit.enabled": "false"}


class NessieCatalog(MetastoreCatalog):
    """Tables on one branch or tag of Nessie.

    Args:
        name: The catalog's name.
        properties: `uri` (it ends with /api/v2), `ref`, `warehouse`, `token`, and those of the FileIO.
    """

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._session = Session()
        for prefix in ("http://", "https://"):
            self._session.mount(prefix, Transport())
        if token := properties.get("token"):
            self._session.headers["Authorization"] = f"Bearer {token}"

    # The protocol

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        response = self._session.request(method, f"{self.properties['uri'].rstrip('/')}/{path}", **arguments)
        if not response.ok:
            raise _refused(response)
        return response.json() if response.content else {}

    @property
    def _tree(self) -> str:
        return f"trees/{quote(self.properties.get('ref', 'main'), safe='')}"

    def _entries(self, kind: str) -> Iterator[Identifier]:
        page: dict[str, str] = {}
        while True:
            response = self._call(
                "GET", f"{self._tree}/entries", params={"filter": f"entry.contentType=='{kind}'", **page}
            )
            for entry in response["entries"]:
                yield tuple(entry["name"]["elements"])
            if not response.get("hasMore"):
                return
            page = {"page-token": response["token"]}

    def _contents(self, names: Sequence[Identifier]) -> tuple[dict[Identifier, dict[str, Any]], str]:
        """The stored contents of names, and the hash of the branch that has them."""
        wanted = [{"elements": list(name)} for name in names]
        response = self._call("POST", f"{self._tree}/contents", json={"requestedKeys": wanted})
        contents = {tuple(entry["key"]["elements"]): entry["content"] for entry in response.get("contents", [])}
        return contents, response["effectiveReference"]["hash"]

    def _content(self, name: Identifier) -> tuple[dict[str, Any] | None, str]:
        contents, at = self._contents([name])
        return contents.get(name), at

    def _commit(self, message: str, at: str, *operations: dict[str, Any]) -> None:
        body = {"commitMeta": {"message": message, "properties": {"application-type": "iceberg"}}}
        self._call("POST", f"{self._tree}@{at}/history/commit", json={**body, "operations": operations})

    def _put(self, name: Identifier, table: StagedTable, known: dict[str, Any], at: str, message: str) -> None:
        metadata = table.metadata
        content = {
            "type": TABLE,
            "metadataLocation": table.metadata_location,
            "snapshotId": metadata.current_snapshot_id if metadata.current_snapshot_id is not None else -1,
            "schemaId": metadata.current_schema_id,
            "specId": metadata.default_spec_id,
            "sortOrderId": metadata.default_sort_order_id,
            **({"id": known["id"]} if "id" in known else {}),
        }
        self._commit(message, at, {"type": "PUT", "key": {"elements": list(name)}, "content": content})

    def move(self, tables: Sequence[Moved]) -> bool:
        """Sets the metadata of several tables in one commit of the branch, all or none.

        Returns:
            True if the commit was made; False if one of the tables was changed before it, and none was moved.

        Raises:
            CommitFailedException: It was sent twice, and tables have had other commits between.
        """
        names = {(*table.namespace, table.table): table for table in tables}
        contents, at = self._contents([*names])
        if not _all_at(contents, {name: move.before for name, move in names.items()}):
            return False
        puts = [_put_operation(name, contents[name]["id"], move) for name, move in names.items()]
        try:
            self._commit(f"update {len(puts)} tables", at, *puts)
        except CommitFailedException:
            # If a gateway sent the request twice, the second is refused with this error although the first was applied.
            contents, _ = self._contents([*names])
            if _all_at(contents, {name: move.after for name, move in names.items()}):
                return True
            # It is all or none: one table that is still at its old metadata shows that nothing was applied.
            if any(_all_at(contents, {name: move.before}) for name, move in names.items()):
                return False
            # Whether it was applied before the other commits cannot be seen here: the tables' ledgers tell.
            raise
        return True

    # Namespaces

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        above = self.identifier_to_tuple(namespace)
        depth = len(above)
        below = {name[: depth + 1] for name in self._entries(NAMESPACE) if len(name) > depth and name[:depth] == above}
        if not below and above and not self.namespace_exists(above):
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(above)}")
        return sorted(below)

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        name = self.identifier_to_tuple(namespace)
        content, _ = self._content(name)
        if content is None or content["type"] != NAMESPACE:
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(name)}")
        return content.get("properties") or {}

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        name = self.identifier_to_tuple(namespace)
        for depth in range(1, len(name) + 1):  # in Nessie a namespace needs its parents: they are created too
            content, at = self._content(name[:depth])
            if content is not None and depth == len(name):
                raise NamespaceAlreadyExistsError(f"Namespace already exists: {'.'.join(name)}")
            if content is None:
                made = {"type": NAMESPACE, "elements": list(name[:depth]), "properties": dict(properties)}
                put = {"type": "PUT", "key": {"elements": list(name[:depth])}, "content": made}
                self._commit(f"create namespace {'.'.join(name[:depth])}", at, put)

    def drop_namespace(self, namespace: str | Identifier) -> None:
        name = self.identifier_to_tuple(namespace)
        self.load_namespace_properties(name)
        kinds = (TABLE, NAMESPACE)
        if any(e[: len(name)] == name and e != name for kind in kinds for e in self._entries(kind)):
            raise NamespaceNotEmptyError(f"Namespace is not empty: {'.'.join(name)}")
        _, at = self._content(name)
        self._commit(f"drop namespace {'.'.join(name)}", at, {"type": "DELETE", "key": {"elements": list(name)}})

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        raise NotImplementedError("properties of Nessie's namespaces are changed with Spark")

    # Tables

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        name = self.identifier_to_tuple(namespace)
        self.load_namespace_properties(name)
        return [table for table in self._entries(TABLE) if table[:-1] == name]

    def table_exists(self, identifier: str | Identifier) -> bool:
        content, _ = self._content(self.identifier_to_tuple(identifier))
        return content is not None and content["type"] == TABLE

    def load_table(self, identifier: str | Identifier) -> Table:
        return self._opened(self.identifier_to_tuple(identifier))[0]

    def _opened(self, name: Identifier) -> tuple[Table, dict[str, Any], str]:
        content, at = self._content(name)
        if content is None or content["type"] != TABLE:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(name)}")
        location = content["metadataLocation"]
        metadata = FromInputFile.table_metadata(self._load_file_io(location=location).new_input(location))
        io = self._load_file_io(metadata.properties, location)
        return Table(name, metadata, location, io, self), content, at

    def create_table(  # noqa: PLR0917
        self,
        identifier: str | Identifier,
        schema: Schema | Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        name = self.identifier_to_tuple(identifier)
        content, at = self._content(name)
        if content is not None:
            raise TableAlreadyExistsError(f"Table already exists: {'.'.join(name)}")
        self.load_namespace_properties(name[:-1])
        place = location or "/".join([self.properties["warehouse"].rstrip("/"), *name])
        staged = self._create_staged_table(name, schema, place, partition_spec, sort_order, {**_DEFAULTS, **properties})
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self._put(name, staged, {}, at, f"create table {'.'.join(name)}")
        return self.load_table(name)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        name = table.name()
        current, content, at = self._opened(name)
        staged = self._update_and_stage_table(current, name, requirements, updates)
        if staged.metadata != current.metadata:
            self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
            self._put(name, staged, content, at, f"update table {'.'.join(name)}")
        return CommitTableResponse.model_validate(
            {"metadata": staged.metadata, "metadata-location": staged.metadata_location}
        )

    def drop_table(self, identifier: str | Identifier) -> None:
        name = self.identifier_to_tuple(identifier)
        if not self.table_exists(name):
            raise NoSuchTableError(f"Table does not exist: {'.'.join(name)}")
        _, at = self._content(name)
        self._commit(f"drop table {'.'.join(name)}", at, {"type": "DELETE", "key": {"elements": list(name)}})

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        raise NotImplementedError("tables of Nessie are renamed with Spark")

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        raise NotImplementedError("tables are registered in Nessie with Spark")

    # Views: Helios has no use for them

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        raise NotImplementedError

    def view_exists(self, identifier: str | Identifier) -> bool:
        raise NotImplementedError

    def load_view(self, identifier: str | Identifier) -> Any:
        raise NotImplementedError

    def drop_view(self, identifier: str | Identifier) -> None:
        raise NotImplementedError

    def register_view(self, identifier: str | Identifier, metadata_location: str) -> Any:
        raise NotImplementedError


def _all_at(contents: Mapping[Identifier, dict[str, Any]], locations: Mapping[Identifier, str]) -> bool:
    """True if each table has the given metadata location."""
    return all(contents.get(name, {}).get("metadataLocation") == location for name, location in locations.items())


def _put_operation(name: Identifier, id: str, table: Moved) -> dict[str, Any]:
    """The operation that sets a table's metadata; Nessie refuses it if the table has changed meanwhile."""
    content = {
        "type": TABLE,
        "id": id,
        "metadataLocation": table.after,
        "snapshotId": table.snapshot,
        "schemaId": table.schema,
        "specId": table.spec,
        "sortOrderId": table.order,
    }
    return {"type": "PUT", "key": {"elements": list(name)}, "content": content}


def _refused(response: Response) -> Exception:
    try:
        body = response.json()
        text = f"{body.get('errorCode', '')} {body.get('message', '')}"
    except ValueError:
        text = response.text[:300]
    kinds: dict[int, type[Exception]] = {401: UnauthorizedError, 409: CommitFailedException}
    return kinds.get(response.status_code, RESTError)(f"HTTP {response.status_code}: {text}".strip())
