"""Pipelines with a marker in every place where a secret may stand; no marker may be anywhere else. Two Spark starts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from helios import Catalog, Storage
from tests.services.azurite import Azurite
from tests.services.fixtures import named_skip
from tests.services.minio import Minio
from tests.services.oauth import OAuthProxy
from tests.services.rest import Rest
from tests.services.server import Port
from tests.suite.waiting import PATIENCE, until

pytestmark = pytest.mark.promise("secrets")

HELIOS = (sys.executable, "-m", "helios")
MARK = "MARKER"
"""Every secret of these tests holds it, but for those that servers choose."""


class MarkedMinio(Minio):
    access_key = f"{MARK}accesskeyid"
    secret_key = f"{MARK}secretaccesskey"


@dataclass
class Found:
    """Where secrets were looked for, and where one was found."""

    secrets: list[bytes]
    places: dict[str, int] = field(default_factory=dict)
    leaks: list[str] = field(default_factory=list)

    def look(self, place: str, said: str | bytes) -> None:
        text = said if isinstance(said, bytes) else said.encode()
        self.places[place] = self.places.get(place, 0) + len(text)
        for secret in self.secrets:
            for at in re.finditer(re.escape(secret), text):
                around = text[max(0, at.start() - 80) : at.end() + 20]
                self.leaks.append(f"{place}: ...{around.decode(errors='replace')}...")
                break

    def nothing(self) -> None:
        leaks, self.leaks = self.leaks, []
        assert not leaks, "\n".join(leaks)

    def look_into(self, place: str, folder: Path, but: tuple[str, ...] = ()) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name not in but:
                self.look(f"{place} {path.name}", plain(path.read_bytes()))


def plain(content: bytes) -> bytes:
    """A small file's bytes beside what is packed in them, as in gzip and in the blocks of Avro: each place is tried."""
    unpacked = [content]
    for at in range(len(content) if len(content) <= 60_000 else 0):
        bits = 31 if content.startswith(b"\x1f\x8b", at) else -15
        try:
            unpacked.append(zlib.decompressobj(bits).decompress(content[at : at + 8_192]))
        except zlib.error:
            continue
    return b"\n".join(one for one in unpacked if one)


class Watch:
    """Looks at the arguments of every process of this machine, all the time."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._done = threading.Event()
        self._seen: set[bytes] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def programs(self) -> set[str]:
        return {line.split(b"\0")[0].decode(errors="replace").rpartition("/")[2] for line in self._seen}

    def _run(self) -> None:
        while not self._done.wait(0.05):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = path.read_bytes()
                except OSError:
                    continue
                if line not in self._seen:
                    self._seen.add(line)
                    self._found.look("process arguments", line)


@dataclass
class Place:
    """A project whose every secret is marked, and its servers."""

    folder: Path
    minio: MarkedMinio
    proxy: OAuthProxy
    azurite: Azurite
    ui: int
    found: Found

    @property
    def environment(self) -> dict[str, str]:
        root = str(Path(__file__).parents[2])
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
            "SOME_CREDENTIAL": self.proxy.credential,
            "SOME_SECRET": self.minio.secret_key,
        }

    def helios(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._python(f"helios {arguments[0]}", "-m", "helios", *arguments)

    def commands(self, *several: tuple[str, ...]) -> list[int]:
        """The exit statuses of commands that start no Spark, in one process."""
        done = self._python("commands", "-c", COMMANDS, json.dumps(several))
        assert done.returncode == 0, done.stderr
        return [int(status) for status in re.findall(r"^EXIT (\d+)$", done.stdout, re.MULTILINE)]

    def _python(self, what: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        self.found.look(what, done.stdout + done.stderr)
        return done

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ui}/{path}", timeout=20) as answer:
            return str(answer.read().decode())


CONFIG = """
[spark]
master = "local[2]"
native = "auto"

[spark.conf]
"spark.ui.enabled" = true
"spark.ui.port" = {ui}
"spark.eventLog.enabled" = true
"spark.eventLog.compress" = false
"spark.eventLog.rolling.enabled" = false
"spark.eventLog.dir" = "{events}"
"spark.redaction.regex" = "my-own-pattern"
"spark.some.my-own-pattern" = "{mark}bymyownpattern"
"spark.hadoop.fs.s3a.secret.key" = "{mark}hadoopsecret"
"spark.hadoop.fs.s3a.access.key" = "{mark}hadoopkey"
"spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net" = "{mark}hadoopaccount"
"spark.my.database" = "jdbc:postgresql://me:{mark}inaurl@db/x"

