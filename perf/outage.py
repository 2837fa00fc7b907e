"""A service that is away while a pipeline runs, with real servers and processes: prints what happened.

    python perf/outage.py --seconds 60
    python perf/outage.py --seconds 60 --service storage
    python perf/outage.py --seconds 60 --service replica
    python perf/outage.py --seconds 60 --service token
    python perf/outage.py --seconds 60 --kill

`helios run` follows a table of Iceberg's own REST catalog and copies it. When it has committed a few batches, the
service is killed, and started again after some seconds: the catalog, the storage (MinIO, with the checkpoint on it
too), or the first of two replicas of the catalog, which stays away. `token` has a catalog whose OAuth2 tokens expire
after three seconds, and nothing is killed. With `--kill` the driver is killed in the outage as well. At the end every
row and every stamp in the target is counted. Exit status 1: something was lost or came twice.

The servers are those of `tests/services`: `python -m tests.services install rest minio` fetches them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import pyarrow as pa  # noqa: E402

from helios import Catalog, Storage  # noqa: E402
from tests.services.minio import Minio  # noqa: E402
from tests.services.oauth import OAuthProxy  # noqa: E402
from tests.services.rest import Rest  # noqa: E402

SCRIPT = """
from helios import Iceberg
copy = (
    Iceberg.source("prod.outage.source").incremental(poll="200ms")
    >> Iceberg.sink("prod.outage.target"){mode}.retry(outage={outage}).checkpoint({checkpoint!r})
)
"""
MODES = {"append": "", "upsert": '.upsert("id")', "branch": '.branch("copy")'}
SERVICES = ("catalog", "storage", "replica", "token")
TOKEN_SECONDS = 3.0
ROWS = 50
"""Of each commit to the source."""


class World:
    """The servers, the source, and the driver."""

    def __init__(self, service: str, mode: str, outage: float, folder: Path, stack: ExitStack) -> None:
        self.folder, self.mode = folder, mode
        storage, warehouse, checkpoint, declared = None, None, str(folder / "checkpoint"), {}
        self.minio: Minio | None = None
        if service == "storage":
            self.minio = stack.enter_context(Minio())
            bucket = self.minio.bucket("lake")
            warehouse, checkpoint = f"s3://{bucket}/wh", f"s3a://{bucket}/checkpoint"
            storage = Storage.s3(
                endpoint=self.minio.endpoint,
                region=self.minio.region,
                access_key_id=self.minio.access_key,
                secret_access_key=self.minio.secret_key,
            )
        self.rest = stack.enter_context(Rest(warehouse, self.minio))
        uris, last = [self.rest.uri], self.rest
        if service == "replica":
            last = stack.enter_context(Rest(warehouse, self.minio, database=self.rest.database))
            uris.append(last.uri)
        self.oauth: OAuthProxy | None = None
        if service == "token":
            self.oauth = stack.enter_context(OAuthProxy(self.rest.uri, expires_in=TOKEN_SECONDS))
            uris, declared = [self.oauth.uri], {"credential": self.oauth.credential}
        self.catalog = Catalog.rest("prod", uri=last.uri, warehouse=self.rest.warehouse, storage=storage)
        self.catalog.create_namespace("outage")
        schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
        self.source = self.catalog.create_table("outage.source", schema).iceberg
        self.written = 0
        toml = {"type": "rest", "uri": uris, "warehouse": self.rest.warehouse, **declared}
        lines = ["[catalogs.prod]", *(f"{key} = {json.dumps(value)}" for key, value in toml.items())]
        if self.minio is not None:
            given = {
                "type": "s3",
                "endpoint": self.minio.endpoint,
                "region": self.minio.region,
                "access_key_id": self.minio.access_key,
                "secret_access_key": self.minio.secret_key,
            }
            lines += ['storage = "lake"', "[storages.lake]", *(f"{k} = {json.dumps(v)}" for k, v in given.items())]
        lines += ["[spark]", 'master = "local[2]"']
        (folder / "helios.toml").write_text("\n".join(lines) + "\n")
        (folder / "pipeline.py").write_text(SCRIPT.format(mode=MODES[mode], outage=outage, checkpoint=checkpoint))
        self.events: list[dict[str, Any]] = []
        self.driver: subprocess.Popen[str] | None = None

    def write(self) -> None:
        """Appends a commit to the source."""
        ids = range(self.written, self.written + ROWS)
        self.source.refresh()
        self.source.append(pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(ids, pa.int64())}))
        self.written += ROWS

    def drive(self) -> None:
        """Starts `helios run`, whose events are heard from then on."""
        command = [sys.executable, "-m", "helios", "run", str(self.folder / "pipeline.py"), "--log-format", "json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        log = (self.folder / "errors.txt").open("a")
        self.driver = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.folder, env=environment, process_group=0
        )
        log.close()
        threading.Thread(target=self._hear, args=(self.driver.stdout,), daemon=True).start()

    def _hear(self, lines: Any) -> None:
        with lines:
            for line in lines:
                self.events.append({"at": time.monotonic(), **json.loads(line)})

    def await_event(self, kind: str, since: float, seconds: float, times: int = 1) -> float | None:
        """When a run has told something for the n-th time since a moment; None when it does not in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = [event["at"] for event in self.events if event["kind"] == kind and event["at"] >= since]
            if len(found) >= times:
                return float(found[times - 1])
            if self.driver is not None and self.driver.poll() is not None:
                return None
            time.sleep(0.05)
        return None

    def counted(self) -> Counter[int]:
        """How often each id is in the target."""
        table = self.catalog.load("outage.target").iceberg
        table.refresh()
        head = table.metadata.snapshot_by_name("copy") if self.mode == "branch" else None
        return Counter(table.scan(snapshot_id=head.snapshot_id if head else None).to_arrow()["id"].to_pylist())

    def stamps(self) -> Counter[str]:
        """How many snapshots each batch has."""
        table = self.catalog.load("outage.target").iceberg
        stamped = [s.summary["helios.batch"] for s in table.refresh().snapshots() if s.summary is not None]
        return Counter(batch for batch in stamped if batch is not None)

    def kill(self) -> None:
        assert self.driver is not None
        if self.driver.poll() is None:
            os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()

    def end(self) -> int:
        """Stops the driver; its exit status."""
        assert self.driver is not None
        self.driver.terminate()
        try:
            return self.driver.wait(120)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9


