"""Loads a pipeline script, and finds the pipelines among its variables."""

from __future__ import annotations
import __future__

import ast
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from types import ModuleType
from typing import Any

from helios import yaml_script
from helios.catalog.spec import Catalog
from helios.errors import CheckFailed, DeclarationError, HeliosError, Origin, ScriptError, near_miss
from helios.model import values as parameters
from helios.model.flow import Flow, Pipeline, Sink, Transform

SCRIPT_SUFFIXES = (".py", *yaml_script.SUFFIXES)
MODULE_NAME = "__helios_script__"
"""The name under which a script is imported, so that its `if __name__ == "__main__"` does not run."""


@dataclass(frozen=True)
class Script:
    """A loaded script.

    Attributes:
        pipelines: The pipelines by variable name; an item of a list or dict is `name[0]` or `name[key]`.
        catalogs: The catalogs among the module's variables, by catalog name.
        module: The module, whose functions are shipped to executors.
    """

    path: Path
    pipelines: Mapping[str, Pipeline]
    catalogs: Mapping[str, Catalog]
    module: ModuleType

    def choose(self, name: str | None) -> list[Pipeline]:
        """The pipelines to run, each once; without a name, all pipelines of the script.

        Args:
            name: The name of a variable that holds pipelines, or otherwise a name from `.named(...)`.

        Raises:
            ScriptError: There is no pipeline, or no pipeline of that name.
        """
        if not self.pipelines:
            raise ScriptError(
                f"{self.path} declares no pipeline: it contains no `source >> ... >> sink`.",
                where=Origin(str(self.path), 1),
                fix="assign one to a variable: orders = Iceberg.source(...) >> Iceberg.sink(...).",
            )
        if name is None:
            return _each_once(self.pipelines.values())
        pipelines_of_variable = [
            pipeline
            for variable, pipeline in self.pipelines.items()
            if variable == name or variable.startswith(f"{name}[")
        ]
        chosen = pipelines_of_variable or [pipeline for pipeline in self.pipelines.values() if pipeline.name == name]
        if not chosen:
            known_names = [*self.pipelines, *(pipeline.name for pipeline in self.pipelines.values() if pipeline.name)]
            raise ScriptError(
                f"{self.path} has no pipeline called {name!r}. {near_miss(name, known_names)}",
                where=Origin(str(self.path), 1),
            )
        return _each_once(chosen)


def _each_once(pipelines: Iterable[Pipeline]) -> list[Pipeline]:
    return list({id(pipeline): pipeline for pipeline in pipelines}.values())


def load_script(path: str | Path, values: Mapping[str, str] | None = None) -> Script:
    """Runs a script's top level and collects its pipelines and catalogs.

    Args:
        values: The values of `--set`, for `helios.param`.

    Raises:
        ScriptError: The script is missing, is no Python, raises an error, or lacks a parameter that `values` sets.
        HeliosError: A declaration in the script is wrong.
    """
    file = Path(path)
    if file.is_dir():
        raise ScriptError(f"{file} is a folder, not a script.", fix=f"pass a file in it: {file / 'pipeline.py'}.")
    if not file.is_file():
        scripts = [other.name for other in file.parent.glob("*") if other.suffix in SCRIPT_SUFFIXES]
        suggestion = near_miss(file.name, scripts) if file.parent.is_dir() else ""
        fix = "pass the path of a Python file, or of a YAML file."
        raise ScriptError(f"there is no script {file}. {suggestion}".rstrip(), fix=fix)
    parameters.PARAMETERS.clear()
    parameters.PARAMETERS.update(values or {})
    parameters.USED_PARAMETERS.clear()
    module = _load_yaml(file) if file.suffix in yaml_script.SUFFIXES else _load_python(file)
    unknown = sorted(set(parameters.PARAMETERS) - parameters.USED_PARAMETERS)
    if unknown:
        raise ScriptError(
            f"--set {unknown[0]}: {file} has no such parameter. {near_miss(unknown[0], parameters.USED_PARAMETERS)}",
            fix=f'read it in the script: helios.param("{unknown[0]}", default).',
        )
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    pipelines = {name: pipeline for key, value in public.items() for name, pipeline in _pipelines_of(key, value)}
    catalogs = {value.name: value for value in public.values() if isinstance(value, Catalog)}
    if not pipelines:
        _refuse_unfinished(file, public)
    return Script(path=file, pipelines=pipelines, catalogs=catalogs, module=module)


def _load_yaml(file: Path) -> ModuleType:
    module = ModuleType(MODULE_NAME)
    module.__file__ = str(file.resolve())
    sys.modules[MODULE_NAME] = module
    vars(module).update(yaml_script.read_declarations(file))
    return module