[catalogs.sec]
type = "rest"
uri = "{proxy}"
warehouse = "s3://lake/wh"
credential = "${{SOME_CREDENTIAL}}"
oauth2_server_uri = "{tokens}"
storage = "minio"
properties = {{ "header.X-Api-Key" = "{mark}header", "rest.auth.secret" = "{mark}property" }}

[catalogs.azure]
type = "local"
path = "azure"
warehouse = "{container}"
storage = "azurite"
properties = {{ "some.secret.property" = "{mark}localproperty", "proxy-url" = "https://me:{mark}urlpassword@proxy" }}

[catalogs.token]
type = "rest"
uri = "{proxy}"
token = "{mark}token"
warehouse = "s3://lake/wh"
storage = "session"

[catalogs.sas]
type = "local"
path = "sas"
warehouse = "{container}"
storage = "sas"

[storages.minio]
type = "s3"
endpoint = "{minio}"
access_key_id = "{key}"
secret_access_key = "${{SOME_SECRET}}"

[storages.session]
type = "s3"
endpoint = "{minio}"
access_key_id = "{mark}wrongkey"
secret_access_key = "{mark}wrongsecret"
session_token = "{mark}sessiontoken"

[storages.azurite]
type = "adls"
connection_string = "{connection}"

[storages.sas]
type = "adls"
account = "devstoreaccount1"
endpoint = "{blob}"
sas_token = "sv=2022-11-02&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00:00:00Z&sig={mark}sas"
"""

PIPELINE = """
from helios import Iceberg, Catalog, Storage
from helios.plan.native import engine
from pyspark.sql import functions as F

def peek(df):
    spark = df.sparkSession
    df.explain("extended")
    for statement in (
        "SET", "SHOW TBLPROPERTIES sec.shop.orders", "DESCRIBE EXTENDED sec.shop.orders",
        "EXPLAIN FORMATTED SELECT count(*) FROM sec.shop.orders GROUP BY id", "SHOW CREATE TABLE sec.shop.orders",
        "EXPLAIN EXTENDED SELECT * FROM sec.shop.orders",
    ):
        for row in spark.sql(statement).collect():
            print(statement, *row, flush=True)
    return df.withColumn("text", F.udf(lambda x: f"<{x}>", "string")("id"))

orders = (
    Iceberg.source("sec.shop.orders").incremental(poll="1s")
    >> peek
    >> Iceberg.sink("sec.shop.copy").upsert("id", order_by="id")
)
engine.MIN_NATIVE_BYTES = 0
natively = Iceberg.source("sec.shop.orders").incremental(poll="1s") >> Iceberg.sink("sec.shop.natively")
"""

FAILING = """
from helios import Iceberg, Memory

def boom(df):
    raise ValueError("boom: " + str(dict(df.sparkSession.sparkContext.getConf().getAll()).get("spark.app.name")))

def late(df):
    return df.selectExpr("id", "1 / (id - 1) AS x")

ok = Memory.source([{"id": 1}]) >> Iceberg.sink("azure.shop.orders")
failing = Memory.source([{"id": 1}]) >> boom >> Iceberg.sink("azure.shop.never")
failing_late = Memory.source([{"id": 1}]) >> late >> Iceberg.sink("sec.shop.late")
"""

COMMANDS = """
import json, sys
from click.testing import CliRunner
from helios.cli import main
for arguments in json.loads(sys.argv[1]):
    done = CliRunner().invoke(main, arguments, prog_name="helios")
    print(done.output)
    print("EXIT", done.exit_code)
"""

WRONG = """
from helios import Iceberg, Memory
p = Memory.source([{"id": 1}]) >> Iceberg.sink("NAME.shop.orders").checkpoint("/tmp/none")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("project")
    with ExitStack() as stack:
        with named_skip():
            minio = stack.enter_context(MarkedMinio())
            minio.bucket("lake")
            rest = stack.enter_context(Rest("s3://lake/wh", minio))
            azurite = stack.enter_context(Azurite())
        proxy = stack.enter_context(OAuthProxy(rest.uri, f"{MARK}client", f"{MARK}clientsecret"))
        container = azurite.container("lake").replace("abfss:", "abfs:") + "/wh"
        (folder / "events").mkdir()
        ui = Port()
        stack.callback(ui.release)
        config = CONFIG.format(
            mark=MARK,
            ui=ui.number,
            events=(folder / "events").as_uri(),
            proxy=proxy.uri,
            tokens=proxy.oauth2_server_uri,
            minio=minio.endpoint,
            key=minio.access_key,
            container=container,
            connection=azurite.connection_string,
            blob=azurite.blob_endpoint,
        )
        (folder / "helios.toml").write_text(config)
        (folder / "pipeline.py").write_text(PIPELINE)
        (folder / "failing.py").write_text(FAILING)
        for name in ("token", "sas"):
            (folder / f"with_{name}.py").write_text(WRONG.replace("NAME", name))
        # What servers choose: tokens as they are issued, and the key of Azurite's only account.
        secrets = [MARK.encode(), b"tok-", azurite.account_key.encode()]
        seed(proxy, minio)
        yield Place(folder, minio, proxy, azurite, ui.number, Found(secrets))


