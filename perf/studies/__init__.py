"""The studies, by their names on the command line."""

from __future__ import annotations

from perf.harness.study import Study
from perf.studies.freshness import Freshness
from perf.studies.growth import Growth
from perf.studies.window_batches import WindowBatches

STUDIES: dict[str, type[Study]] = {study.name: study for study in (Freshness, Growth, WindowBatches)}