def _load_python(file: Path) -> ModuleType:
    try:
        code = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise ScriptError(
            f"syntax error: {error.msg}: {(error.text or '').strip()!r}", where=Origin(str(file), error.lineno or 1)
        ) from error
    except ValueError as error:
        raise ScriptError(f"not a Python script: {error}", where=Origin(str(file), 1)) from error
    module = ModuleType(MODULE_NAME)
    module.__file__ = str(file.resolve())
    sys.modules[MODULE_NAME] = module
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        exec(code, vars(module))
    except HeliosError as error:
        others = _later_errors(file, vars(module), error) if isinstance(error, DeclarationError) else []
        if others:
            raise CheckFailed([error, *others]) from error
        raise
    except SystemExit as error:
        raise ScriptError(
            f"the script called exit({error.code!r}) while it was loaded.", where=_script_line(error, file)
        ) from error
    except Exception as error:
        hint = _hint(error)
        raised = f"{type(error).__name__}: {_without_pythons_hint(error) if hint else error}".rstrip(" .:")
        what = f"the script raised {raised}. {hint}".rstrip(" .")
        raise ScriptError(what, where=_script_line(error, file)) from error
    _refuse_unassigned(file, vars(module))
    return module


def _later_errors(file: Path, values: dict[str, Any], first: HeliosError) -> list[HeliosError]:
    """The errors in the declarations that follow the first wrong one, so that the user sees all errors at once.

    A declaration is skipped if it uses a name that an earlier, wrong declaration would have assigned.
    """
    body = ast.parse(file.read_bytes()).body
    frames = traceback.extract_tb(first.__traceback__)
    failed_line = next(
        (frame.lineno for frame in frames if frame.name == "<module>" and frame.filename == str(file)), None
    )
    failed_index = next((number for number, node in enumerate(body) if _contains_line(node, failed_line)), len(body))
    flags = compile(file.read_bytes(), str(file), "exec", dont_inherit=True).co_flags & FUTURE_FLAGS
    errors: list[HeliosError] = []
    missing = _assigned_names(body[failed_index]) if failed_index < len(body) else set()
    for node in body[failed_index + 1 :]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
            missing |= _assigned_names(node)  # these statements are not run, so their names are missing
            continue
        if not _only_declares(node, values):
            break
        used = {child.id for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load)}
        if used & missing:
            missing |= _assigned_names(node)
            continue
        try:
            exec(compile(ast.Module([node], []), str(file), "exec", flags, dont_inherit=True), values)
        except HeliosError as error:
            errors.append(error)
            missing |= _assigned_names(node)
        except Exception:
            break  # the cause may be a missing name, so this error and later ones may be misleading
    return errors


def _only_declares(node: ast.stmt, values: Mapping[str, Any]) -> bool:
    """True if a statement is safe to run, because it only assigns a plain value or a part of a pipeline."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if not all(isinstance(target, ast.Name) for target in targets):
        return False
    called = [child.func for child in ast.walk(node.value) if isinstance(child, ast.Call)]
    return all(_is_declaration(function, values) for function in called)


def _is_declaration(called: ast.expr, values: Mapping[str, Any]) -> bool:
    """True if a called function or method belongs to Helios and only declares a value."""
    owner = _leftmost_value(called, values)
    module = getattr(owner, "__name__", "") if isinstance(owner, ModuleType) else getattr(owner, "__module__", None)
    executes = isinstance(called, ast.Attribute) and called.attr in yaml_script.EXECUTING_METHODS
    return not executes and (module == "helios" or str(module).startswith(DECLARATION_MODULES))


DECLARATION_MODULES = ("helios.model.", "helios.steps.", "helios.sources.", "helios.iceberg")
"""The modules whose functions and classes declare values."""

FUTURE_FLAGS = reduce(or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names))
"""The compiler flags of all `from __future__` imports together."""


def _contains_line(node: ast.stmt, line: int | None) -> bool:
    return line is not None and node.lineno <= line <= (node.end_lineno or node.lineno)


def _assigned_names(node: ast.stmt) -> set[str]:
    names = {child.id for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)}
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        names.add(node.name)
    names |= {(each.asname or each.name).partition(".")[0] for each in ast.walk(node) if isinstance(each, ast.alias)}
    return names


def _hint(error: Exception) -> str:
    """A hint about an unknown name, or about a call of Spark while the script is loaded; empty for other errors."""
    if isinstance(error, ImportError) and error.name == "helios":
        missing = re.match(r"cannot import name '(\w+)'", str(error))
        return near_miss(missing[1], helios_names()) if missing is not None else ""
    if isinstance(error, NameError) and error.name:
        return near_miss(error.name, helios_names())
    argument = re.match(r"(?:(\w+)\.)?(\w+)\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if isinstance(error, TypeError) and argument is not None:
        return _argument_hint(*argument.groups())
    if isinstance(error, AttributeError) and error.name and error.obj is not None:
        return near_miss(error.name, [name for name in dir(error.obj) if not name.startswith("_")])
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if "pyspark" in Path(frames[-1]).parts:
        return (
            "Spark does not run while a script is loaded: call Spark inside a function of the pipeline; "
            "give a udf its return type as an object, such as udf(f, LongType())"
        )
    return ""


def _without_pythons_hint(error: Exception) -> str:
    """The text of an error without Python's own suggestion, which Python 3.13 adds for arguments."""
    return re.sub(r"\. Did you mean '\w+'\?$", "", str(error))