def seed(proxy: OAuthProxy, minio: MarkedMinio) -> None:
    catalog = marked_catalog(proxy, minio)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64())])).iceberg
    table.append(pa.table({"id": [1, 2, 3]}))


def marked_catalog(proxy: OAuthProxy, minio: MarkedMinio) -> Catalog:
    storage = Storage.s3(endpoint=minio.endpoint, access_key_id=minio.access_key, secret_access_key=minio.secret_key)
    return Catalog.rest("seed", uri=proxy.uri, warehouse="s3://lake/wh", credential=proxy.credential, storage=storage)


@pytest.mark.landing
def test_commands_that_start_no_spark(place: Place) -> None:
    scripts = ("pipeline.py", "failing.py")
    fine = [(one, script) for one in ("plan", "check", "graph") for script in scripts]
    fine += [(one, script, "--json") for one in ("plan", "check") for script in scripts]
    fine.append(("tables", "sec", "--debug"))
    assert place.commands(*fine) == [0] * len(fine)
    # Refused by the servers, whose answers may repeat what they were sent.
    scripts = ("with_token.py", "with_sas.py")
    wrong = [("check", script, *debug) for script in scripts for debug in ((), ("--debug",), ("--json",))]
    assert place.commands(*wrong) == [2] * len(wrong)
    doctor = [("doctor", *more) for more in ((), ("--json",), ("--debug",), ("--catalog", "sas"))]
    assert place.commands(*doctor) == [1] * len(doctor)
    assert place.helios("run", "with_token.py", "--debug").returncode == 2
    place.found.nothing()


@dataclass(frozen=True)
class Run:
    """A run that was watched and has ended."""

    said: str
    programs: set[str]
    executions: str
    environment: str


@pytest.fixture(scope="module")
def run(place: Place) -> Run:
    out = place.folder / "out.txt"
    with Watch(place.found) as watch, out.open("wb") as log:
        process = subprocess.Popen(
            [*HELIOS, "run", "pipeline.py"], cwd=place.folder, env=place.environment, stdout=log, stderr=log
        )
        try:
            until(lambda: out.read_bytes().count(b"  batch 0") == 2 or process.poll() is not None)
            assert process.poll() is None, out.read_text()
            application = json.loads(place.get("api/v1/applications"))[0]["id"]
            api = f"api/v1/applications/{application}"
            executions = f"{api}/sql?details=true&planDescription=true&length=1000"
            pages = ["environment/", "SQL/", "jobs/", "stages/", "StreamingQuery/", "executors/", executions]
            pages += [f"{api}/{one}" for one in ("environment", "jobs", "stages", "allexecutors")]
            pages += [f"SQL/execution/?id={one['id']}" for one in json.loads(place.get(executions))]
            shown = {page: place.get(page) for page in pages}
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0, out.read_text()
        finally:
            process.kill()
            process.wait()
    for page, text in shown.items():
        place.found.look(f"UI {page}", text)
    place.found.look("log of the run", out.read_bytes())
    return Run(out.read_text(), watch.programs, shown[executions], shown[f"{api}/environment"])


def test_a_run_and_all_that_it_leaves_and_shows(place: Place, run: Run) -> None:
    assert "shop" in run.executions, "the pages are of this run"
    assert "spark.some.my-own-pattern" in run.environment
    assert "java" in run.programs
    assert any(program.startswith("python") for program in run.programs)
    assert "== Optimized Logical Plan ==" in run.said
    assert "SHOW TBLPROPERTIES sec.shop.orders" in run.said
    assert "sec.shop.natively" in run.said
    assert "engine spark" not in run.said
    place.found.look_into("event log", place.folder / "events")
    assert "event log" in " ".join(place.found.places)
    place.found.nothing()


