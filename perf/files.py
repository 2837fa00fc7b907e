"""Random files through `Files.source`, and where each row went: the target, the quarantine, or a counted drop.

    python perf/files.py --rounds 200

Every round draws a format, what happens to rows that do not parse, and some steps. A step lands csv, json or parquet
files, whose columns come, go, change their order and, in parquet, become wider; some lines do not parse, some files are
truncated, empty or damaged inside and are mended later under their name, some are replaced by others. After each step
the pipeline drains the folder; some of these drivers die right before or right after a commit, and another goes on.

At the end every row that was written into a whole file must be in the target once, with its values, and every line that
does not parse must be in the quarantine once, or among the counted drops.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from helios import Catalog, Files, Iceberg, Pipeline
from helios.errors import HeliosError, NotFound
from helios.spark.sinks.ledger import Transaction

FORMATS = ("csv", "json", "parquet")
DECLARED = {"id": "bigint", "a": "bigint", "b": "double", "c": "string"}
TARGET, QUARANTINE = "perf.files", "perf.rejected"
TEXTS = ("plain", "with space", "comma, inside", 'say "hi"', "umlaut ü", "tab\tinside", "back\\slash", "#hash", "NA")

Row = dict[str, Any]


@dataclass
class Account:
    """What was written, and so what must be found."""

    rng: random.Random
    format: str
    rows: dict[int, Row] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    pending: dict[Path, bytes] = field(default_factory=dict)
    """The files that cannot be read, and what they are mended to; their rows count from then on."""
    waiting: dict[Path, tuple[list[Row], list[str]]] = field(default_factory=dict)
    fresh: list[Path] = field(default_factory=list)
    landed: list[Path] = field(default_factory=list)
    """Files that were read, and may be replaced."""
    counted: Counter[str] = field(default_factory=Counter)
    ids: int = 0
    files: int = 0

    def new_rows(self, columns: list[str], count: int) -> list[Row]:
        made = []
        for _ in range(count):
            self.ids += 1
            row: Row = {"id": self.ids}
            for name in columns:
                if self.rng.random() < 0.85:
                    row[name] = self.value(name)
            made.append(row)
        return made

    def value(self, name: str) -> Any:
        if name == "a":
            return self.rng.choice((0, -1, 7, 2**31 - 1, -(2**31)))
        if name == "b":
            return self.rng.choice((0.0, -1.5, 1e300, 0.1))
        if name == "wide":
            return self.rng.randint(-9, 9)
        return f"{self.rng.choice(TEXTS)} {self.rng.randint(0, 99)}"

    def columns(self, step: int) -> list[str]:
        """Columns of a new file beside `id`, in their order: some are gone, and later files have new ones."""
        known = ["a", "b", "c", *(f"new{n}" for n in range(1, step + 1))]
        if self.format == "parquet":
            known.append("wide")
        chosen = [name for name in known if self.rng.random() < 0.8] or ["a"]
        self.rng.shuffle(chosen)
        return chosen

    def bytes_of(self, step: int) -> tuple[bytes, list[Row], list[str]]:
        """A new file: its bytes, its rows, and its lines that do not parse."""
        columns = self.columns(step)
        rows = self.new_rows(columns, self.rng.randint(1, 12))
        if self.format == "parquet":
            return parquet(rows, columns, wide=step > 0 and self.rng.random() < 0.5), rows, []
        broken = []
        lines = lines_of_csv(rows, columns) if self.format == "csv" else [json.dumps(row) for row in rows]
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            self.ids += 1
            text = f"broken{self.ids:06}"  # none is a part of another
            line = f'{{"id": "{text}"' if self.format == "json" else ",".join([text] * (len(columns) + 1))
            broken.append(text)
            lines.insert(self.rng.randint(1, len(lines)), line)
            self.counted["lines that do not parse"] += 1
        end = self.rng.choice(("\n", "\r\n"))
        return (end.join(lines) + self.rng.choice(("", end))).encode(), rows, broken

    def land(self, folder: Path, step: int) -> None:
        """One new file, or one that replaces another, or a broken one, or the mending of a broken one."""
        kind = self.rng.choices(("new", "replace", "break", "mend"), (6, 1, 1, 2))[0]
        if kind == "mend" and self.pending:
            path = self.rng.choice(sorted(self.pending))
            self.mend(path)
            return
        whole, rows, broken = self.bytes_of(step)
        if kind == "replace" and self.landed:
            path = self.landed.pop(self.rng.randrange(len(self.landed)))
            self.counted["replaced files"] += 1
        else:
            self.files += 1
            path = folder / f"file {self.files}.{self.format}"
        if kind == "break" and self.format == "parquet":
            self.pending[path], self.waiting[path] = whole, (rows, broken)
            cut = whole[: self.rng.randint(1, len(whole) - 1)]
            write(path, self.rng.choice((b"", cut, cut, hollow(whole))))
            self.counted["broken files"] += 1
            return
        write(path, whole)
        self.took(path, rows, broken)

    def mend(self, path: Path) -> None:
        write(path, self.pending.pop(path))
        self.took(path, *self.waiting.pop(path))
        self.counted["mended files"] += 1

    def took(self, path: Path, rows: list[Row], broken: list[str]) -> None:
        self.rows.update({row["id"]: row for row in rows})
        self.broken += broken
        self.fresh.append(path)


def lines_of_csv(rows: list[Row], columns: list[str]) -> list[str]:
    """The lines of a csv file as RFC 4180 and Python's own writer have them."""
    names = ["id", *columns]
    names = names[1:] + names[:1] if len(rows) % 2 else names
    made = []
    for values in [names, *([row.get(name) for name in names] for row in rows)]:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(values)
        made.append(text.getvalue())
    return made


