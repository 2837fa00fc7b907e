"""Kafka to Iceberg: records of 500 bytes, killed over and over, or raced against the same job by hand.

    python perf/kafka.py --records 5000000 --kills 30 --restarts 2
    python perf/kafka.py --speed --records 5000000 --rounds 3

Killed: records of JSON are written to a topic of four partitions, a share of them for each kill, so that every run
finds news. `helios run` follows the topic and is killed with `kill -9`, as `perf/kills.py` does it. Meanwhile the
broker is restarted, after a `kill -9` and after a stop in turns. A last run drains what is left. Then partition,
offset and id of every record of the topic are compared with the table's, as multisets. Exit status 1: they differ.

Speed: Helios beside the job of Spark's and Iceberg's docs (`readStream` of kafka, `from_json`, `toTable`,
availableNow), in one session and on one broker, interleaved as the workloads of `python -m perf` are. Every round each
of them reads the whole topic into a new table; all of these must hold the same rows.

The broker is that of `tests/services`: `python -m tests.services install kafka` fetches it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from append import Race, race, summed  # noqa: E402
from kills import run_and_kill  # noqa: E402
from pyspark.sql import DataFrame  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402

from helios import Iceberg, Kafka  # noqa: E402
from helios.spark.jvm.classes import classes  # noqa: E402
from tests.services.kafka import Kafka as Broker  # noqa: E402

SIZE = 500
"""Bytes of a record's value."""
PARTITIONS = 4
SCHEMA = "id bigint, customer int, amount double, at timestamp, note string"
CONTENDERS = ["docs", "helios"]
BATCHES = 4
"""Batches of a share of the records, of which there is one for each kill."""
PARTS = 4
"""Times at which a share is written, a second apart."""

SCRIPT = """
from helios import Iceberg, Kafka
records = (
    Kafka.source("{topic}").servers("{servers}")
    .value("json", schema="{schema}")
    .metadata("partition", "offset")
    .incremental(poll="200ms", max_rows={max_rows})
    >> Iceberg.sink("perf.killed").exactly_once()
)
"""


class TopicRace(Race):
    """The session, the topic, and the contenders that write it into a table.

    Args:
        folder: Where broker and tables have their files.
        records: How many records the topic gets.
        cores: Of Spark's local master.
        level: The level of zstd that all write.
        broker: The broker, which runs.
    """

    jars = ("iceberg", "sqlite", "kafka")

    def __init__(self, folder: Path, records: int, cores: int, level: int, broker: Broker) -> None:
        super().__init__(folder, records, cores, level)
        self.broker = broker
        self.topic = f"records-{records}"
        self._admin("createTopics", classes().org.apache.kafka.clients.admin.NewTopic(self.topic, PARTITIONS, 1))

    def _admin(self, call: str, what: Any) -> None:
        jvm = classes()
        conf, given = jvm.java.util.HashMap(), jvm.java.util.ArrayList()
        conf.put("bootstrap.servers", self.broker.servers)
        given.add(what)
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(conf)
        getattr(admin, call)(given).all().get()
        admin.close()

    def send(self, first: int, last: int) -> None:
        """Writes the records with the ids from `first` up to `last`."""
        df = values(self.spark.range(first, last, 1, PARTITIONS)).withColumn("topic", F.lit(self.topic))
        df.write.format("kafka").option("kafka.bootstrap.servers", self.broker.servers).save()

    def records(self, reader: Any) -> DataFrame:
        """The topic's records from the earliest on, with the columns of their values, by a reader of Spark's."""
        options = {"subscribe": self.topic, "startingOffsets": "earliest"}
        df = reader.format("kafka").option("kafka.bootstrap.servers", self.broker.servers).options(**options).load()
        parsed = F.from_json(F.col("value").cast("string"), SCHEMA).alias("parsed")
        return df.select(parsed, "partition", "offset").select("parsed.*", "partition", "offset")

    # the race

    def prepare(self) -> None:
        self.send(0, self.rows)

    def expected(self) -> tuple[int, int]:
        found = summed(self.records(self.spark.read))
        print(f"{found[0]:,} records of {SIZE} bytes in {PARTITIONS} partitions", flush=True)
        return found

    def create(self, target: str) -> None:
        columns = f"{SCHEMA}, partition int, offset bigint"
        writer = self.spark.createDataFrame([], columns).writeTo(f"local.perf.{target}").using("iceberg")
        for key, value in self.properties.items():
            writer = writer.tableProperty(key, value)
        writer.create()

    def docs(self, target: str) -> None:
        self.streamed(self.records(self.spark.readStream), target)

    def helios(self, target: str) -> None:
        source = Kafka.source(self.topic).servers(self.broker.servers).value("json", schema=SCHEMA)
        source = source.metadata("partition", "offset").incremental()
        self.drained(source >> Iceberg.sink(f"perf.{target}", catalog=self.catalog))

    # what was killed

    def differ(self, table: str) -> tuple[int, int]:
        """How many records the table lacks, and how many rows it has beyond them, as multisets."""
        names = ("partition", "offset", "id")
        ours = self.spark.read.table(f"local.perf.{table}").select(*names)
        theirs = self.records(self.spark.read).select(*names)
        return theirs.exceptAll(ours).count(), ours.exceptAll(theirs).count()


