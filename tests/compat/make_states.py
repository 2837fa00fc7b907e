"""Has an older Helios make the states from which the new one goes on: `python make_states.py FOLDER CASE...`.

PYTHONPATH says which `helios` that is. FOLDER/kept/CASE then has the images of each case: copies of all that lay on
disk at a moment, as a kill would leave it. Those of the last run are taken within it, before its first commit and after
each; the lease in them is of this process, which has ended when somebody continues from them. Iceberg's metadata and
Spark's logs have absolute paths: an image is put back as FOLDER/live/CASE before it is used.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cases import CASES, CLEAN, FRESH, Case, Lake

from helios import Pipeline

# These modules are the older version's: places where a batch becomes visible, and a session that starts fast.
from helios.config import load
from helios.spark.checkpoint import upsert_state
from helios.spark.iceberg.transaction import Transaction
from helios.spark.session import session
from helios.spark.sinks.audit import AuditedSink

COMMITS = ((Transaction, "commit"), (AuditedSink, "_publish"))

FAST = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Images:
    """The images of one case."""

    def __init__(self, lake: Lake, pipeline: Pipeline, kept: Path) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._kept = kept

    def take(self, name: str) -> None:
        """Copies what is on disk now, and notes what this version tells of it without a JVM."""
        shutil.copytree(self._lake.folder, self._kept / name, ignore=shutil.ignore_patterns("*.tmp"))
        (self._kept / f"{name}.json").write_text(json.dumps(self._lake.told(self._pipeline)))

    @contextmanager
    def of_commits(self, names: Sequence[str]) -> Iterator[None]:
        """Takes the first image before the first commit, and one after each.

        Raises:
            RuntimeError: There were fewer commits than that, or more.
        """
        waiting = list(names)

        def around(real: Callable[..., Any]) -> Callable[..., Any]:
            def commit(*arguments: Any) -> Any:
                if len(waiting) == len(names):
                    self.take(waiting.pop(0))
                done = real(*arguments)
                if not waiting:
                    raise RuntimeError(f"{self._kept.name} has more than {len(names) - 1} commits")
                self.take(waiting.pop(0))
                return done

            return commit

        real = [getattr(owner, name) for owner, name in COMMITS]
        for (owner, name), method in zip(COMMITS, real, strict=True):
            setattr(owner, name, around(method))
        try:
            yield
        finally:
            for (owner, name), method in zip(COMMITS, real, strict=True):
                setattr(owner, name, method)
        if waiting:
            raise RuntimeError(f"{self._kept.name} has no image of: {', '.join(waiting)}")


def make(name: str, case: Case, folder: Path) -> None:
    """Takes one case through its runs, with its images."""
    lake = Lake(folder / "live" / name)
    lake.catalog.create_namespace("a")
    pipeline = case.pipeline(lake)
    images = Images(lake, pipeline, folder / "kept" / name)
    for number, batches in enumerate(case.fed):
        for batch in batches:
            case.feed(lake, batch)
        if number == 0:
            images.take(FRESH)
        if number + 1 < len(case.fed):
            run(pipeline)
    if len(case.fed) > 1:
        images.take(CLEAN)
    with images.of_commits([name for name in case.images() if name != CLEAN]):
        run(pipeline)


def run(pipeline: Pipeline) -> None:
    if not pipeline.run(once=True).await_termination(120):
        raise RuntimeError(f"{pipeline} has not ended")


if __name__ == "__main__":
    into = Path(sys.argv[1])
    upsert_state.FOLD_AFTER = 1  # an upsert's third batch then leaves what it remembers as a base and a delta
    session.start(replace(load(into), spark_conf=FAST), ("iceberg", "sqlite"))
    for name in sys.argv[2:]:
        make(name, CASES[name], into)
