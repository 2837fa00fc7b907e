"""A mirror with `atomic=True` in catalogs behind a server: Iceberg's REST protocol, and Nessie's own.

The REST server of Iceberg's own tests applies a transaction table by table; Nessie's applies it as one, by either
protocol.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

from helios import Catalog, Cdc, Iceberg, Pipeline, Storage
from helios.errors import HeliosError, InputError, RunError
from helios.spark.iceberg import catalog_commit
from helios.spark.sinks import joint
from tests.kafka.changes import Database
from tests.kafka.conftest import Topics
from tests.services.nessie import Nessie
from tests.services.proxy import (
    FaultProxy,
    Request,
    Response,
    answer_after,
    answer_before,
    drop_after,
    drop_before,
)
from tests.services.rest import Rest
from tests.streaming.conftest import World

pytestmark = [pytest.mark.jars("kafka", "aws"), pytest.mark.promise("mirror")]

_NUMBERS = count()
ENDPOINT = "/transactions/commit"


class BreakingProxy(FaultProxy):
    """A server that breaks off within a commit of several tables, and breaks its protocol by that.

    Attributes:
        after: After how many tables it breaks off, once; None for never.
    """

    after: int | None = None

    @override
    def handle(self, request: Request) -> Response | None:
        if self.after is None or not request.path.endswith(ENDPOINT):
            return super().handle(request)
        changes = json.loads(request.body)["table-changes"][: self.after]
        self.after = None
        answer = self.forward(
            Request(request.method, request.path, request.headers, json.dumps({"table-changes": changes}).encode())
        )
        assert answer.status == 204, answer
        return None


@dataclass
class Place:
    """A catalog behind a proxy, with a namespace of its own.

    Attributes:
        catalog: The catalog, through the proxy.
        proxy: The proxy.
        commits: Whether a request commits several tables.
        declared: The catalog in a script.
        nessie: The server, where it is a Nessie.
        namespace: The namespace of the mirror.
    """

    catalog: Catalog
    proxy: BreakingProxy
    commits: Callable[[Request], bool]
    declared: str
    nessie: Nessie | None = None

    def __post_init__(self) -> None:
        self.namespace = f"shop{next(_NUMBERS)}"


def by_transaction(request: Request) -> bool:
    """Whether a request of Iceberg's REST protocol commits several tables."""
    return request.path.endswith(ENDPOINT)


def by_puts(request: Request) -> bool:
    """Whether a request of Nessie's protocol does."""
    return "/history/commit" in request.path and len(json.loads(request.body)["operations"]) > 1


