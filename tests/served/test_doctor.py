"""Bad input against real servers: one message with its fix, in under 10 s, from every command that meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from helios.cli import main
from helios.environment import jars
from helios.environment.coordinates import NEWEST
from helios.model import values
from tests.services.azurite import Azurite
from tests.services.fixtures import named_skip
from tests.services.minio import Minio
from tests.services.moto import Moto
from tests.services.oauth import OAuthProxy
from tests.services.proxy import Proxy, Request, Response
from tests.services.rest import Rest
from tests.services.server import Port

pytestmark = [pytest.mark.promise("doctor-servers"), pytest.mark.sampled(2)]

SECONDS = 30.0  # clients left to themselves wait a minute and try again
Settings = dict[str, Any]


@dataclass
class World:
    """The servers, and good settings for each."""

    minio: Minio
    proxy: OAuthProxy
    azurite: Azurite
    moto: Moto
    closed: int

    def rest(self, **other: Any) -> Settings:
        given = {"uri": self.proxy.uri, "warehouse": "s3://lake/wh", "credential": self.proxy.credential}
        return {"type": "rest", **given, **other}

    def s3(self, **other: Any) -> Settings:
        keys = {"access_key_id": self.minio.access_key, "secret_access_key": self.minio.secret_key}
        return {"type": "s3", "endpoint": self.minio.endpoint, "region": self.minio.region, **keys, **other}

    def adls(self, **other: Any) -> Settings:
        server = self.azurite
        given = {"account": server.account, "account_key": server.account_key, "endpoint": server.blob_endpoint}
        return {"type": "adls", **given, **other}

    def on_azure(self, container: str = "lake") -> Settings:
        jars.ensure(("abfs",), spark_version=NEWEST)  # else the doctor names them, too
        return {
            "type": "local",
            "path": "db",
            "warehouse": f"abfs://{container}@{self.azurite.account}.dfs.core.windows.net/wh",
        }

    def glue(self, **other: Any) -> Settings:
        return {"type": "glue", "endpoint": self.moto.endpoint, "warehouse": "s3://lake/glue", **other}

    def nowhere(self, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.closed}"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with ExitStack() as stack:
        with named_skip():
            minio = stack.enter_context(Minio())
            minio.bucket("lake")
            rest = stack.enter_context(Rest("s3://lake/wh", minio))
            azurite = stack.enter_context(Azurite())
            moto = stack.enter_context(Moto())
        azurite.container("lake")
        moto.bucket("lake")
        closed = Port()
        stack.callback(closed.release)
        proxy = stack.enter_context(OAuthProxy(rest.uri))
        yield World(minio, proxy, azurite, moto, closed.number)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    values.PARAMETERS.clear()
    values.USED_PARAMETERS.clear()


def declare(folder: Path, catalog: Settings, storage: Settings | None) -> None:
    sections = {"catalogs.c": {**catalog, **({"storage": "s"} if storage else {})}, "storages.s": storage or {}}
    lines = []
    for name, settings in sections.items():
        lines += [f"[{name}]"] if settings else []
        lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    (folder / "helios.toml").write_text("\n".join(lines))
    (folder / "p.py").write_text(
        "from helios import *\np = Memory.source([{'id': 1}]) >> Iceberg.sink('c.shop.orders')\n"
    )


def helios(*arguments: str) -> Result:
    """A command in this process, which must be quick; adlfs and pyarrow warn of their own futures."""
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(main, list(arguments), prog_name="helios")
    assert time.monotonic() - began < SECONDS, (arguments, done.output)
    return done


def one_message(done: Result, status: int, cause: str, fix: str) -> None:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert done.exit_code == status, done.stderr
    assert cause in lines[0]
    assert fix in lines[0].partition(" Fix: ")[2], lines[0]


@dataclass(frozen=True)
class Case:
    """Settings with a fault, and what must be said of it.

    Args:
        catalog: The settings of the catalog.
        storage: Those of its storage.
        status: The exit status of check and run: 2 if the input is wrong, 1 if a server is away.
        cause: Part of the message.
        fix: Part of the fix.
        listed: Whether the catalog itself is all right, so that `tables` lists it.
    """

    catalog: Callable[[World], Settings]
    storage: Callable[[World], Settings]
    status: int
    cause: str
    fix: str
    listed: bool = False


CASES = {
    "wrong client secret": Case(
        lambda w: w.rest(credential="helios:wrong"),
        World.s3,
        2,
        "refuses the client credentials",
        "`credential`",
    ),
    "wrong scope": Case(lambda w: w.rest(scope="other"), World.s3, 2, "does not grant the scope", "`scope`"),
    "no credential": Case(
        lambda w: {"type": "rest", "uri": w.proxy.uri, "warehouse": "s3://lake/wh"},
        World.s3,
        2,
        "does not know these credentials (401)",
        "`credential` or `token`",
    ),
    "expired token": Case(
        lambda w: {"type": "rest", "uri": w.proxy.uri, "warehouse": "s3://lake/wh", "token": "old"},
        World.s3,
        2,
        "token has expired",
        "`credential`, which renews tokens",
    ),
    "nothing listens": Case(
        lambda w: w.rest(uri=w.nowhere(), oauth2_server_uri=w.proxy.oauth2_server_uri),
        World.s3,
        1,
        "nothing listens at its address",
        "host and port",
    ),
    "no token server": Case(
        lambda w: w.rest(oauth2_server_uri=w.nowhere()), World.s3, 1, "nothing listens", "host and port"
    ),
    "unknown host": Case(
        lambda w: w.rest(uri="https://no-such-host.invalid"), World.s3, 1, "name of its host is not known", "DNS"
    ),
    "https to http": Case(
        lambda w: w.rest(uri=w.proxy.uri.replace("http:", "https:")), World.s3, 1, "TLS handshake", "http or https"
    ),
    "no such catalog": Case(
        lambda w: {"type": "rest", "uri": w.minio.endpoint, "warehouse": "s3://lake/wh"},
        World.s3,
        2,
        "is not a catalog of this type",
        "it must not include /v1",
    ),
    "no metastore": Case(
        lambda w: {"type": "hive", "uri": w.nowhere("thrift"), "warehouse": "s3://lake/h"},
        World.s3,
        1,
        "nothing listens",
        "host and port",
    ),
    "no nessie": Case(
        lambda w: {"type": "nessie", "uri": w.nowhere(), "warehouse": "s3://lake/n"},
        World.s3,
        1,
        "nothing listens",
        "host and port",
    ),
    "no glue": Case(lambda w: w.glue(endpoint=w.nowhere()), World.s3, 1, "nothing listens", "host and port"),
    "wrong key": Case(
        World.rest,
        lambda w: w.s3(access_key_id="AKIAWRONG"),
        2,
        "does not know the access key",
        "access_key_id",
        True,
    ),
    "wrong secret": Case(
        World.rest,
        lambda w: w.s3(secret_access_key="wrong"),
        2,
        "secret does not match the key",
        "secret key",
        True,
    ),
    "wrong session": Case(World.rest, lambda w: w.s3(session_token="wrong"), 2, "session token", "session_token", True),
    "wrong region": Case(World.rest, lambda w: w.s3(region="eu-west-1"), 2, "expecting 'us-east-1'", "region=", True),
    "no bucket": Case(
        lambda w: w.rest(warehouse="s3://no-such-bucket/wh"), World.s3, 2, "does not exist", "create it", True
    ),
    "moto without bucket": Case(
        lambda w: w.glue(warehouse="s3://no-such-bucket/wh"),
        lambda w: w.s3(endpoint=w.moto.endpoint),
        2,
        "does not exist",
        "create it",
        True,
    ),
    "no storage": Case(World.rest, lambda w: w.s3(endpoint=w.nowhere()), 1, "nothing listens", "host and port", True),
    "storage of no host": Case(
        World.rest, lambda w: w.s3(endpoint="https://no-such-host.invalid"), 1, "name of its host", "DNS", True
    ),
    "wrong account key": Case(
        lambda w: w.on_azure(),
        lambda w: w.adls(account_key="d3Jvbmc="),
        2,
        "secret does not match the key",
        "secret key",
        True,
    ),
    "no container": Case(lambda w: w.on_azure("gone"), World.adls, 2, "does not exist", "create it", True),
    "no azure": Case(
        lambda w: w.on_azure(),
        lambda w: w.adls(endpoint=w.nowhere() + "/devstoreaccount1"),
        1,
        "nothing listens",
        "host and port",
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.cases(landing="wrong scope")
def test_a_fault_is_told_by_every_command(world: World, folder: Path, name: str) -> None:
    case = CASES[name]
    declare(folder, case.catalog(world), case.storage(world))
    one_message(helios("check", "p.py"), case.status, case.cause, case.fix)
    one_message(helios("plan", "p.py"), case.status, case.cause, case.fix)
    listed = helios("tables", "c")
    if case.listed:
        assert listed.exit_code == 0, listed.stderr
    else:
        one_message(listed, case.status, case.cause, case.fix)
    one_message(helios("doctor", "--catalog", "c"), 1, case.cause, case.fix)
    told = json.loads(helios("doctor", "--catalog", "c", "--json").stdout)
    failed = [check for check in told["checks"] if check["ok"] is False]
    assert told["ok"] is False
    assert [case.cause in check["detail"] and case.fix in check["fix"] for check in failed] == [True]
    assert failed[0]["name"].startswith("storage of c" if case.listed else "catalog c")


@pytest.mark.parametrize("name", ["wrong client secret", "wrong region", "no bucket", "nothing listens"])
@pytest.mark.cases(landing="wrong client secret")
def test_a_run_does_not_wait_for_what_no_time_mends(world: World, folder: Path, name: str) -> None:
    case = CASES[name]
    declare(folder, case.catalog(world), case.storage(world))
    root = str(Path(__file__).parents[2])
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "helios", "run", "p.py"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (case.status, "")
    assert len(done.stderr.splitlines()) == 1
    assert case.cause in done.stderr
    # A run that finds the service away later waits 300 s for it.
    assert time.monotonic() - began < 60


def test_an_unknown_type_is_told_with_the_nearest_one(folder: Path) -> None:
    declare(folder, {"type": "rset", "uri": "https://a"}, None)
    for command in (("check", "p.py"), ("tables", "c"), ("doctor", "--catalog", "c"), ("run", "p.py")):
        one_message(helios(*command), 2, "helios.toml:2: catalogs.c.type: type 'rset' is unknown", "")
        assert "Did you mean 'rest'?" in helios(*command).stderr


def names(done: Result) -> list[tuple[str, bool | None]]:
    return [(check["name"], check["ok"]) for check in json.loads(done.stdout)["checks"]]


ROUND = [("storage of c: put", True), ("storage of c: get", True), ("storage of c: delete", True)]


@pytest.mark.landing
def test_a_healthy_catalog_is_looked_at_from_its_address_to_a_file_on_its_storage(world: World, folder: Path) -> None:
    declare(folder, world.rest(), world.s3())
    done = helios("doctor", "--catalog", "c", "--json")
    assert names(done)[3:] == [
        ("memory", True),
        ("catalog c: address", True),
        ("catalog c: credentials", True),
        ("catalog c", True),
        ("storage of c: address", True),
        ("storage of c: credentials", True),
        *ROUND,
    ]
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["catalog c: credentials"]["detail"] == "credential ***, given at helios.toml:1"
    assert checks["storage of c: credentials"]["detail"].startswith("access_key_id ***, secret_access_key ***, given")
    assert checks["jars"]["detail"].startswith("iceberg, aws, s3a in "), "also those of the checkpoint's file system"
    assert all(check["milliseconds"] is not None for check in checks.values())
    assert world.minio.secret_key not in done.output
    client = world.minio.client()
    left = client.list_objects_v2(Bucket="lake", Prefix="wh/.helios-doctor")
    client.close()
    assert left["KeyCount"] == 0
    assert "storage of c: put" in helios("doctor", "--catalog", "c").stdout


def test_healthy_catalogs_on_azure_and_of_glue(world: World, folder: Path) -> None:
    declare(folder, world.on_azure(), world.adls())
    assert names(helios("doctor", "--catalog", "c", "--json"))[-3:] == ROUND
    declare(folder, world.glue(), world.s3())
    assert names(helios("doctor", "--catalog", "c", "--json"))[-3:] == ROUND


def test_a_warehouse_that_only_the_server_knows_is_found_by_its_tables(world: World, folder: Path) -> None:
    import pyarrow as pa

    from helios import Catalog

    unnamed = {key: value for key, value in world.rest().items() if key != "warehouse"}
    declare(folder, unnamed, world.s3())
    before = names(helios("doctor", "--catalog", "c", "--json"))
    assert ("storage of c", None) in before or before[-3:] == ROUND
    lake = Catalog.rest("seed", uri=world.proxy.uri, credential=world.proxy.credential)
    lake = Catalog(lake.name, "rest", lake.options, properties=tuple(world.minio.pyiceberg().items()))
    lake.create_namespace("seeds")
    lake.create_table("seeds.t", pa.schema([("id", pa.int64())]))
    try:
        assert names(helios("doctor", "--catalog", "c", "--json"))[-3:] == ROUND
    finally:
        lake.drop_table("seeds.t")


class Mute(Proxy):
    """Accepts requests and answers none for a while."""

    def handle(self, request: Request) -> Response | None:
        time.sleep(15)
        return None


@pytest.mark.parametrize(
    ("hanging", "about"), [("catalog", "catalog c"), ("storage", "storage of c: put"), ("azure", "storage of c: put")]
)
@pytest.mark.cases(landing="catalog-catalog c")
def test_no_look_takes_longer_than_its_bound(world: World, folder: Path, hanging: str, about: str) -> None:
    with Mute(world.minio.endpoint) as mute:
        catalogs = {"catalog": world.rest(uri=mute.uri), "storage": world.rest(), "azure": world.on_azure()}
        storages = {
            "catalog": world.s3(),
            "storage": world.s3(endpoint=mute.uri),
            "azure": world.adls(endpoint=f"{mute.uri}/devstoreaccount1"),
        }
        declare(folder, catalogs[hanging], storages[hanging])
        checks = json.loads(helios("doctor", "--catalog", "c", "--json").stdout)["checks"]
    failed = {check["name"]: check for check in checks if check["ok"] is False}
    assert list(failed) == [about]
    assert "did not answer in time" in failed[about]["detail"]
    assert failed[about]["milliseconds"] < SECONDS * 1000


def test_several_catalogs_do_not_hold_each_other_up(world: World, folder: Path) -> None:
    """A request to S3 that hangs would block every later client of the process, were it not for its own bound."""
    with Mute(world.minio.endpoint) as mute:
        declare(folder, world.rest(), world.s3(endpoint=mute.uri))
        told = (folder / "helios.toml").read_text()
        again = told.replace("catalogs.c", "catalogs.d").replace("storages.s", "storages.t").replace('"s"', '"t"')
        (folder / "helios.toml").write_text(f"{told}\n{again.replace(mute.uri, world.minio.endpoint)}")
        begun = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = CliRunner().invoke(main, ["doctor", "--json"], prog_name="helios")
        assert time.monotonic() - begun < 2 * SECONDS
    states = dict(names(done))
    assert states["storage of c: put"] is False
    assert states["storage of d: delete"] is True
