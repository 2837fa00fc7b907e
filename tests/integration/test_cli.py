"""The command line as a user calls it: processes of their own, Spark, signals. Four Spark starts in all."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helios import Catalog
from tests.suite import jvm
from tests.suite.waiting import PATIENCE, until

pytestmark = pytest.mark.sampled(1)

HELIOS = (sys.executable, "-m", "helios")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the project of `helios init`, on a small machine."""
    assert helios(tmp_path, "init").returncode == 0
    (tmp_path / "helios.toml").write_text('[spark]\nmaster = "local[2]"\n')
    return tmp_path


def environment() -> dict[str, str]:
    # The package under test need not be installed: the tests' own working directory holds it.
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def helios(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HELIOS, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, timeout=240, check=False
    )


@contextmanager
def following(folder: Path, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A run in a process group of its own, as a terminal starts it; it never outlives the test."""
    process = subprocess.Popen(
        [*HELIOS, "run", *arguments],
        cwd=folder,
        env=environment() | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        yield process
    except BaseException:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        print(process.stdout.read())
        raise
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        Catalog.local(path=folder / ".helios").load(table).iceberg.scan().to_arrow().to_pylist()
    )
    return found


@pytest.mark.promise("commands")
@pytest.mark.short
def test_from_an_empty_folder_to_rows_and_what_the_table_commands_say(folder: Path) -> None:
    ran = helios(folder, "run", "pipeline.py", "--once", "--json")
    assert ran.returncode == 0, ran.stderr
    status = json.loads(ran.stdout)
    assert [(one["state"], one["rows"]) for one in status] == [("finished", 4)]
    assert "batch 0: 4 rows in 3 files" in ran.stderr, "progress makes way for the JSON"
    assert sorted(row["id"] for row in rows(folder, "shop.orders")) == [1, 3, 4, 5]
    assert helios(folder, "tables").stdout == "local.shop.orders\n"
    assert "partitioned by day(ts)" in helios(folder, "schema", "shop.orders").stdout
    snapshots = json.loads(helios(folder, "snapshots", "shop.orders", "--json").stdout)
    assert [one["id"] for one in snapshots] == [status[0]["snapshot"]]
    doctor = helios(folder, "doctor", "pipeline.py")
    assert doctor.returncode == 0, doctor.stderr


@pytest.mark.promise("rehearsals")
def test_a_rehearsal_prints_what_its_page_shows(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/cli.md").read_text().split("\n## rehearse\n")[1]
    before, after = (re.search(rf"^\{sign}(    >> where.*)$", page, re.MULTILINE) for sign in "-+")
    assert before is not None
    assert after is not None
    _, more, shown = page.split("```console\n", maxsplit=1)[1].split("```", maxsplit=1)[0].split("$ ")[0:3]
    assert helios(tmp_path, "init", "demo").returncode == 0
    assert helios(tmp_path, "run", "demo/pipeline.py", "--once").returncode == 0
    (tmp_path / "demo/data/more.csv").write_text(more.split("\n", maxsplit=1)[1])
    assert helios(tmp_path, "run", "demo/pipeline.py", "--once").returncode == 0
    same = helios(tmp_path, "rehearse", "demo/pipeline.py", "--exit-code", "--json")
    assert (same.returncode, json.loads(same.stdout)["differ"]) == (0, False), same.stderr
    script = tmp_path / "demo/pipeline.py"
    script.write_text(script.read_text().replace(before[1], after[1]))
    stricter = helios(tmp_path, "rehearse", "demo/pipeline.py", "--exit-code")
    assert stricter.returncode == 2, stricter.stderr
    varies = re.compile(r"\d{15,}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC| +")  # snapshots, times, and the widths of columns
    wanted = re.sub(r"^\d\d:\d\d:\d\d .*\n", "", shown.split("\n", maxsplit=1)[1], flags=re.MULTILINE)
    assert varies.sub(" ", stricter.stdout) == varies.sub(" ", wanted)
    assert sorted(row["id"] for row in rows(tmp_path / "demo", "shop.orders")) == [1, 3, 4, 5, 6, 7]


@pytest.mark.promise("rehearsals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_rehearsal_that_is_stopped_leaves_no_folder(folder: Path, number: signal.Signals) -> None:
    assert helios(folder, "run", "pipeline.py", "--once").returncode == 0
    temporary = folder / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [*HELIOS, "rehearse", "pipeline.py"],
        cwd=folder,
        env=environment() | {"TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        until(lambda: list(temporary.glob("helios-rehearsal-*/*/lake")))
        os.killpg(process.pid, number)
        assert process.wait(30) == 128 + number
        told = process.stderr.read()
        assert "stopped; no table was changed, and no result is kept. Start again: helios rehearse " in told
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
    assert not list(temporary.glob("helios-rehearsal-*"))


@pytest.mark.promise("documents")
def test_the_first_block_of_the_readme_runs_as_it_stands_in_an_empty_folder(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (tmp_path / "orders.py").write_text(readme.split("```python\n", maxsplit=1)[1].split("```", maxsplit=1)[0])
    ran = helios(tmp_path, "run", "orders.py", "--once")
    assert ran.returncode == 0, ran.stderr
    # Times and snapshots differ from run to run, and pipelines take turns.
    shown = readme.split("$ helios run orders.py --once\n", maxsplit=1)[1].split("$", maxsplit=1)[0]
    varies = re.compile(r"^\d\d:\d\d:\d\d |snapshot \d+|[\d.]+ s$|Spark [\d.]+")
    lines = [sorted(varies.sub("", line) for line in text.splitlines()) for text in (shown, ran.stdout + ran.stderr)]
    assert lines[0] == [line for line in lines[1] if "preparing a faster start" not in line]
    said = readme.split('.to_pandas())"\n', maxsplit=1)[1].split("```", maxsplit=1)[0]
    totals = Catalog.local(path=tmp_path / ".helios").load("shop.totals").iceberg.scan().to_pandas()
    assert sorted(str(totals).split()) == sorted(said.split())


FOLLOW = """
from helper import loud
from pyspark.sql import functions as F
from helios import Files, Iceberg

SIGN = "!"

def shout(df):
    return df.withColumn("customer", F.udf(lambda name: loud(name) + SIGN, "string")("customer"))

loud_orders = (
    Files.source("data", "csv", schema="id bigint, customer string", extra="ignore").incremental(poll="1s")
    >> shout
    >> Iceberg.sink("shop.loud")
)
"""


SLOWLY = FOLLOW.replace("(name) + SIGN", "(name, 'begun') + SIGN")
BEGUN = """
import pathlib, time

def loud(name, begun):
    pathlib.Path(begun).touch()
    time.sleep(0.5)
    return name.upper()
"""


def _of_group(process: subprocess.Popen[str]) -> list[int]:
    return [-process.pid]


def _of_session(process: subprocess.Popen[str]) -> list[int]:
    """All that a service consists of, which systemd tells: pyspark's workers have a group of their own."""
    found = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [one for one in found if _session(one) == process.pid]


def _session(process: int) -> int | None:
    try:
        return os.getsid(process)
    except ProcessLookupError:
        return None


@pytest.mark.promise("signals")
@pytest.mark.cases(landing="service")
@pytest.mark.parametrize(
    ("number", "told", "variables"),
    [
        pytest.param(signal.SIGINT, _of_group, {}, id="terminal"),
        pytest.param(signal.SIGTERM, _of_group, {}, id="group"),
        pytest.param(signal.SIGTERM, _of_session, {}, id="service"),
        pytest.param(signal.SIGTERM, _of_session, {"PYSPARK_SUBMIT_ARGS": "pyspark-shell"}, id="service-by-scripts"),
    ],
)
def test_a_signal_to_every_process_stops_a_followed_run_after_its_batch(
    folder: Path,
    number: signal.Signals,
    told: Callable[[subprocess.Popen[str]], list[int]],
    variables: dict[str, str],
) -> None:
    (folder / "follow.py").write_text(SLOWLY)
    (folder / "helper.py").write_text(BEGUN)
    with following(folder, "follow.py", "--log-format", "json", **variables) as process:
        until((folder / "begun").exists)
        for one in told(process):
            os.kill(one, number)
        output, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, output
    events = [json.loads(line) for line in output.splitlines()]
    kinds = [event["kind"] for event in events if event["kind"] != "idle"]
    assert kinds == ["note", "started", "note", "batch", "stopped", "summary"]
    assert "again to stop at once" in events[-4]["message"]
    assert sorted(row["customer"] for row in rows(folder, "shop.loud")) == [
        "ADA!",
        "ADA!",
        "ALAN!",
        "EDSGER!",
        "GRACE!",
    ]


@pytest.mark.promise("kills")
@pytest.mark.landing
def test_a_java_that_is_killed_is_named_and_the_next_run_goes_on(folder: Path) -> None:
    (folder / "follow.py").write_text(FOLLOW)
    (folder / "helper.py").write_text("def loud(name):\n    return name.upper()\n")
    with following(folder, "follow.py", "--log-format", "json", **{jvm.OF_ALL_JAVA: jvm.QUICK}) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["kind"] == "batch":
                break
        [java] = [
            int(child)
            for task in Path(f"/proc/{process.pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
        os.kill(java, signal.SIGKILL)
        told = process.stdout.read()
        assert process.wait(PATIENCE) == 1
    assert "error[H201]: the Java process of Spark has ended (killed by SIGKILL). Fix: check whether the kernel" in told
    assert "bug in Helios" not in told
    assert "Traceback" not in told, told
    assert helios(folder, "run", "follow.py", "--once").returncode == 0
    assert len(rows(folder, "shop.loud")) == 5


MIXED = """
import time
from pyspark.sql import functions as F
from helios import Iceberg, Memory

def boom(df):
    raise ValueError("boom")

def dawdle(df):
    return df.withColumn("id", F.udf(lambda x: (time.sleep(60), x)[1], "bigint")("id"))

good = Memory.source([{"id": 1}]) >> Iceberg.sink("m.good")
bad = Memory.source([{"id": 1}]) >> boom >> Iceberg.sink("m.bad")
slow = Memory.source([{"id": 1}]) >> dawdle >> Iceberg.sink("m.slow")
"""


@pytest.mark.promise("signals", "several")
def test_one_failure_leaves_the_others_and_a_second_signal_ends_the_process_at_once(folder: Path) -> None:
    (folder / "mixed.py").write_text(MIXED)
    with following(folder, "mixed.py", "--once") as process:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(line)
            text = "".join(told)
            if "m.good  batch 0" in line and "again" not in text:
                os.kill(process.pid, signal.SIGTERM)
            if "again to stop at once" in line:
                os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert "local.m.bad   failed: mixed.py:7: boom raised ValueError: boom" in text
    assert rows(folder, "m.good") == [{"id": 1}]


@pytest.mark.promise("several")
def test_a_pipeline_that_fails_its_check_does_not_block_the_others(folder: Path) -> None:
    (folder / "part.py").write_text(
        "from helios import *\n"
        "rows = Memory.source([{'id': 1, 'name': 'a'}])\n"
        "good = rows >> Iceberg.sink('p.good')\n"
        "bad = rows >> where('name') >> Iceberg.sink('p.bad')\n"
        "next = Iceberg.source('p.bad') >> Iceberg.sink('p.next')\n"
    )
    ran = helios(folder, "run", "part.py", "--once", "--json")
    assert ran.returncode == 1, ran.stderr
    status = {one["pipeline"]: one for one in json.loads(ran.stdout)}
    assert {name: one["state"] for name, one in status.items()} == {
        "local.p.good": "finished", "local.p.bad": "failed", "local.p.next": "failed",
    }  # fmt: skip
    assert "part.py:4: where(name): this is string, not a condition." in status["local.p.bad"]["error"]
    assert "error[H101]: part.py:4: where(name): this is string, not a condition." in ran.stderr
    assert rows(folder, "p.good") == [{"id": 1, "name": "a"}]
    failed_fast = helios(folder, "run", "part.py", "--once", "--fail-fast")
    assert (failed_fast.returncode, failed_fast.stdout) == (2, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.promise("signals")
@pytest.mark.cases(short="15")
def test_a_stop_while_spark_starts_ends_with_a_line_and_at_once(folder: Path, number: signal.Signals) -> None:
    # A Java that is never ready, so that a wait for Spark has no end. It ends with its input, as the real one does.
    java = folder / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\ntouch "$0.began"\nexec cat > /dev/null\n')
    java.chmod(0o755)
    (folder / "java" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    with following(folder, "pipeline.py", "--once", JAVA_HOME=str(folder / "java")) as process:
        assert process.stdout is not None
        assert "starting Spark" in process.stdout.readline()
        while not java.with_name("java.began").exists():
            time.sleep(0.05)
        os.killpg(process.pid, number)  # as a terminal does: to every process of the group
        assert process.wait(PATIENCE) == 128 + number
        rest = process.stdout.read()  # until Java, which has the same output, has ended too
    assert rest == "stopped before the run began; nothing was written.\n"


@pytest.mark.promise("drivers")
def test_a_second_driver_is_refused_before_spark_starts(folder: Path) -> None:
    checkpoint = folder / ".helios" / "warehouse" / "_helios" / "checkpoints" / "local.shop.orders"
    (checkpoint / "helios").mkdir(parents=True)
    holder = {"owner": "another", "host": socket.gethostname(), "pid": os.getpid(), "started": None, "renewed": 0.0}
    (checkpoint / "helios" / "lease.json").write_text(json.dumps(holder))
    refused = helios(folder, "run", "pipeline.py", "--once")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"another driver is running on file://{checkpoint}: process {os.getpid()} on" in refused.stderr
    assert "stop that process first: its lease ends with it." in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.promise("commands")
def test_a_script_that_cannot_run_starts_no_spark(folder: Path) -> None:
    (folder / "wrong.py").write_text(
        "from helios import *\np = Iceberg.source('shop.gone') >> Iceberg.sink('shop.copy')\n"
    )
    refused = helios(folder, "run", "wrong.py", "--once")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert len(refused.stderr.splitlines()) == 1
    assert not (folder / ".helios").exists()


@pytest.mark.promise("commands")
def test_a_closed_pipe_is_no_bug_of_ours(folder: Path) -> None:
    first = f"{' '.join(HELIOS)} plan pipeline.py | head -n 1"
    done = subprocess.run(first, shell=True, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.stdout.startswith("pipeline local.shop.orders")
    assert "bug in Helios" not in done.stderr


@pytest.mark.promise("commands")
def test_a_machine_whose_own_name_has_no_address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")  # Java knows no other name, as on a machine without DNS
    conf = (folder / "helios.toml").read_text()
    option = f'[spark.conf]\n"spark.driver.extraJavaOptions" = "-Djdk.net.hosts.file={hosts}"\n'
    (folder / "helios.toml").write_text(conf + option)
    script = next(folder.glob("*.py")).name
    with following(folder, "--once", script) as run:
        assert run.wait(timeout=PATIENCE) == 0, run.stdout.read() if run.stdout else ""