@pytest.fixture(params=["rest", "nessie", "nessie-rest"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "rest":
        rest: Rest = request.getfixturevalue("rest")
        with BreakingProxy(rest.uri) as proxy:
            given = f'"lake", uri="{proxy.uri}", warehouse="{rest.warehouse}"'
            catalog = Catalog.rest("lake", uri=proxy.uri, warehouse=rest.warehouse)
            yield Place(catalog, proxy, by_transaction, f"Catalog.rest({given})")
        return
    nessie: Nessie = request.getfixturevalue("nessie")
    s3 = nessie.storage
    keys = {"endpoint": s3.endpoint, "region": s3.region}
    keys |= {"access_key_id": s3.access_key, "secret_access_key": s3.secret_key}
    storage = Storage.s3(**keys)
    stored = f"storage=Storage.s3({', '.join(f'{key}={value!r}' for key, value in keys.items())})"
    with BreakingProxy(nessie.endpoint) as proxy:
        if request.param == "nessie":
            catalog = Catalog.nessie("lake", uri=proxy.uri, warehouse=nessie.warehouse, storage=storage)
            declared = f'Catalog.nessie("lake", uri="{proxy.uri}", warehouse="{nessie.warehouse}", {stored})'
            yield Place(catalog, proxy, by_puts, declared, nessie)
        else:
            uri = f"{proxy.uri}/iceberg"
            catalog = Catalog.rest("lake", uri=uri, warehouse=nessie.warehouse, storage=storage)
            declared = f'Catalog.rest("lake", uri="{uri}", warehouse="{nessie.warehouse}", {stored})'
            yield Place(catalog, proxy, by_transaction, declared, nessie)


@pytest.fixture
def there(shared_spark: SparkSession, tmp_path: Path, place: Place) -> Iterator[World]:
    made = World(shared_spark, tmp_path, place.catalog)
    yield made
    for query in made.spark.streams.active:
        query.stop()


@pytest.fixture
def database(topics: Topics) -> Database:
    return Database(topics)


def mirror(world: World, place: Place, database: Database) -> Pipeline:
    sink = Iceberg.mirror(place.namespace, catalog=place.catalog, atomic=True).retry(backoff=0.05)
    return Cdc.debezium(database.source()) >> sink.checkpoint(f"file://{world.folder}/checkpoint").exactly_once()


def created(id: int, name: str) -> Mapping[str, Any]:
    return {"op": "c", "after": {"id": id, "name": name}}


def changed(id: int, name: str) -> Mapping[str, Any]:
    return {"op": "u", "after": {"id": id, "name": name}}


def first(database: Database) -> None:
    """Changes of two tables."""
    database.send("public.a", {"id": 1}, created(1, "a"))
    database.send("public.b", {"id": 1}, created(1, "b"))


def second(database: Database) -> None:
    """More changes of both."""
    database.send("public.a", {"id": 1}, changed(1, "c"))
    database.send("public.b", {"id": 2}, created(2, "d"))


def now(world: World, name: str) -> Any:
    """PyIceberg's table as it is now: `Catalog.load` may show it as it was a second ago."""
    found = world.load(name).iceberg
    found.refresh()
    return found


def names(world: World, place: Place) -> tuple[Counter[Any], Counter[Any]]:
    """The rows of the two tables."""
    found = [now(world, f"{place.namespace}.{name}").scan().to_arrow() for name in "ab"]
    one, two = (Counter(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)) for rows in found)
    return one, two


def snapshots(world: World, place: Place) -> list[int]:
    """How many snapshots each of the two tables has."""
    return [len(now(world, f"{place.namespace}.{name}").metadata.snapshots) for name in "ab"]


AFTER_FIRST = Counter([(1, "a")]), Counter([(1, "b")])
AFTER_SECOND = Counter([(1, "c")]), Counter([(1, "b"), (2, "d")])


def pointers(world: World, place: Place) -> dict[str, str]:
    """The metadata of each table."""
    return {name: now(world, name).metadata_location for name in world.catalog.tables(place.namespace)}


def control(world: World, place: Place) -> tuple[int, dict[str, int]]:
    """The batch and the snapshots that the control table names."""
    [row] = now(world, f"{place.namespace}.helios_mirror").scan().to_arrow().to_pylist()
    begin = f"lake.{place.namespace}."
    return row["batch"], {name.removeprefix(begin): id for name, id in dict(row["tables"]).items()}


def heads(world: World, place: Place) -> dict[str, int]:
    """The snapshot that each of the two tables has."""
    found = {name: now(world, f"{place.namespace}.{name}").current_snapshot() for name in "ab"}
    return {name: one.snapshot_id for name, one in found.items() if one is not None}


def states(place: Place) -> Iterator[dict[str, Any]]:
    """What Nessie has of the mirror's tables at each commit that the branch has had since they are all there."""
    assert place.nessie is not None
    keys = [{"elements": [place.namespace, name]} for name in ("a", "b", "helios_mirror")]

    def ask(path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{place.nessie.uri}/trees/{path}", data, headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    for entry in ask("main/history?max-records=200")["logEntries"]:
        at = ask(f"main@{entry['commitMeta']['hash']}/contents", {"requestedKeys": keys})["contents"]
        found = {one["key"]["elements"][-1]: one["content"] for one in at}
        if len(found) == len(keys) and found["helios_mirror"]["snapshotId"] != -1:
            yield found


@pytest.mark.slow
def test_tables_change_together(
    there: World,
    place: Place,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    forget_commit: Callable[[Path, int], None],
) -> None:
    pipeline = mirror(there, place, database)
    first(database)
    there.run(pipeline)
    assert names(there, place) == AFTER_FIRST
    assert control(there, place) == (0, heads(there, place))
    second(database)
    moved, seen = catalog_commit.commit_tables, [pointers(there, place)]

    def dies(*given: Any) -> bool:
        raise RuntimeError("the driver died")

    with monkeypatch.context() as patched:
        patched.setattr(joint, "commit_tables", dies)
        with pytest.raises(HeliosError, match="the driver died"):
            there.run(pipeline)
    assert pointers(there, place) == seen[0]

    def beside_another(*given: Any) -> bool:
        if len(seen) == 1:  # another writer comes to one of the tables before the first try
            there.sql(f"INSERT INTO lake.{place.namespace}.b VALUES (7, 'other')")
            seen.append(pointers(there, place))
            done = moved(*given)
            assert not done
            assert pointers(there, place) == seen[1]  # none of the others has changed
            return done
        return moved(*given)

    with monkeypatch.context() as patched:
        patched.setattr(joint, "commit_tables", beside_another)
        run = there.run(pipeline)
    assert names(there, place) == (AFTER_SECOND[0], AFTER_SECOND[1] + Counter([(7, "other")]))
    assert run.metrics().commit_retries == 1
    assert control(there, place) == (1, heads(there, place))
    before = pointers(there, place)
    forget_commit(there.checkpoint(pipeline), 1)
    there.run(pipeline)
    assert there.kinds().count("skipped") == 1
    assert pointers(there, place) == before
    if place.nessie is not None:
        assert_one_position(there, place)


def assert_one_position(world: World, place: Place) -> None:
    """Each state that has ever been of the branch has the tables where the control table says that they are."""
    before, looks = None, 0
    for state in reversed(list(states(place))):
        location = state["helios_mirror"]["metadataLocation"]
        if location != before:  # else it is the commit of another writer
            assert {name: state[name]["snapshotId"] for name in "ab"} == row_of(world, place, location)
            before, looks = location, looks + 1
    assert looks > 1


def row_of(world: World, place: Place, location: str) -> dict[str, int]:
    """The snapshots that the control table names, by its metadata."""
    from pyiceberg.table import StaticTable

    assert place.nessie is not None
    table = StaticTable.from_metadata(location, place.nessie.storage.pyiceberg())
    [row] = table.scan().to_arrow().to_pylist()
    return {name.rpartition(".")[2]: id for name, id in row["tables"]}


FAULTS = {
    "503 after": answer_after(503),
    "429 after": answer_after(429),  # which Iceberg's client sends again: its own first sending is then in the way
    "dropped after": drop_after(),
    "dropped before": drop_before(),
}


QUICK = "503 after"
CASES = [pytest.param(fault, marks=[] if fault == QUICK else pytest.mark.slow) for fault in FAULTS]


@pytest.mark.parametrize("fault", CASES)
@pytest.mark.cases(landing="rest-503 after")
def test_a_fault_around_the_commit(there: World, place: Place, database: Database, fault: str) -> None:
    pipeline = mirror(there, place, database)
    first(database)
    there.run(pipeline)
    second(database)
    rule = place.proxy.fail(FAULTS[fault], method="POST", times=1, when=place.commits)
    there.run(pipeline)
    assert rule.hits == 1
    assert names(there, place) == AFTER_SECOND
    assert control(there, place) == (1, heads(there, place))
    if place.nessie is not None:
        assert_one_position(there, place)
    else:
        assert snapshots(there, place) == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["rest"], indirect=True)
@pytest.mark.parametrize("after", [1, 2])
def test_a_server_that_breaks_off_within_the_commit(there: World, place: Place, database: Database, after: int) -> None:
    """Each table has the batch once, and then the control table too."""
    pipeline = mirror(there, place, database)
    first(database)
    there.run(pipeline)
    second(database)
    place.proxy.after = after
    there.run(pipeline)
    assert place.proxy.after is None
    assert names(there, place) == AFTER_SECOND
    assert snapshots(there, place) == [2, 2]
    assert control(there, place) == (1, heads(there, place))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["rest"], indirect=True)
