"""The starters themselves: each server, tried with a client that is not Spark."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io import FileIO

from tests.services.azurite import Azurite
from tests.services.cluster import Cluster
from tests.services.fixtures import named_skip
from tests.services.gcs import Gcs
from tests.services.hive import Hive
from tests.services.kafka import Kafka, answers
from tests.services.minio import Minio
from tests.services.moto import Moto
from tests.services.nessie import Nessie
from tests.services.postgres import Postgres
from tests.services.rest import Rest
from tests.services.server import PORTS, Server, StartFailed, Unavailable, listens
from tests.suite.waiting import PATIENCE

pytestmark = [pytest.mark.sampled(1), pytest.mark.promise("suite")]

SCHEMA = pa.schema([("id", pa.int64())])


class Sleeper(Server):
    """A server with a child of its own."""

    service = "sleeper"
    start_seconds = 5.0
    script = "sleep 600 & echo $! > child; wait"

    def command(self) -> list[str]:
        return ["/bin/sh", "-c", self.script]

    def ready(self) -> bool:
        return (self.folder / "child").exists()


def ends(pid: int) -> bool:
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            # A zombie whose parent has not looked yet has ended too.
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def write_and_read(catalog: Catalog) -> tuple[str, ...]:
    """Makes a table, appends twice, reads it back; returns its name."""
    name = (f"db_{uuid.uuid4().hex[:8]}", "t")
    catalog.create_namespace(name[:1])
    catalog.create_table(name, schema=SCHEMA).append(pa.table({"id": [1, 2, 3]}))
    catalog.load_table(name).append(pa.table({"id": [3]}))
    assert ids(catalog, name) == [1, 2, 3, 3]
    return name


def ids(catalog: Catalog, name: tuple[str, ...]) -> list[int]:
    rows: list[int] = catalog.load_table(name).scan().to_arrow()["id"].to_pylist()
    return sorted(rows)


def put_get_delete(io: FileIO, location: str) -> None:
    with io.new_output(location).create(overwrite=True) as file:
        file.write(b"hello")
    with io.new_input(location).open() as file:
        assert file.read() == b"hello"
    io.delete(location)
    assert not io.new_input(location).exists()


@pytest.mark.parametrize("end", [Server.stop, Server.kill])
def test_a_stop_and_a_kill_end_the_children_too(end: Callable[[Server], None], tmp_path: Path) -> None:
    with Sleeper(tmp_path) as server:
        child, port = int((tmp_path / "child").read_text()), server.port
        end(server)
        assert not server.running
        assert ends(child)
        (tmp_path / "child").unlink()
        assert server.start().port == port
        assert server.running


def test_no_server_outlives_a_killed_test_process(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, time; from tests.services.test_services import Sleeper; "
        "Sleeper(pathlib.Path(sys.argv[1])).start(); print('up', flush=True); time.sleep(600)"
    )
    tester = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert tester.stdout is not None
    assert tester.stdout.readline() == b"up\n"
    pids = [int((tmp_path / name).read_text()) for name in ("pid", "child")]
    tester.send_signal(signal.SIGKILL)
    tester.wait()
    tester.stdout.close()
    assert [ends(pid) for pid in pids] == [True, True]


def test_a_server_that_ends_at_once_shows_its_log(tmp_path: Path) -> None:
    server = Sleeper(tmp_path)
    server.script = "echo out of luck; exit 3"
    with pytest.raises(StartFailed, match=r"(?s)sleeper ended at once with status 3.*out of luck"):
        server.__enter__()


def test_a_server_that_never_serves_is_given_up(tmp_path: Path) -> None:
    server = Sleeper(tmp_path)
    server.script, server.start_seconds = "sleep 600", 0.3  # type: ignore[misc]
    with pytest.raises(StartFailed, match="did not serve within 0 s"):
        server.__enter__()
    assert not server.running


def test_two_servers_have_two_ports() -> None:
    first, second = Sleeper(), Sleeper()
    assert first.port != second.port
    assert {first.port, second.port} <= set(PORTS)
    first.close()
    second.close()
    assert not first.folder.exists()


def test_what_is_not_installed_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_CACHE", str(tmp_path))
    install = "not installed: run `python -m tests.services install minio`"
    cause = install if shutil.which("go") else "it is built from Go source, and there is no `go` on PATH"
    with pytest.raises(Unavailable, match=f"minio: {cause}"):
        Minio(tmp_path / "data").__enter__()
    with pytest.raises(pytest.skip.Exception, match=f"service not to be had: minio: {cause}"), named_skip():
        Minio(tmp_path / "data").__enter__()


@pytest.mark.promise("s3")
def test_minio_keeps_its_objects_over_a_kill(minio: Minio) -> None:
    client = minio.client()
    client.put_object(Bucket=minio.bucket("kept"), Key="a", Body=b"x")
    minio.kill()
    assert not listens(minio.port)
    minio.start()
    assert client.get_object(Bucket=minio.bucket("kept"), Key="a")["Body"].read() == b"x"
    client.close()


@pytest.mark.promise("s3", "rest")
def test_rest_on_minio_keeps_its_tables_and_has_replicas(minio: Minio, tmp_path: Path) -> None:
    with named_skip(), Rest(f"s3://{minio.bucket('lake')}/rest", minio, folder=tmp_path / "one") as server:
        catalog = load_catalog("one", type="rest", uri=server.uri, **minio.pyiceberg())
        name = write_and_read(catalog)
        put_get_delete(catalog.load_table(name).io, "s3://lake/probe")
        for end in (server.stop, server.kill):
            end()
            server.start()
            assert ids(catalog, name) == [1, 2, 3, 3]
        with Rest(server.warehouse, minio, database=server.database, folder=tmp_path / "two") as other:
            replica = load_catalog("two", type="rest", uri=other.uri, **minio.pyiceberg())
            replica.load_table(name).append(pa.table({"id": [4]}))
            assert ids(catalog, name) == [1, 2, 3, 3, 4]


@pytest.mark.promise("rest", "adls")
def test_rest_on_azurite(azurite: Azurite, tmp_path: Path) -> None:
    base = azurite.container("lake")
    with named_skip(), Rest(f"{base}/rest", azurite, folder=tmp_path) as server:
        catalog = load_catalog("x", type="rest", uri=server.uri, **azurite.pyiceberg())
        name = write_and_read(catalog)
        put_get_delete(catalog.load_table(name).io, f"{base}/probe")
        azurite.stop()
        azurite.start()
        assert ids(catalog, name) == [1, 2, 3, 3]


@pytest.mark.promise("rest", "gcs")
def test_rest_on_gcs(gcs: Gcs, tmp_path: Path) -> None:
    with named_skip(), Rest(f"gs://{gcs.bucket('lake')}/rest", gcs, folder=tmp_path) as server:
        catalog = load_catalog("x", type="rest", uri=server.uri, **gcs.pyiceberg())
        name = write_and_read(catalog)
        put_get_delete(catalog.load_table(name).io, "gs://lake/probe")
        gcs.stop()
        gcs.start()
        assert ids(catalog, name) == [1, 2, 3, 3]


@pytest.mark.promise("glue")
def test_glue_on_its_own_s3_and_on_minio(moto: Moto, minio: Minio) -> None:
    for storage in (moto, minio):
        warehouse = f"s3://{storage.bucket('lake')}/glue"
        write_and_read(load_catalog("x", **moto.glue(), **storage.pyiceberg(), warehouse=warehouse))


@pytest.mark.promise("hive")
def test_hive_keeps_its_tables(hive: Hive) -> None:
    name = write_and_read(load_catalog("x", type="hive", uri=hive.uri))
    hive.stop()
    hive.start()
    assert ids(load_catalog("x", type="hive", uri=hive.uri), name) == [1, 2, 3, 3]


@pytest.mark.promise("hive")
def test_hive_on_minio(minio: Minio, tmp_path: Path) -> None:
    with named_skip(), Hive(f"s3://{minio.bucket('lake')}/hive", minio, folder=tmp_path) as server:
        write_and_read(load_catalog("x", type="hive", uri=server.uri, **minio.pyiceberg()))


@pytest.mark.promise("nessie")
def test_nessie_keeps_its_tables(nessie: Nessie) -> None:
    options = {"type": "rest", "uri": nessie.iceberg_uri, **nessie.storage.pyiceberg()}
    name = write_and_read(load_catalog("x", **options))
    nessie.stop()
    nessie.start()
    assert ids(load_catalog("x", **options), name) == [1, 2, 3, 3]


@pytest.mark.promise("nessie")
def test_a_branch_of_nessie_has_tables_of_its_own(nessie: Nessie) -> None:
    storage = nessie.storage.pyiceberg()
    main = load_catalog("x", type="rest", uri=nessie.iceberg_uri, **storage)
    name = write_and_read(main)
    branch = load_catalog("y", type="rest", uri=f"{nessie.iceberg_uri}/{nessie.branch('dev')}", **storage)
    branch.load_table(name).append(pa.table({"id": [4]}))
    assert (ids(branch, name), ids(main, name)) == ([1, 2, 3, 3, 4], [1, 2, 3, 3])


@pytest.mark.promise("cluster")
def test_a_killed_worker_leaves_the_cluster_and_comes_back(cluster: Cluster) -> None:
    def has(workers: int) -> None:
        until = time.monotonic() + PATIENCE
        while cluster.master.alive() != workers:  # a worker joins a moment after it has started
            assert time.monotonic() < until, cluster.master.state()
            time.sleep(0.1)

    has(2)
    first = cluster.workers[0]
    first.kill()
    has(1)
    first.start()
    has(2)


@pytest.mark.promise("kafka")
def test_kafka_answers_and_keeps_its_cluster_through_a_restart(tmp_path: Path) -> None:
    with named_skip(), Kafka(tmp_path) as broker:
        meta = (tmp_path / "data" / "meta.properties").read_text()
        broker.kill()
        assert not answers(broker.port)
        broker.start()
        assert answers(broker.port)
        assert listens(int(broker.secure_servers.rpartition(":")[2]))
        assert (tmp_path / "data" / "meta.properties").read_text() == meta


@pytest.mark.promise("cdc")
def test_postgres_keeps_its_rows_through_a_kill() -> None:
    with named_skip(), Postgres() as server:
        server.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2);")
        server.kill()
        server.start()
        assert server.sql("SELECT count(*), current_setting('wal_level') FROM t") == "2|logical"
        with pytest.raises(RuntimeError, match="duplicate key"):
            server.sql("INSERT INTO t VALUES (1);")
