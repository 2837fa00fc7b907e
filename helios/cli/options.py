"""Arguments and options that several commands share, and the functions that load what they name."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from helios.cli.output import Settings

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog
    from helios.config import Config
    from helios.model.flow import Pipeline
    from helios.plan import Context, Plan
    from helios.script import Script

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class ScriptName:
    """A parsed `SCRIPT[:name]`.

    Examples:
        >>> ScriptName.parse("missing.py:orders")
        ScriptName(path='missing.py', name='orders')
        >>> ScriptName.parse("C:missing")
        ScriptName(path='C:missing', name=None)
    """

    path: str
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> ScriptName:
        """Splits the text at the colon after an existing file. Other colons belong to the path or to the name."""
        if Path(text).is_file():
            return cls(text)
        paths = [text[:index] for index in range(len(text) - 1, 0, -1) if text[index] == ":"]
        existing = [path for path in paths if Path(path).is_file()]
        # A missing script is split too, so that the error names the file without the pipeline.
        scripts = existing or [path for path in paths if path.endswith((".py", ".yaml", ".yml"))]
        if not scripts:
            return cls(text)
        return cls(scripts[0], text.removeprefix(f"{scripts[0]}:"))


def command_line(command: str, script: ScriptName, **options: str | bool | int | Mapping[str, str] | None) -> str:
    """The text of a command with its options, for messages. Options that are None or False are left out.

    Examples:
        >>> print(command_line("backfill", ScriptName("p.py", "orders"), where="id = 'a'", by=None, rows_stay=True))
        helios backfill p.py:orders --where "id = 'a'" --rows-stay
    """
    words = ["helios", command, f"{script.path}:{script.name}" if script.name is not None else script.path]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, Mapping):
            words += [word for key, text in value.items() for word in (option, f"{key}={text}")]
        elif value is True:
            words.append(option)
        elif value is not None and value is not False:
            words += [option, str(value)]
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    """A word, quoted for a shell. A word with single quotes is put in double quotes, which is easier to read."""
    in_double_quotes = "'" in word and not any(character in word for character in '"$`\\!')
    return f'"{word}"' if in_double_quotes else shlex.quote(word)


@dataclass(frozen=True)
class Loaded:
    """A script, its chosen pipelines, and the context for compiling them."""

    script: Script
    pipelines: list[Pipeline]
    context: Context


def load(script: ScriptName, profile: str | None, values: dict[str, str], *, offline: bool = False) -> Loaded:
    """Loads a script and chooses its pipelines.

    Raises:
        InputError: The script, the name after the colon, or the configuration is wrong.
    """
    from helios.engine import context_for
    from helios.script import load_script

    loaded = load_script(script.path, values)
    pipelines = loaded.choose(script.name)
    context = context_for(script.path, dict(loaded.catalogs), profile)
    return Loaded(loaded, pipelines, replace(context, offline=offline))


def single_plan(loaded: Loaded, command: str) -> Plan:
    """The plan of the chosen pipeline, for a command that takes exactly one pipeline.

    Raises:
        InputError: Several pipelines were chosen.
        CheckFailed: The pipeline has problems.
    """
    from helios.engine import require_runnable
    from helios.errors import InputError
    from helios.plan import compile_pipelines

    if len(loaded.pipelines) > 1:
        chosen, path = set(map(id, loaded.pipelines)), loaded.script.path
        names = [name for name, pipeline in loaded.script.pipelines.items() if id(pipeline) in chosen]
        raise InputError(
            f"{path} has several pipelines: {', '.join(names)}.",
            fix=f"{command} one of them: helios {command} {path}:{names[0]}.",
        )
    [plan] = require_runnable(*compile_pipelines(loaded.pipelines, loaded.context, lenient=True))
    return plan


def catalogs_of(loaded: Loaded) -> list[Catalog]:
    """The catalogs that the chosen pipelines read and write; no catalog is contacted."""
    from helios.model.flow import flows

    catalogs: dict[str, Catalog] = {}
    for pipeline in loaded.pipelines:
        sink, sources = pipeline.sink.iceberg, [flow.source for flow in flows(pipeline.stream)]
        tables = [(*source.reference, source.origin) for source in sources if source.reference is not None]
        tables += [(sink.table, sink.catalog, sink.origin)] if sink is not None else []
        for table in tables:
            catalog = loaded.context.resolve(*table).catalog
            catalogs[catalog.name] = catalog
    return list(catalogs.values())


def load_configuration(profile: str | None) -> Config:
    """Reads the configuration of the working directory.

    Raises:
        ConfigError: The file, the profile or a variable is wrong.
    """
    from helios.config import load as load_config

    return load_config(Path.cwd(), profile)


class _ScriptNameType(click.ParamType[ScriptName]):
    name = "SCRIPT[:name]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ScriptName:
        return value if isinstance(value, ScriptName) else ScriptName.parse(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


def _as_values(ctx: click.Context, param: click.Parameter, texts: Iterable[str]) -> dict[str, str]:
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.", ctx, param)
        values[name] = value
    return values


def _store_setting(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    # The settings are stored in the root context, because `Helios.invoke` reads them to report errors.
    if value:
        setattr(ctx.find_root().ensure_object(Settings), str(param.name).removeprefix("as_"), True)
    return value


SCRIPT_NAME = _ScriptNameType()
script_argument = click.argument("script", type=SCRIPT_NAME, metavar="SCRIPT[:name]")
optional_script_argument = click.argument("script", type=SCRIPT_NAME, metavar="[SCRIPT[:name]]", required=False)
profile_option = click.option("--profile", metavar="NAME", help="Profile of helios.toml; by default $HELIOS_PROFILE.")
set_option = click.option(
    "--set", "values", multiple=True, metavar="NAME=VALUE", callback=_as_values, help="A value for helios.param(NAME)."
)
offline_option = click.option("--offline", is_flag=True, help="Do not read catalogs.")
json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_store_setting, help="Print JSON on standard output, also for errors."
)
_debug_option = click.option(
    "--debug", is_flag=True, callback=_store_setting, expose_value=False, help="Show tracebacks, also those of Java."
)


def common(command: Command) -> Command:
    """Adds the options `--profile` and `--debug` to a command."""
    return profile_option(_debug_option(command))


def settings() -> Settings:
    """The output settings of the running command."""
    return click.get_current_context().find_root().ensure_object(Settings)