@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_without_the_endpoint(there: World, place: Place, database: Database, status: int) -> None:
    first(database)
    place.proxy.fail(answer_before(status), method="POST", when=place.commits)
    with pytest.raises(InputError, match=r"catalog 'lake' .* does not support commits of several tables") as refused:
        there.run(mirror(there, place, database))
    assert "leave atomic=True out" in str(refused.value.fix)
    assert names(there, place) == (Counter(), Counter())


@pytest.mark.slow
@pytest.mark.parametrize("place", ["rest"], indirect=True)
def test_a_server_that_forbids_it(there: World, place: Place, database: Database) -> None:
    first(database)
    place.proxy.fail(answer_before(403), method="POST", when=place.commits)
    with pytest.raises(RunError, match=r"catalog 'lake' refused a commit of 3 tables: Forbidden"):
        there.run(mirror(there, place, database))
    assert names(there, place) == (Counter(), Counter())


class Silent(FaultProxy):
    """A server that does not offer the endpoint, and says so."""

    @override
    def handle(self, request: Request) -> Response | None:
        answer = super().handle(request)
        if answer is None or "/v1/config" not in request.path:
            return answer
        namespaces = "/v1/{prefix}/namespaces"
        paths = ("", "/{namespace}", "/{namespace}/tables", "/{namespace}/tables/{table}")
        offered = [f"{method} {namespaces}{path}" for method in ("GET", "POST") for path in paths]
        body = json.dumps({"defaults": {}, "overrides": {}, "endpoints": offered}).encode()
        return Response(200, [("Content-Type", "application/json")], body)