def test_failing_runs_with_java_traces_and_a_log_for_machines(place: Place) -> None:
    with Watch(place.found):
        done = place.helios("run", "failing.py", "--once", "--debug", "--log-format", "json", "--json")
    assert done.returncode == 1, done.stderr
    states = {one["target"]: one["state"] for one in json.loads(done.stdout)}
    assert states == {
        "azure.shop.orders": "finished",
        "azure.shop.never": "failed",
        "sec.shop.late": "failed",
    }
    assert "Traceback" in done.stderr
    place.found.look_into("event log", place.folder / "events")
    place.found.nothing()


def test_what_is_in_the_warehouses_and_checkpoints(place: Place, run: Run) -> None:
    client = place.minio.client()
    keys = [one["Key"] for one in client.list_objects_v2(Bucket="lake").get("Contents", [])]
    for key in keys:
        body = client.get_object(Bucket="lake", Key=key)["Body"].read()
        place.found.look(f"warehouse {key}", plain(body))
    client.close()
    for kind in (".metadata.json", ".avro", ".parquet", "offsets/0", "helios/"):
        assert any(kind in key for key in keys), (kind, keys)
    place.found.look_into("azurite", place.azurite.folder / "data", but=("__azurite_db_blob__.json",))
    place.found.look_into("catalog", place.folder / "azure")
    catalog = marked_catalog(place.proxy, place.minio)
    for name in catalog.tables("shop"):
        table = catalog.load(name).iceberg
        place.found.look(f"metadata of {name}", repr(table.metadata))  # PyIceberg writes no v3
        place.found.look(f"snapshots of {name}", str(table.snapshots()))
    place.found.nothing()


def test_declared_values_show_nothing() -> None:
    found = Found([MARK.encode()])
    storages = [
        Storage.s3(access_key_id=f"{MARK}a", secret_access_key=f"{MARK}b", session_token=f"{MARK}c"),
        Storage.adls("lake", account_key=f"{MARK}a"),
        Storage.adls("lake", sas_token=f"{MARK}a"),
        Storage.adls(connection_string=f"AccountName=lake;AccountKey={MARK}a"),
    ]
    catalogs = [
        Catalog.rest("a", uri="https://a", credential=f"{MARK}a:{MARK}b", properties={"x.secret": f"{MARK}d"}),
        Catalog.rest("a", uri="https://a", token=f"{MARK}a", properties={"header.Authorization": f"{MARK}e"}),
        Catalog.nessie("a", uri="https://a", token=f"{MARK}a", warehouse="s3://b/c", storage=storages[0]),
        Catalog.local("a", path="/a", properties={"proxy": f"https://me:{MARK}f@proxy"}),
        Catalog.rest("a", uri="https://a", properties={"s3.sse.key": f"{MARK}g", "gcs.encryption-key": f"{MARK}h"}),
        Catalog.rest("a", uri="https://a", properties={"header.Cookie": f"{MARK}i", "x.pwd": f"{MARK}j"}),
    ]
    for value in (*storages, *catalogs):
        for text in (repr(value), str(value), f"{value}", f"{value!r:>10}", str(asdict(value)), str([value])):
            found.look("a declared value", text)
        found.look("as JSON", json.dumps(asdict(value), default=str))
    found.nothing()
    assert sum(found.places.values()) > 1000


@pytest.mark.landing
def test_a_secret_that_is_somewhere_is_found(place: Place) -> None:
    """The control: where the user himself writes a marker, these tests see it."""
    place.found.leaks.clear()
    catalog = marked_catalog(place.proxy, place.minio)
    table = catalog.create_table("shop.control", pa.schema([("id", pa.int64())])).iceberg
    with table.transaction() as change:
        change.set_properties({"note": f"{MARK}control"})
    client = place.minio.client()
    keys = [one["Key"] for one in client.list_objects_v2(Bucket="lake", Prefix="wh/shop/control").get("Contents", [])]
    for key in keys:
        place.found.look("warehouse", plain(client.get_object(Bucket="lake", Key=key)["Body"].read()))
    client.close()
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = b"Obj\x01" + b"x" * 20 + deflate.compress(f"{MARK} in a block of Avro".encode()) + deflate.flush()
    place.found.look("packed", plain(packed))
    with Watch(place.found):
        subprocess.run([sys.executable, "-c", "import time; time.sleep(0.5)", f"{MARK}argument"], check=True)
    places = {leak.partition(":")[0] for leak in place.found.leaks}
    place.found.leaks.clear()
    assert places == {"warehouse", "packed", "process arguments"}