def run(service: str, seconds: float, mode: str, kill: bool, folder: Path) -> dict[str, Any]:
    """The whole of it; returns what is printed."""
    with ExitStack() as stack:
        world = World(service, mode, max(300.0, 2 * seconds), folder, stack)
        world.write()
        world.drive()
        stack.callback(world.kill)
        began = time.monotonic()
        if world.await_event("batch", began, 120) is None:
            raise SystemExit(f"no batch was committed: {(folder / 'errors.txt').read_text()}{world.events}")
        for _ in range(2):
            world.write()
            time.sleep(1)
        away = time.monotonic()
        back = _outage(world, service, seconds, kill)
        for _ in range(3):
            world.write()
            time.sleep(1)
        first = world.await_event("batch", back, 180)
        until = time.monotonic() + 120
        while len(world.counted()) < world.written and time.monotonic() < until:
            time.sleep(0.5)
        told = [event for event in world.events if event["at"] >= away and event["kind"] == "waiting"]
        status = world.end()
        rows, stamps = world.counted(), world.stamps()
        return {
            "service": service,
            "mode": mode,
            "seconds": round(back - away, 1),
            "rows": world.written,
            "commits": sum(stamps.values()),
            "lost": world.written - len(rows),
            "doubled": sum(rows.values()) - len(rows) + sum(stamps.values()) - len(stamps),
            "first_commit_after": round(first - back, 1) if first is not None else None,
            "told_away_after": round(told[0]["at"] - away, 1) if told else None,
            "tokens": world.oauth.issued if world.oauth is not None else None,
            "status": status,
            "said": [told[0]["message"]] if told else [],
            "errors": (folder / "errors.txt").read_text(),
        }


def _outage(world: World, service: str, seconds: float, kill: bool) -> float:
    """Lets the service be away; returns when it was back, or when the other one was there."""
    if service == "token":
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            world.write()
            time.sleep(1)
        return time.monotonic()
    server = world.minio if service == "storage" else world.rest
    assert server is not None
    server.kill()
    gone = time.monotonic()
    if kill:
        world.await_event("waiting", gone, seconds)
        world.kill()
    if service == "replica" and not kill:
        return gone
    time.sleep(max(0.0, gone + seconds - time.monotonic()))
    if service != "replica":
        server.start()
    if kill:
        world.drive()
    return time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service", choices=SERVICES, default="catalog")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--mode", choices=MODES, default="append")
    parser.add_argument("--kill", action="store_true", help="kill the driver in the outage too")
    parser.add_argument("--folder", type=Path, help="where script and logs are kept; a temporary one by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-outage-") as temporary:
        told = run(given.service, given.seconds, given.mode, given.kill, given.folder or Path(temporary))
    print(json.dumps(told))
    raise SystemExit(1 if told["lost"] or told["doubled"] or told["status"] else 0)


if __name__ == "__main__":
    main()
