"""The commands `init`, `check`, `plan` and `graph`, which need no JVM."""

from __future__ import annotations

from pathlib import Path

import click

from helios.cli import options, output
from helios.cli.options import ScriptName
from helios.errors import CheckFailed, InputError

TEMPLATE_FILES = {
    "pipeline.txt": "pipeline.py",
    "test_pipeline.txt": "test_pipeline.py",
    "helios.toml": "helios.toml",
    "orders.csv": "data/orders.csv",
}
"""The files in the folder `template`, each with the path at which `helios init` writes its content."""
IGNORED_FOLDER = ".helios/"
DIFFERS = 2
"""The exit status of `helios plan --exit-code` if a plan has changed."""


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Write a first pipeline, with data and configuration, into DIR.

    No file is overwritten.

    \b
    Example:
      helios init demo
    """
    from importlib import resources

    existing = [name for name in TEMPLATE_FILES.values() if (folder / name).exists()]
    if existing:
        raise InputError(
            f"{folder / existing[0]} exists already; nothing was written.",
            fix="choose another folder: helios init DIR.",
        )
    try:
        for source, name in TEMPLATE_FILES.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(resources.files("helios.cli").joinpath("template", source).read_text("utf-8"), "utf-8")
            click.echo(f"wrote {target}")
        if _add_to_gitignore(folder / ".gitignore"):
            click.echo(f"wrote {folder / '.gitignore'}")
    except OSError as error:
        raise InputError(
            f"{error.filename or folder}: {error.strerror}.", fix="choose a folder that you can write to."
        ) from error
    click.echo(f"\nNext: helios run {folder / 'pipeline.py'} --once")


def _add_to_gitignore(file: Path) -> bool:
    """Adds the folder of the embedded catalog to .gitignore. Returns False if .gitignore has it already."""
    text = file.read_text("utf-8") if file.exists() else ""
    if IGNORED_FOLDER in text.splitlines():
        return False
    separator = "" if not text or text.endswith("\n") else "\n"
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"{separator}# the embedded catalog, its tables and its checkpoints\n{IGNORED_FOLDER}\n")
    return True


@click.command()
@options.script_argument
@options.offline_option
@options.set_option
@options.common
@options.json_option
def check(script: ScriptName, offline: bool, values: dict[str, str], profile: str | None, as_json: bool) -> None:
    """Find every problem of a script at once, without a JVM.

    Each problem has its line and its fix. Catalogs are read unless --offline.

    \b
    Example:
      helios check pipeline.py
    """
    from helios.plan import compile_pipelines
    from helios.plan.notes import with_notes
    from helios.sources.common.absent import absent_source_problems

    loaded = options.load(script, profile, values, offline=offline)
    plans, problems = compile_pipelines(loaded.pipelines, loaded.context)
    problems += [] if offline else absent_source_problems(plans)
    noted_plans = [with_notes(plan, plans) for plan in plans]
    problems += [problem for _, found in noted_plans for problem in found]
    if problems:
        raise CheckFailed(problems)
    notes = {plan.pipeline: plan.write.notes for plan, _ in noted_plans}
    names = list(notes)
    if as_json:
        output.print_json({"pipelines": names, "problems": [], "notes": {name: list(notes[name]) for name in names}})
    else:
        offline_text = " (catalogs were not read)" if offline else ""
        click.echo(f"{script.path}: no problems{offline_text}: {', '.join(names)}")
        for name in names:
            for note in notes[name]:
                click.echo(f"note: {name}: {note}.")


@click.command()
@options.script_argument
@options.offline_option
@click.option("--exit-code", is_flag=True, help="Exit with 2 if a plan differs from that of the last run.")
@options.set_option
@options.common
@options.json_option
def plan(
    script: ScriptName, *, offline: bool, exit_code: bool, values: dict[str, str], profile: str | None, as_json: bool
) -> None:
    """Show what a script will run, and what has changed.

    It shows the sources and how they are read, the data that waits for the next run, the steps, the target and its
    schema, the trigger, the checkpoint and the jars. For a pipeline that has run, it also shows how the plan differs
    from that of the last run, and what that means.

    \b
    Example:
      helios plan pipeline.py:orders
    """
    from helios.environment.memory import driver_memory_text
    from helios.plan import changed, compile_pipelines
    from helios.plan.backlog import with_backlogs
    from helios.plan.notes import with_notes
    from helios.plan.together import render_all

    loaded = options.load(script, profile, values, offline=offline)
    plans, problems = compile_pipelines(loaded.pipelines, loaded.context)
    if problems:
        raise CheckFailed(problems)
    noted_plans = [with_notes(with_backlogs(compiled), plans) for compiled in plans]
    plans = [compiled for compiled, _ in noted_plans]
    refusals = [problem for _, found in noted_plans for problem in found]
    changes = [None if offline else changed.plan_difference(compiled) for compiled in plans]
    if as_json:
        with_changes = zip(plans, map(changed.as_json, changes), strict=True)
        output.print_json([{**compiled.as_json(), "changed": change} for compiled, change in with_changes])
    else:
        config = loaded.context.config
        common, texts = render_all(plans)
        texts = ["\n".join(filter(None, parts)) for parts in zip(texts, map(changed.as_text, changes), strict=True)]
        spark = f"spark {config.master}: {driver_memory_text(config.master, config.spark_conf)}"
        output.print_wrapped("\n\n".join(filter(None, [common, *texts, spark])))
    for problem in refusals:
        output.say("note", f"a run is refused: {output.paragraph(problem)}", "yellow")
    if exit_code and any(change is not None and change.changes for change in changes):
        click.get_current_context().exit(DIFFERS)


@click.command()
@options.script_argument
@click.option("--format", "output_format", type=click.Choice(["mermaid", "dot"]), default="mermaid", show_default=True)
@options.set_option
@options.common
def graph(script: ScriptName, output_format: str, values: dict[str, str], profile: str | None) -> None:
    """Draw the pipelines of a script.

    \b
    Example:
      helios graph pipeline.py > pipeline.mmd
      helios graph pipeline.py --format dot | dot -Tsvg > pipeline.svg
    """
    loaded = options.load(script, profile, values, offline=True)
    from helios.cli import graph as drawing

    click.echo(drawing.FORMATS[output_format](drawing.draw(loaded.pipelines, loaded.context)))