def test_a_server_that_does_not_offer_the_endpoint(
    shared_spark: SparkSession, rest: Rest, database: Database, tmp_path: Path
) -> None:
    first(database)
    with Silent(rest.uri) as proxy:
        place = Place(Catalog.rest("lake", uri=proxy.uri, warehouse=rest.warehouse), proxy, by_transaction, "")
        world = World(shared_spark, tmp_path, place.catalog)
        with pytest.raises(InputError, match=r"does not support commits of several tables .*Server does not"):
            world.run(mirror(world, place, database))
    made = [exchange for exchange in proxy.exchanges if exchange.method == "POST"]
    assert made == []


KILLED = """
from helios import Catalog, Cdc, Iceberg, Kafka, Storage

changes = Kafka.source(pattern=r"{prefix}\\..*").servers("{servers}").incremental(poll=0.2)
sink = Iceberg.mirror("{namespace}", catalog={declared}, atomic=True).checkpoint("file://{folder}/checkpoint")
shop = Cdc.debezium(changes) >> sink.exactly_once()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["dropped before", "dropped after"])
def test_a_run_that_is_killed_around_the_commit(there: World, place: Place, database: Database, fault: str) -> None:
    """kill -9 of `helios run` once it has staged a batch, and once that is committed and not logged."""
    first(database)
    script = dedent(KILLED).format(
        prefix=database.prefix,
        servers=database.topics.broker.servers,
        namespace=place.namespace,
        declared=place.declared,
        folder=there.folder,
    )
    (there.folder / "pipeline.py").write_text(script)
    command = [sys.executable, "-m", "helios", "run", "pipeline.py"]
    done = once(command, there.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert names(there, place) == AFTER_FIRST
    before = pointers(there, place)
    second(database)
    reached = threading.Event()

    def killed(request: Request) -> bool:
        if place.commits(request):
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            reached.set()
            return True
        return False

    place.proxy.fail(FAULTS[fault], method="POST", times=1, when=killed)
    run = subprocess.Popen(command, cwd=there.folder, stdout=subprocess.DEVNULL, start_new_session=True)
    assert reached.wait(120)
    place.proxy.heal()
    if fault == "dropped before":
        assert pointers(there, place) == before
    done = once(command, there.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert names(there, place) == AFTER_SECOND
    assert control(there, place) == (1, heads(there, place))
    if place.nessie is not None:
        assert_one_position(there, place)
    else:
        assert snapshots(there, place) == [2, 2]


def once(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, "--once"], cwd=folder, capture_output=True, text=True, check=False)