ARGUMENTS_OF_OTHER_TOOLS = {
    "interval": "poll",
    "every": "poll",
    "trigger": "poll",
    "starting": "start",
    "startingOffsets": "start",
    "keys": "only the names, without keys=",
    "key": "only the names, without key=",
    "orderBy": "order_by",
    "order": "order_by",
    "ttl": "tombstones",
}
"""Argument names of other tools, each with the name in Helios, or with advice where Helios has no such name."""


def _argument_hint(owner: str | None, call: str, name: str) -> str:
    """A hint about an argument that a function does not have.

    `owner` is the class of a method; None for a function, or if the error does not name the class.
    """
    modules = [module for module in list(sys.modules) if module.startswith(DECLARATION_MODULES)]
    classes = [value for module in modules for value in _classes(module)]
    functions = [getattr(value, call, None) for value in classes if owner in (None, value.__name__)]
    if owner is None:
        functions.append(getattr(sys.modules["helios"], call, None))
    known_arguments = [
        name for function in functions if callable(function) for name in inspect.signature(function).parameters
    ]
    replacement = ARGUMENTS_OF_OTHER_TOOLS.get(name)
    if replacement in known_arguments:
        return f"Write {replacement}="
    if replacement is not None and " " in replacement:  # advice
        return f"Write {replacement}"
    others = [argument for argument in known_arguments if argument != "self"]
    return near_miss(name, others) if known_arguments else ""


def _classes(module: str) -> list[type]:
    return [value for value in vars(sys.modules[module]).values() if isinstance(value, type)]


def helios_names() -> list[str]:
    return list(sys.modules["helios"].__all__)


def _script_line(error: BaseException, file: Path) -> Origin:
    """The innermost line of the script in a traceback; line 1 if the traceback has none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return Origin(str(file), (frames[-1].lineno or 1) if frames else 1)


def _pipelines_of(name: str, value: Any) -> list[tuple[str, Pipeline]]:
    """The pipelines in a variable, with their names: the value itself, or the items of a list or dict."""
    if isinstance(value, Pipeline):
        return [(name, value)]
    if isinstance(value, (list, tuple)):
        return [(f"{name}[{index}]", item) for index, item in enumerate(value) if isinstance(item, Pipeline)]
    if isinstance(value, dict):
        return [(f"{name}[{key}]", item) for key, item in value.items() if isinstance(item, Pipeline)]
    return []


def _refuse_unassigned(file: Path, values: Mapping[str, Any]) -> None:
    """Raises `ScriptError` if a pipeline is not assigned to a variable, since nothing would run that pipeline."""
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.Expr) and _is_pipeline(node.value, values):
            raise ScriptError(
                "this pipeline is not assigned to a variable, so nothing would run it.",
                where=Origin(str(file), node.lineno),
                fix="assign it: orders = Iceberg.source(...) >> Iceberg.sink(...).",
            )


def _is_pipeline(value: ast.expr, values: Mapping[str, Any]) -> bool:
    """True if an expression is a chain of `>>` from a source to a sink, possibly followed by `.named(...)`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "named":
        value = value.func.value
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.RShift):
        return False
    last = value.right
    sink = isinstance(_leftmost_value(last, values), Sink) or any(
        call in ast.unparse(last) for call in (".sink(", ".mirror(")
    )
    first = _leftmost_value(value, values)
    return sink and (isinstance(first, Flow) or getattr(first, "__module__", "").startswith("helios."))


def _leftmost_value(value: ast.expr, values: Mapping[str, Any]) -> Any:
    """The value of the leftmost name in an expression, such as `Files` in `Files.source("in") >> where("a")`."""
    while not isinstance(value, ast.Name):
        if isinstance(value, ast.BinOp):
            value = value.left
        elif isinstance(value, ast.Call):
            value = value.func
        elif isinstance(value, ast.Attribute):
            value = value.value
        else:
            return None
    return values.get(value.id)


def note_unrun_pipelines() -> None:
    """Prints a note when `python script.py` ends and has only declared pipelines."""
    main, file = sys.modules.get("__main__"), sys.argv[0]  # Python has already removed the module's `__file__`
    interactive = hasattr(sys, "ps1") or "IPython" in sys.modules
    raised = hasattr(sys, "last_type")
    if main is None or not file.endswith(".py") or interactive or raised:
        return
    public = {key: value for key, value in vars(main).items() if not key.startswith("_")}
    names = [name for key, value in public.items() for name, _ in _pipelines_of(key, value)]
    if names:
        name = os.path.basename(file)
        declared = f"{name} declares {len(names)} pipeline{'s' if len(names) > 1 else ''} and runs none"
        print(f"{declared}. To run: `helios run {name}`, or {names[0]}.run().", file=sys.stderr)


def _refuse_unfinished(file: Path, public: Mapping[str, Any]) -> None:
    """Raises `ScriptError` if a script has no pipelines, but a variable with a stream or with steps."""
    for name, value in public.items():
        if isinstance(value, (Flow, Transform)):
            description = "a stream without a sink" if isinstance(value, Flow) else "steps without a source and a sink"
            raise ScriptError(
                f"{file} declares no pipeline: {name!r} is {description}.",
                where=value.origin,
                fix='end it with a sink: ... >> Iceberg.sink("namespace.table").',
            )
