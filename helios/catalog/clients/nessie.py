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
from helios.catalog.rows import MetadataMove

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.update import TableRequirement, TableUpdate

TABLE, NAMESPACE = "ICEBERG_TABLE", "NAMESPACE"
# Iceberg's Java client sets these properties too. Files are not deleted, because other branches may need them.
_DEFAULTS = {"gc.enabled": "false", "write.metadata.delete-after-commit.enabled": "false"}


class NessieCatalog(MetastoreCatalog):
    """Tables on one branch or tag of Nessie.

    Args:
        properties: `uri` (ending in /api/v2), `ref`, `warehouse`, `token`, and the properties of the FileIO.
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
            raise _error_of(response)
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
        """The contents that are stored under the names, and the hash of the branch head from which they were read."""
        wanted = [{"elements": list(name)} for name in names]
        response = self._call("POST", f"{self._tree}/contents", json={"requestedKeys": wanted})
        contents = {tuple(entry["key"]["elements"]): entry["content"] for entry in response.get("contents", [])}
        return contents, response["effectiveReference"]["hash"]

    def _content(self, name: Identifier) -> tuple[dict[str, Any] | None, str]:
        contents, head = self._contents([name])
        return contents.get(name), head

    def _commit(self, message: str, head: str, *operations: dict[str, Any]) -> None:
        body = {"commitMeta": {"message": message, "properties": {"application-type": "iceberg"}}}
        self._call("POST", f"{self._tree}@{head}/history/commit", json={**body, "operations": operations})

    def _put(self, name: Identifier, table: StagedTable, stored: dict[str, Any], head: str, message: str) -> None:
        metadata = table.metadata
        content = {
            "type": TABLE,
            "metadataLocation": table.metadata_location,
            "snapshotId": metadata.current_snapshot_id if metadata.current_snapshot_id is not None else -1,
            "schemaId": metadata.current_schema_id,
            "specId": metadata.default_spec_id,
            "sortOrderId": metadata.default_sort_order_id,
            **({"id": stored["id"]} if "id" in stored else {}),
        }
        self._commit(message, head, {"type": "PUT", "key": {"elements": list(name)}, "content": content})

    def move(self, tables: Sequence[MetadataMove]) -> bool:
        """Replaces the metadata files of several tables in one commit of the branch, all or none.

        Returns:
            True if the commit succeeded. False if another commit has changed one of the tables: then none is changed.

        Raises:
            CommitFailedException: The result is unknown: a request may have been sent twice, with other commits in
                between.
        """
        moves = {(*table.namespace, table.table): table for table in tables}
        contents, head = self._contents([*moves])
        if not _all_at(contents, {name: move.before for name, move in moves.items()}):
            return False
        puts = [_put_operation(name, contents[name]["id"], move) for name, move in moves.items()]
        try:
            self._commit(f"update {len(puts)} tables", head, *puts)
        except CommitFailedException:
            # A gateway may send a request twice: the first is applied, and the second is refused with this error.
            contents, _ = self._contents([*moves])
            if _all_at(contents, {name: move.after for name, move in moves.items()}):
                return True
            # A commit changes all tables or none: one table with its old metadata shows that none was changed.
            if any(_all_at(contents, {name: move.before}) for name, move in moves.items()):
                return False
            # Only the ledgers in the tables show whether this commit was applied before the other commits.
            raise
        return True

    # Namespaces

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        parent = self.identifier_to_tuple(namespace)
        depth = len(parent)
        names = [name for name in self._entries(NAMESPACE) if len(name) > depth and name[:depth] == parent]
        if not names and parent and not self.namespace_exists(parent):
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(parent)}")
        return sorted({name[: depth + 1] for name in names})

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        name = self.identifier_to_tuple(namespace)
        content, _ = self._content(name)
        if content is None or content["type"] != NAMESPACE:
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(name)}")
        return content.get("properties") or {}

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        name = self.identifier_to_tuple(namespace)
        # In Nessie, the parents of a namespace must exist, so they are created too.
        for level in (name[:depth] for depth in range(1, len(name) + 1)):
            content, head = self._content(level)
            if content is not None and level == name:
                raise NamespaceAlreadyExistsError(f"Namespace already exists: {'.'.join(name)}")
            if content is None:
                own = dict(properties) if level == name else {}
                created = {"type": NAMESPACE, "elements": list(level), "properties": own}
                put = {"type": "PUT", "key": {"elements": list(level)}, "content": created}
                self._commit(f"create namespace {'.'.join(level)}", head, put)

    def drop_namespace(self, namespace: str | Identifier) -> None:
        name = self.identifier_to_tuple(namespace)
        self.load_namespace_properties(name)
        entries = [*self._entries(TABLE), *self._entries(NAMESPACE)]
        if any(entry[: len(name)] == name and entry != name for entry in entries):
            raise NamespaceNotEmptyError(f"Namespace is not empty: {'.'.join(name)}")
        _, head = self._content(name)
        self._commit(f"drop namespace {'.'.join(name)}", head, {"type": "DELETE", "key": {"elements": list(name)}})

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        raise NotImplementedError("use Spark to change the properties of a Nessie namespace")

    # Tables

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        name = self.identifier_to_tuple(namespace)
        self.load_namespace_properties(name)
        return [table for table in self._entries(TABLE) if table[:-1] == name]

    def table_exists(self, identifier: str | Identifier) -> bool:
        content, _ = self._content(self.identifier_to_tuple(identifier))
        return content is not None and content["type"] == TABLE

    def load_table(self, identifier: str | Identifier) -> Table:
        table, _, _ = self._open(self.identifier_to_tuple(identifier))
        return table

    def _open(self, name: Identifier) -> tuple[Table, dict[str, Any], str]:
        """A table, its stored content, and the hash of the branch's head."""
        content, head = self._content(name)
        if content is None or content["type"] != TABLE:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(name)}")
        location = content["metadataLocation"]
        metadata = FromInputFile.table_metadata(self._load_file_io(location=location).new_input(location))
        io = self._load_file_io(metadata.properties, location)
        return Table(name, metadata, location, io, self), content, head

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
        content, head = self._content(name)
        if content is not None:
            raise TableAlreadyExistsError(f"Table already exists: {'.'.join(name)}")
        self.load_namespace_properties(name[:-1])
        table_location = location or "/".join([self.properties["warehouse"].rstrip("/"), *name])
        staged = self._create_staged_table(
            name, schema, table_location, partition_spec, sort_order, {**_DEFAULTS, **properties}
        )
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self._put(name, staged, {}, head, f"create table {'.'.join(name)}")
        return self.load_table(name)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        name = table.name()
        current, content, head = self._open(name)
        staged = self._update_and_stage_table(current, name, requirements, updates)
        if staged.metadata != current.metadata:
            self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
            self._put(name, staged, content, head, f"update table {'.'.join(name)}")
        return CommitTableResponse.model_validate(
            {"metadata": staged.metadata, "metadata-location": staged.metadata_location}
        )

    def drop_table(self, identifier: str | Identifier) -> None:
        name = self.identifier_to_tuple(identifier)
        if not self.table_exists(name):
            raise NoSuchTableError(f"Table does not exist: {'.'.join(name)}")
        _, head = self._content(name)
        self._commit(f"drop table {'.'.join(name)}", head, {"type": "DELETE", "key": {"elements": list(name)}})

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        raise NotImplementedError("use Spark to rename a Nessie table")

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        raise NotImplementedError("use Spark to register a table in Nessie")

    # Views: not used by Helios

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
    """True if the metadata of each table is at the given location."""
    return all(contents.get(name, {}).get("metadataLocation") == location for name, location in locations.items())


def _put_operation(name: Identifier, id: str, table: MetadataMove) -> dict[str, Any]:
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


def _error_of(response: Response) -> Exception:
    try:
        body = response.json()
        text = f"{body.get('errorCode', '')} {body.get('message', '')}"
    except ValueError:
        text = response.text[:300]
    kinds: dict[int, type[Exception]] = {401: UnauthorizedError, 409: CommitFailedException}
    return kinds.get(response.status_code, RESTError)(f"HTTP {response.status_code}: {text}".strip())
