"""Tables of Nessie that move to other metadata together, by its own protocol."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from helios import Catalog, Storage
from helios.catalog.catalogs import CATALOGS
from helios.catalog.clients.nessie import NessieCatalog
from helios.catalog.connections import client
from helios.catalog.rows import MetadataMove
from tests.services.nessie import Nessie

pytestmark = [pytest.mark.promise("nessie", "mirror"), pytest.mark.sampled(2)]

SCHEMA = pa.schema([("id", pa.int64())])
_NUMBERS = count()


@pytest.fixture
def catalog(nessie: Nessie) -> Catalog:
    s3 = nessie.storage
    storage = Storage.s3(
        endpoint=s3.endpoint, region=s3.region, access_key_id=s3.access_key, secret_access_key=s3.secret_key
    )
    return Catalog.nessie("lake", uri=nessie.endpoint, warehouse=nessie.warehouse, storage=storage)


@pytest.fixture
def namespace(catalog: Catalog) -> str:
    name = f"moved{next(_NUMBERS)}"
    catalog.create_namespace(name)
    for table in ("one", "two"):
        catalog.create_table(f"{name}.{table}", SCHEMA)
    return name


def append(catalog: Catalog, table: str) -> None:
    client(catalog).load_table(table).append(pa.table({"id": [1]}))


def pointers(catalog: Catalog, namespace: str) -> tuple[str, str]:
    one, two = (client(catalog).load_table(f"{namespace}.{name}").metadata_location for name in ("one", "two"))
    return one, two


def back(namespace: str, now: Sequence[str], then: Sequence[str]) -> list[MetadataMove]:
    """Moves of both tables to where they were when they were empty."""
    pairs = zip(("one", "two"), now, then, strict=True)
    return [MetadataMove((namespace,), name, *at, snapshot=-1, schema=0, spec=0, order=0) for name, *at in pairs]


def test_all_tables_move_or_none(catalog: Catalog, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    move, first = CATALOGS["nessie"].move, pointers(catalog, namespace)
    assert move is not None
    for table in ("one", "two"):
        append(catalog, f"{namespace}.{table}")
    second = pointers(catalog, namespace)
    assert not move(catalog, back(namespace, (second[0], first[1]), first), client)
    assert not move(catalog, [*back(namespace, second, first)[:1], *back("gone", second, first)[1:]], client)
    assert pointers(catalog, namespace) == second
    contents = NessieCatalog._contents

    def beside_another(self: NessieCatalog, names: Any) -> Any:
        """Another writer comes to one of the tables between the look at them and the commit."""
        found = contents(self, names)
        with monkeypatch.context() as patched:
            patched.setattr(NessieCatalog, "_contents", contents)
            if pointers(catalog, namespace) == second:
                append(catalog, f"{namespace}.two")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(NessieCatalog, "_contents", beside_another)
        assert not move(catalog, back(namespace, second, first), client)
    third = pointers(catalog, namespace)
    assert third[0] == second[0]
    assert move(catalog, back(namespace, third, first), client)
    assert pointers(catalog, namespace) == first


def test_a_commit_that_was_sent_twice_is_made(
    catalog: Catalog, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    move, first = CATALOGS["nessie"].move, pointers(catalog, namespace)
    assert move is not None
    append(catalog, f"{namespace}.one")
    now, commit = pointers(catalog, namespace), NessieCatalog._commit

    def twice(self: NessieCatalog, *given: Any) -> None:
        commit(self, *given)
        commit(self, *given)

    monkeypatch.setattr(NessieCatalog, "_commit", twice)
    assert move(catalog, back(namespace, now, first), client)
    assert pointers(catalog, namespace) == first


@pytest.mark.parametrize("others", [("two",), ("one", "two")])
def test_what_was_sent_twice_with_another_writer_between_is_not_called_refused(
    catalog: Catalog, namespace: str, monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]
) -> None:
    """A move that is called refused has its metadata deleted, which a table may already hold."""
    move, first = CATALOGS["nessie"].move, pointers(catalog, namespace)
    assert move is not None
    for table in ("one", "two"):
        append(catalog, f"{namespace}.{table}")
    second, commit = pointers(catalog, namespace), NessieCatalog._commit

    def twice(self: NessieCatalog, *given: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(NessieCatalog, "_commit", commit)
            commit(self, *given)
            for table in others:
                append(catalog, f"{namespace}.{table}")
            commit(self, *given)

    monkeypatch.setattr(NessieCatalog, "_commit", twice)
    with pytest.raises(CommitFailedException):
        move(catalog, back(namespace, second, first), client)
