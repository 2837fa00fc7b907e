"""`kill -9` at random moments of a running incremental pipeline: prints kills, lost and duplicated rows.

    python perf/kills.py --kills 100 --rows 1000000 --mode upsert

One process appends rows to a source table in many commits. Another runs `helios run` on a pipeline that follows it and
is killed over and over: the driver alone, or with its JVM, while it starts and while it commits. A last run drains what
is left. Then every id is counted in the target: each must be there once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from helios import Catalog, bucket

SCRIPT = """
from helios import Iceberg, bucket, with_columns
copy = (
    Iceberg.source("kills.source").incremental(poll="200ms")
    >> with_columns(double="id * 2")
    >> Iceberg.sink("kills.target").partition_by(bucket(2, "id")){mode}.exactly_once()
)
"""

MERGE = """
MERGE INTO target USING batch ON target.id = batch.id
WHEN MATCHED THEN UPDATE SET times = target.times + 1
WHEN NOT MATCHED THEN INSERT (id, double, times) VALUES (batch.id, batch.double, 1)
"""

MODES = {
    "append": "",
    "upsert": '.upsert("id", order_by="double", history=True)',  # a row that comes twice changes nothing, or shows
    "merge": f'.merge_sql("""{MERGE}""")',  # counts how often a row came
    "branch": '.branch("kills")',
    "route": '.route(by="id % 3")',
    "audit": '.audit({"once": "count(*) = count(DISTINCT id)"}).publish()',
}
"""The modes that can be killed, as calls on the sink."""


def write(folder: Path, rows: int, commits: int, kills: int) -> None:
    """Appends ids from 0 up, a share of the commits for each kill, so that every run finds news."""
    import pyarrow as pa

    catalog = Catalog.local(path=folder / ".helios")
    table = catalog.load("kills.source").iceberg
    size = rows // commits
    for number in range(commits):
        while number >= commits * (int((folder / "kills").read_text()) + 1) / kills:
            time.sleep(0.05)
        ids = range(number * size, rows if number == commits - 1 else (number + 1) * size)
        table.append(pa.table({"id": pa.array(ids, pa.int64())}))
        table.refresh()
        time.sleep(1.5)


def counted(catalog: Catalog, rows: int, mode: str) -> tuple[int, int]:
    """How many ids of the target are missing, and how many are there too often."""
    seen: Counter[int] = Counter()
    for name in [f"kills.target_{i}" for i in range(3)] if mode == "route" else ["kills.target"]:
        table = catalog.load(name).iceberg
        branch = table.metadata.snapshot_by_name("kills") if mode == "branch" else None
        found = table.scan(snapshot_id=branch.snapshot_id if branch else None).to_arrow()
        ids, doubles = found["id"].to_pylist(), found["double"].to_pylist()
        wrong = sum(1 for i, d in zip(ids, doubles, strict=True) if d != 2 * i)
        assert wrong == 0, f"{wrong} rows have a wrong value"
        for i, times in zip(ids, found["times"].to_pylist() if mode == "merge" else [1] * len(ids), strict=True):
            seen[i] += times
    return sum(1 for i in range(rows) if i not in seen), sum(n - 1 for n in seen.values())


def run_and_kill(folder: Path, rng: random.Random) -> str:
    """Starts the pipeline, kills it at a random moment, and says in which state it was."""
    events = folder / "events.jsonl"
    with events.open("w") as out, (folder / "stderr.txt").open("w") as err:
        command = [sys.executable, "-m", "helios", "run", "pipeline.py", "--log-format", "json"]
        driver = subprocess.Popen(command, cwd=folder, stdout=out, stderr=err, start_new_session=True)
    awaited, longest = rng.choices(
        [("", 6.0), ('"kind": "started"', 6.0), ('"kind": "batch"', 4.0)], weights=[10, 20, 70]
    )[0]
    deadline = time.monotonic() + 120
    while awaited not in events.read_text() and driver.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(rng.uniform(0, longest))
    if driver.poll() is not None:
        raise SystemExit(f"the run ended by itself ({driver.returncode}):\n{(folder / 'stderr.txt').read_text()}")
    with_jvm = rng.random() < 0.5
    target = -driver.pid if with_jvm else driver.pid
    os.kill(target, signal.SIGKILL) if not with_jvm else os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    text = events.read_text()
    batches = text.count('"kind": "batch"')
    return "starting" if '"kind": "started"' not in text else f"running, after {batches} batches"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, help="commits of the source; by default eight for each kill")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--mode", choices=list(MODES), default="append")
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    commits = given.commits or given.kills * 8
    if given.write:
        write(given.folder, given.rows, commits, given.kills)
        return 0
    with tempfile.TemporaryDirectory(prefix="helios-kills-") as made:
        return kill_often(given, Path(given.folder or made), commits)


def kill_often(given: argparse.Namespace, folder: Path, commits: int) -> int:
    import pyarrow as pa

    kills, rows, mode = given.kills, given.rows, given.mode
    rng = random.Random(given.seed)
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("kills")
    catalog.create_table("kills.source", pa.schema([("id", pa.int64())]))
    if mode == "merge":  # which makes no table
        columns = [("id", pa.int64()), ("double", pa.int64()), ("times", pa.int64())]
        catalog.create_table("kills.target", pa.schema(columns), partition_by=[bucket(2, "id")])
    (folder / "pipeline.py").write_text(SCRIPT.replace("{mode}", MODES[mode]))
    options = ["--rows", str(rows), "--commits", str(commits), "--kills", str(kills), "--folder", str(folder)]
    (folder / "kills").write_text("0")
    writer = subprocess.Popen([sys.executable, __file__, "--write", *options])
    for number in range(1, kills + 1):
        print(f"kill {number}/{kills}: {run_and_kill(folder, rng)}", flush=True)
        (folder / "kills.tmp").write_text(str(number))
        (folder / "kills.tmp").rename(folder / "kills")
    if writer.wait() != 0:
        raise SystemExit("the writer failed")
    subprocess.run([sys.executable, "-m", "helios", "run", "pipeline.py", "--once"], cwd=folder, check=True)
    lost, duplicated = counted(catalog, rows, mode)
    commits_made = len(catalog.load("kills.target_0" if mode == "route" else "kills.target").snapshots())
    print(json.dumps({"kills": kills, "rows": rows, "target_commits": commits_made, "seed": given.seed, "mode": mode,
                      "lost": lost, "duplicated": duplicated}))  # fmt: skip
    return 0 if lost == duplicated == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