def parquet(rows: list[Row], columns: list[str], *, wide: bool) -> bytes:
    """A parquet file; `wide` may be int32 in one and int64 in the next."""
    types = {"id": pa.int64(), "a": pa.int64(), "b": pa.float64(), "wide": pa.int64() if wide else pa.int32()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in ["id", *columns]])
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), out)
    return out.getvalue()


def hollow(content: bytes) -> bytes:
    """A parquet file whose footer is whole, and whose pages are not."""
    pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return content[:4] + b"\xff" * (pages - 4) + content[pages:]


_clock = 1_700_000_000.0


def write(path: Path, content: bytes) -> None:
    """Lands a file at once, as a careful producer does, a second later than the one before it."""
    global _clock
    _clock += 1
    hidden = path.with_name(f".{path.name}")
    hidden.write_bytes(content)
    os.utime(hidden, (_clock, _clock))
    hidden.replace(path)


@contextmanager
def death(when: str | None) -> Iterator[None]:
    """The driver dies right before or right after its first commit."""
    real = Transaction.commit

    def commit(self: Transaction) -> Any:
        if when == "before":
            raise RuntimeError("the driver died")
        real(self)
        raise RuntimeError("the driver died")

    if when is not None:
        Transaction.commit = commit  # type: ignore[method-assign]
    try:
        yield
    finally:
        Transaction.commit = real  # type: ignore[method-assign]


def drained(make: Callable[[], Pipeline], when: str | None, spark: SparkSession | None) -> int:
    """Runs the pipeline until the folder is drained, by as many drivers as it takes; the rows that were dropped."""
    with death(when):
        try:
            handle = make().run(once=True, spark=spark)
            handle.await_termination()
            return int(handle.metrics().records_failed)
        except HeliosError as error:
            if "the driver died" not in str(error):
                raise
    handle = make().run(once=True, spark=spark)
    handle.await_termination()
    return int(handle.metrics().records_failed)


def one_round(folder: Path, seed: int, spark: SparkSession | None = None) -> tuple[list[str], Account]:
    """Runs one round, and returns what does not add up."""
    rng = random.Random(seed)
    account = Account(rng, rng.choice(FORMATS))
    policy = rng.choice(("quarantine", "drop"))
    inbox, catalog = folder / "in box", Catalog.local(path=folder / ".helios")
    inbox.mkdir(parents=True)

    def pipeline() -> Pipeline:
        declared = None if account.format == "parquet" else DECLARED
        extra: Any = {"extra": "add"} if declared else {}
        source = Files.source(str(inbox), account.format, schema=declared, **extra)
        source = source.incremental(poll=1, max_files=rng.choice((None, 1, 2)))
        source = source.on_bad_row(policy).on_bad_file("quarantine").on_change("reread")
        sink = Iceberg.sink(TARGET, catalog=catalog).evolve_schema("full").quarantine(QUARANTINE)
        return source >> sink

    dropped = 0
    for step in range(rng.randint(2, 4)):
        for _ in range(rng.randint(1, 3)):
            account.land(inbox, step)
        when = rng.choice((None, None, "before", "after"))
        account.counted["deaths"] += when is not None
        try:
            dropped += drained(pipeline, when, spark)
        except NotFound:
            if account.fresh or account.landed:
                raise
            account.counted["refused starts"] += 1  # no file that is there tells columns
        account.landed, account.fresh = account.landed + account.fresh, []
    for path in sorted(account.pending):
        account.mend(path)
    dropped += drained(pipeline, None, spark)
    # The counts of a driver that dies die with it.
    counted = policy == "drop" and not account.counted["deaths"]
    return list(differences(catalog, account, policy, dropped if counted else None)), account


def differences(catalog: Catalog, account: Account, policy: str, dropped: int | None) -> Iterator[str]:
    """What is lost, doubled or changed."""
    found: dict[int | None, list[Row]] = {}
    if catalog.exists(TARGET):
        for row in catalog.load(TARGET).iceberg.scan().to_arrow().to_pylist():
            found.setdefault(row["id"], []).append({k: v for k, v in row.items() if v is not None})
    for number, row in account.rows.items():
        rows = found.pop(number, [])
        if not rows:
            yield f"lost: {row}"
        elif len(rows) > 1:
            yield f"{len(rows)} times: {row}"
        elif rows[0] != row:
            yield f"changed: {row} became {rows[0]}"
    for number, rows in found.items():
        yield f"nobody wrote {number}: {rows[0]}"
    if dropped is not None and dropped != len(account.broken):
        yield f"{dropped} dropped rows were counted, {len(account.broken)} lines do not parse"
    if policy == "drop":
        return
    kept = Counter[str]()
    if catalog.exists(QUARANTINE):
        payloads = catalog.load(QUARANTINE).iceberg.scan().to_arrow()["payload"].to_pylist()
        kept = Counter(text for text in account.broken for payload in payloads if text in payload)
    for text in account.broken:
        if kept[text] != 1:
            yield f"{text} is {kept[text]} times in the quarantine"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each next one adds one")
    given = parser.parse_args()
    wrong, written, lines, total, began = 0, 0, 0, Counter[str](), time.monotonic()
    for seed in range(given.seed, given.seed + given.rounds):
        with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
            found, account = one_round(Path(made), seed)
        total.update({f"{account.format} rounds": 1, **account.counted})
        written, lines, wrong = written + len(account.rows), lines + len(account.broken), wrong + len(found)
        print(f"round {seed}: {account.format}, {len(account.rows)} rows, {time.monotonic() - began:.0f} s", flush=True)
        for text in found:
            print(f"  {text}", flush=True)
    print(f"{written} rows and {lines} lines that do not parse, {wrong} unaccounted; {dict(total)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