def values(ids: DataFrame) -> DataFrame:
    """Records of `SIZE` bytes, each with its partition."""
    mixed = F.pmod(F.xxhash64("id"), F.lit(10_000_000))
    known = F.to_json(
        F.struct(
            "id",
            (mixed % 100_000).cast("int").alias("customer"),
            (mixed / 100).alias("amount"),
            F.timestamp_seconds(F.lit(1_700_000_000) + F.col("id")).alias("at"),
        )
    )
    df = ids.select("id", known.alias("known"))
    # {"id":...} and ,"note":"..."
    note = f"left(repeat(sha2(string(id), 256), 8), {SIZE} - length(known) - 10)"
    value = f"concat(left(known, length(known) - 1), ',\"note\":\"', {note}, '\"}}')"
    return df.select(F.expr(f"int(id % {PARTITIONS})").alias("partition"), F.expr(value).alias("value"))


class Killing:
    """A run that is killed while records arrive and the broker is restarted.

    Args:
        track: The topic and the session that writes it.
        kills: How often the run is killed.
        restarts: How often the broker is restarted.
        seed: Of the random moments.
    """

    def __init__(self, track: TopicRace, kills: int, restarts: int, seed: int) -> None:
        self.track = track
        self.kills = kills
        self.restarts = restarts
        self._random = random.Random(seed)
        self._shares = threading.Semaphore(1)

    def run(self) -> dict[str, object]:
        """Kills and restarts, drains, and compares."""
        track, folder = self.track, self.track.folder
        most = max(1, track.rows // self.kills // BATCHES)
        given = {"topic": track.topic, "servers": track.broker.servers, "schema": SCHEMA, "max_rows": most}
        (folder / "pipeline.py").write_text(SCRIPT.format(**given))
        at = {round(self.kills * (n + 1) / (self.restarts + 1)): n for n in range(self.restarts)}
        with ThreadPoolExecutor(2) as pool:
            writing = pool.submit(self._write)
            try:
                for number in range(1, self.kills + 1):
                    restarting = pool.submit(self._restart, at[number]) if number in at else None
                    state = run_and_kill(folder, self._random)
                    told = f", and the broker was {restarting.result()}" if restarting is not None else ""
                    print(f"kill {number}/{self.kills}: {state}{told}", flush=True)
                    self._look(writing)
                    self._shares.release()
            finally:
                self._shares.release(self.kills)  # whatever happened, the writer must come to its end
            writing.result()
        subprocess.run([sys.executable, "-m", "helios", "run", "pipeline.py", "--once"], cwd=folder, check=True)
        lost, twice = track.differ("killed")
        return {
            "records": track.spark.read.table("local.perf.killed").count(),
            "kills": self.kills,
            "restarts": self.restarts,
            "commits": len(track.catalog.load("perf.killed").snapshots()),
            "lost": lost,
            "twice": twice,
        }

    def _write(self) -> None:
        """Writes a share of the records for each kill, part by part."""
        count = self.kills * PARTS
        for part in range(count):
            if part % PARTS == 0:
                self._shares.acquire()
            self.track.send(self.track.rows * part // count, self.track.rows * (part + 1) // count)
            time.sleep(1)

    @staticmethod
    def _look(writing: Future[None]) -> None:
        if writing.done() and writing.exception() is not None:
            writing.result()

    def _restart(self, number: int) -> str:
        """Restarts the broker while a run reads or starts, and says how."""
        time.sleep(self._random.uniform(6, 14))
        broker = self.track.broker
        if number % 2 == 0:
            broker.kill()
        else:
            broker.stop()
        time.sleep(2)
        broker.start()
        return "killed and started again" if number % 2 == 0 else "stopped and started again"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--restarts", type=int, default=2, help="of the broker")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--speed", action="store_true", help="race against the job by hand, and kill nothing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before those that count")
    parser.add_argument("--contenders", nargs="+", default=CONTENDERS, choices=CONTENDERS)
    parser.add_argument("--cores", type=int, default=2, help="of Spark's local master")
    parser.add_argument("--level", type=int, default=3, help="the level of zstd that both write")
    parser.add_argument("--folder", type=Path, help="where all files go, a new one; by default a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        folder = (given.folder or Path(made)).resolve()
        with Broker(folder / "broker") as broker:
            track = TopicRace(folder, given.records, given.cores, given.level, broker)
            if given.speed:
                return race(track, given.warm_up, given.rounds, given.contenders)
            told = Killing(track, given.kills, given.restarts, given.seed).run()
    print(json.dumps({**told, "seed": given.seed}))
    return 0 if told["lost"] == told["twice"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
