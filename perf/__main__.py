"""`python -m perf`: every measurement that anyone can make again.

python -m perf list
python -m perf run append --rows 1000000 --json append.json
python -m perf report
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import click

from perf.harness.lake import Settings
from perf.harness.machine import machine
from perf.harness.race import Differ, Rounds, race
from perf.harness.report import lines, table, write
from perf.harness.study import studied
from perf.harness.worker import WorkerError
from perf.harness.workload import CONTENDERS
from perf.studies import STUDIES
from perf.workloads import WORKLOADS

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Runs workloads against other ways to do them, and reports what they took."""


@main.command("list")
def list_() -> None:
    """The workloads, their sizes and who takes part."""
    for name, workload in WORKLOADS.items():
        click.echo(f"{name:14} {workload.rows:>12,} rows  {workload.says}")
        click.echo(f"{'':14} {'':>17}  goal: {workload.goal}; contenders: {', '.join(workload.contenders())}")
    for name, study in STUDIES.items():
        click.echo(f"{name:14} {study.rows:>12,}       {study.says}")
        click.echo(f"{'':14} {'':>17}  goal: {study.goal}; the size: {study.size_says}")


@main.command()
@click.argument("name", type=click.Choice([*WORKLOADS, *STUDIES]))
@click.option("--rows", type=click.IntRange(1), help="The size; by default the workload's own.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds that count.")
@click.option("--warm-up", type=click.IntRange(0), default=3, show_default=True, help="Rounds before those.")
@click.option("--contenders", help="Those that take part, by names with commas; by default all.")
@click.option("--cores", type=click.IntRange(1), default=2, show_default=True, help="Of each engine.")
@click.option("--heap", default="4g", show_default=True, help="Of each JVM.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the data goes; by default a temporary folder.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Where the result goes; by default perf/results.")
def run(  # noqa: PLR0917
    name: str,
    rows: int | None,
    rounds: int,
    warm_up: int,
    contenders: str | None,
    cores: int,
    heap: str,
    folder: Path | None,
    file: Path | None,
) -> None:
    """Runs a workload or a study; exit status 1 where a contender fails or has written other rows than it should."""
    if name in STUDIES and contenders is not None:
        raise click.UsageError(f"{name} is a study, and has no contenders to choose.")
    chosen = _chosen(contenders, WORKLOADS[name].contenders()) if name in WORKLOADS else []
    if folder is not None and (folder / ".helios").exists():
        raise click.UsageError(f"{folder} has tables of an earlier run; name a new folder.")
    made = Path(tempfile.mkdtemp(prefix="helios-perf-")) if folder is None else folder
    size = rows or (STUDIES[name].rows if name in STUDIES else WORKLOADS[name].rows)
    settings = Settings(folder=made.resolve(), rows=size, cores=cores, heap=heap)
    try:
        if name in STUDIES:
            result = studied(STUDIES[name], settings, click.echo)
        else:
            result = race(WORKLOADS[name], settings, Rounds(rounds, warm_up), chosen, click.echo)
    except (Differ, WorkerError) as error:
        raise click.ClickException(str(error)) from error
    if folder is None:
        shutil.rmtree(made)
    result["machine"] = machine()
    result["name"] = name if rows is None else f"{name}-{rows}"
    file = file or RESULTS / f"{result['name']}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n")
    if name in STUDIES:
        click.echo(f"{lines([result['columns'], *result['lines']])}\n{file}")
    else:
        click.echo(f"{table(result)}\nthe targets hold the same rows; {file}")


@main.command()
@click.option("--results", type=click.Path(exists=True, path_type=Path), default=RESULTS, help="The folder of results.")
@click.option("--docs", type=click.Path(exists=True, path_type=Path), default=DOCS, help="Where benchmarks.md goes.")
def report(results: Path, docs: Path) -> None:
    """Writes docs/benchmarks.md, with a plot of each workload, from the results of all runs."""
    found = [json.loads(file.read_text()) for file in sorted(results.glob("*.json"))]
    if not found:
        raise click.ClickException(f"{results} has no results; `python -m perf run append` makes one.")
    order = [*WORKLOADS, *STUDIES]
    found.sort(key=lambda one: (order.index(one["workload"]) if one["workload"] in order else len(order), one["rows"]))
    click.echo(write(found, docs))


def _chosen(given: str | None, possible: list[str]) -> list[str]:
    if given is None:
        return possible
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in possible:
            known = "not a contender" if name not in CONTENDERS else "no contender of this workload"
            raise click.BadParameter(f"{name} is {known}; it has {', '.join(possible)}.", param_hint="--contenders")
    return names


if __name__ == "__main__":
    main(prog_name="python -m perf")
