"""Reads pipelines from a YAML file. The keys of the file are names and arguments of Helios's Python API."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helios.config.tree import expand
from helios.errors import CheckFailed, ConfigError, HeliosError, Origin, ScriptError, near_miss
from helios.model.flow import Flow, Pipeline, Sink, Source, Transform
from helios.model.values import param

if TYPE_CHECKING:
    from yaml import Node

SUFFIXES = (".yaml", ".yml")
SECTION_KEYS = ("params", "streams", "pipelines")
STREAM_KEYS = ("source", "steps")
PIPELINE_KEYS = (*STREAM_KEYS, "sink", "name", "was")
EXECUTING_METHODS = ("run", "preview", "plan", "check", "schema")
"""Methods that do more than declare. A YAML file must not call them, since it only declares pipelines."""
UNQUOTED_VALUES: tuple[tuple[str, Callable[[str], Any]], ...] = (
    (r"|~|null|Null|NULL", lambda text: None),
    (r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    (r"[-+]?\d+", int),
    (r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?", float),
)
"""Patterns of unquoted texts, each with the function that converts a matching text to a Python value.

The patterns follow YAML 1.2, in which `on` and `2026-01-01` are texts.
"""


def read_declarations(file: Path) -> dict[str, Any]:
    """The streams and pipelines of a file, by name. `docs/yaml.md` describes the format.

    Raises:
        ScriptError: The file is not YAML, or has a wrong key, name or argument.
        CheckFailed: The file has several problems, each with its line.
    """
    try:
        import yaml
    except ImportError as error:
        raise ScriptError(
            f"{file} is YAML, and PyYAML is not installed.", fix="pip install 'helios-iceberg[yaml]'."
        ) from error
    try:
        root = yaml.compose(file.read_text("utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = Origin(str(file), mark.line + 1 if mark else 1)
        raise ScriptError(f"not YAML: {error.problem or error.context}.", where=where) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScriptError(f"not YAML: {' '.join(str(error).split())}.", where=Origin(str(file), 1)) from error
    try:
        return _YamlFile(file).read(root)
    except RecursionError as error:
        raise ScriptError(f"{file} has an alias that contains itself.", where=Origin(str(file), 1)) from error


class _YamlFile:
    """The declarations of one YAML file. Errors and plans show the path of the file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._env: dict[str, str] = dict(os.environ)
        self._params: dict[str, Any] = {}
        self._streams: dict[str, Flow] = {}
        self._problems: list[HeliosError] = []

    def read(self, root: Node | None) -> dict[str, Any]:
        if root is None:
            raise ScriptError(f"{self._file} is empty.", where=Origin(str(self._file), 1), fix=_LAYOUT_FIX)
        sections = self._mapping(root, SECTION_KEYS, "a section")
        if "params" in sections:
            for key, default in self._items(sections["params"]):
                self._params[key.value] = param(key.value, self._value(default))
                self._env[key.value] = str(self._params[key.value])
        values: dict[str, Any] = {}
        for section, read in (("streams", self._stream), ("pipelines", self._pipeline)):
            for key, node in self._items(sections[section]) if section in sections else ():
                try:
                    if key.value in values:
                        raise self._error(key, f"{key.value!r} is there twice.", "use distinct names.")
                    values[key.value] = read(node)
                except HeliosError as error:
                    self._problems += error.problems if isinstance(error, CheckFailed) else [error]
                else:
                    if section == "streams":
                        self._streams[key.value] = values[key.value]
        if self._problems:
            raise self._problems[0] if len(self._problems) == 1 else CheckFailed(self._problems)
        return values

    # streams and pipelines

    def _stream(self, node: Node) -> Flow:
        return self._flow(node, self._mapping(node, STREAM_KEYS, "a part of a stream"))

    def _pipeline(self, node: Node) -> Any:
        parts = self._mapping(node, PIPELINE_KEYS, "a part of a pipeline")
        flow = self._flow(node, parts)
        if "sink" not in parts:
            raise self._error(node, "a pipeline needs a sink.", 'add one: `sink: {Iceberg.sink: "sales.orders"}`.')
        several = _node_kind(parts["sink"]) == "sequence"
        sinks = [self._chain(item, Sink, "a sink") for item in (parts["sink"].value if several else [parts["sink"]])]
        pipeline = self._evaluate("a >> b", parts["sink"], a=flow, b=sinks if several else sinks[0])
        name_arguments = {key: self._value(parts[key]) for key in ("name", "was") if key in parts}
        if not name_arguments:
            return pipeline
        if "name" not in name_arguments:
            raise self._error(parts["was"], "`was:` needs `name:`.")
        if not isinstance(pipeline, Pipeline):
            raise self._error(parts.get("was", parts["sink"]), "`name:` needs a single sink, and `sink:` is a list.")
        return self._evaluate(
            "f(*a, **k)", parts["name"], f=pipeline.named, a=[name_arguments.pop("name")], k=name_arguments
        )

    def _flow(self, node: Node, parts: Mapping[str, Node]) -> Flow:
        if "source" not in parts:
            raise self._error(node, "a source is missing.", 'add one: `source: {Iceberg.source: "raw.orders"}`.')
        flow = self._stream_or_source(parts["source"])
        steps = parts.get("steps")
        if steps is not None and _node_kind(steps) != "sequence":
            raise self._error(steps, "steps must be a list.", "begin each step with `- `.")
        for step in steps.value if steps is not None else ():
            flow = self._evaluate("a >> b", step, a=flow, b=self._chain(step, Transform, "a step"))
        return flow

    def _stream_or_source(self, node: Node) -> Flow:
        """The stream that a node names, or the source that a node declares."""
        if _node_kind(node) != "scalar":
            source: Source = self._chain(node, Source, "a source")
            return source
        if node.value not in self._streams:
            raise self._error(node, f"there is no stream {node.value!r} above. {near_miss(node.value, self._streams)}")
        return self._streams[node.value]

    def _chain(self, node: Node, expected: type, description: str) -> Any:
        """The result of a chain of calls. Each key of the node is a function, and the key's value has the arguments.

        The first function is a name that Helios exports. Each later function is a method of the previous result.
        """
        if _node_kind(node) == "scalar":
            return self._call(self._helios_callable(node), node, None)
        value: Any = None
        for index, (key, arguments) in enumerate(self._items(node)):
            value = self._call(self._method(value, key) if index else self._helios_callable(key), key, arguments)
        if not isinstance(value, expected):
            raise self._error(node, f"{description} is expected here, not {type(value).__name__}.")
        return value

    def _helios_callable(self, node: Node) -> Callable[..., Any]:
        """The function or class of Helios with a dotted name, such as `where` or `Iceberg.source`."""
        helios = sys.modules["helios"]
        first, *rest = node.value.split(".")
        if first not in helios.__all__:
            raise self._error(node, f"Helios has no {first!r}. {near_miss(first, helios.__all__)}")
        value: Any = getattr(helios, first)
        for name in rest:
            value = self._attribute(value, name, node)
        return self._callable(value, node)

    def _method(self, value: Any, key: Node) -> Callable[..., Any]:
        return self._callable(self._attribute(value, key.value, key), key)

    def _attribute(self, value: Any, name: str, node: Node) -> Any:
        attributes = [
            attribute
            for attribute in dir(value)
            if not attribute.startswith("_") and attribute not in EXECUTING_METHODS
        ]
        if name not in attributes:
            owner = value.__name__ if isinstance(value, type) else type(value).__name__
            raise self._error(node, f"{owner} has no {name!r}. {near_miss(name, attributes)}")
        return getattr(value, name)

    def _callable(self, value: Any, node: Node) -> Callable[..., Any]:
        if not callable(value) or (isinstance(value, type) and issubclass(value, Exception)):
            raise self._error(node, f"{node.value!r} is not a source, step, sink or setting.")
        return value  # type: ignore[no-any-return]

    # calls

    def _call(self, function: Callable[..., Any], node: Node, arguments: Node | None) -> Any:
        """The result of a call. Errors show the line of the call in the file."""
        positional, named = self._arguments(function, arguments)
        return self._evaluate("f(*a, **k)", node, f=function, a=positional, k=named)

    def _evaluate(self, text: str, node: Node, **values: Any) -> Any:
        """The value of a Python expression, compiled as if it were on the node's line of the file.

        Helios's values and errors show the line of their caller. Here, this is the node's line of the YAML file.
        """
        line = node.start_mark.line
        code = compile("\n" * line + text, str(self._file), "eval", dont_inherit=True)
        try:
            return eval(code, values)
        except (TypeError, ValueError) as error:
            raise self._error(node, f"{error}.") from error

    def _arguments(self, function: Callable[..., Any], node: Node | None) -> tuple[list[Any], dict[str, Any]]:
        """The positional and keyword arguments of a call.

        Args:
            node: The arguments: a value, a list of values, or a mapping of names to values; None for a call without
                arguments.
        """
        if node is None or (
            _node_kind(node) == "scalar" and not node.tag.startswith("!") and self._value(node) is None
        ):
            return [], {}
        if node.tag.startswith("!") or _node_kind(node) == "scalar":
            return [self._value(node)], {}
        if _node_kind(node) == "sequence":
            return [self._value(item) for item in node.value], {}
        parameters = inspect.signature(function).parameters
        varargs_name = next(
            (name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_POSITIONAL), None
        )
        kwargs_name = next(
            (name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_KEYWORD), None
        )
        named = {key.value: (key, self._value(value)) for key, value in self._items(node)}
        unknown = [key for name, (key, _) in named.items() if name not in parameters or name == kwargs_name]
        if unknown and kwargs_name is None:
            first = next(iter(parameters.values()), None)
            if len(unknown) == len(named) and first is not None and "Mapping" in str(first.annotation):
                return [{name: value for name, (_, value) in named.items()}], {}  # the function takes a dict
            wrong_key = unknown[0]
            suggestion = near_miss(wrong_key.value, parameters)
            raise self._error(wrong_key, f"there is no argument {wrong_key.value!r}. {suggestion}")
        keywords = {name: value for name, (_, value) in named.items()}
        varargs_value = keywords.pop(varargs_name, []) if varargs_name is not None else []
        positional = [
            name
            for name, parameter in parameters.items()
            if parameter.kind is parameter.POSITIONAL_ONLY and name in keywords
        ]
        return [
            *(keywords.pop(name) for name in positional),
            *(varargs_value if isinstance(varargs_value, list) else [varargs_value]),
        ], keywords

    # values

    def _value(self, node: Node) -> Any:
        if node.tag.startswith("!"):
            return self._tagged(node)
        if _node_kind(node) == "sequence":
            return [self._value(item) for item in node.value]
        if _node_kind(node) == "mapping":
            return {key.value: self._value(value) for key, value in self._items(node)}
        unquoted, text = getattr(node, "style", None) is None, self._expanded(node)
        if (reference := re.fullmatch(r"\$\{(\w+)\}", node.value)) and reference[1] in self._params:
            return self._params[reference[1]]  # a text that is only `${name}` has the parameter's type
        if not unquoted or text != node.value:
            # Quoted texts, and texts with variables, stay texts: an account number may begin with a zero.
            return text
        return next((convert(text) for pattern, convert in UNQUOTED_VALUES if re.fullmatch(pattern, text)), text)

    def _tagged(self, node: Node) -> Any:
        """The value of a node with a tag. `!stream orders` is a stream; `!day ts` is the result of Helios's `day`."""
        name, node = node.tag[1:], copy(node)  # a copy, since an alias may refer to the same node
        node.tag = ""
        if name == "stream":
            if _node_kind(node) == "mapping" and any(key.value in STREAM_KEYS for key, _ in self._items(node)):
                return self._stream(node)
            return self._stream_or_source(node)
        function = self._helios_callable(_node_with_text(name, node))
        return self._call(function, node, node)

    def _expanded(self, node: Node) -> str:
        def variable_error(path: object, what: str, fix: str | None = None) -> ConfigError:
            return ConfigError(what, where=self._origin(node), fix=fix)

        return str(expand(node.value, self._env, variable_error))

    def _mapping(self, node: Node, known: tuple[str, ...], description: str) -> dict[str, Node]:
        parts = {}
        for key, value in self._items(node):
            if key.value not in known:
                raise self._error(key, f"{key.value!r} is not {description}. {near_miss(key.value, known)}")
            parts[key.value] = value
        return parts

    def _items(self, node: Node) -> Iterator[tuple[Node, Node]]:
        """Yields the keys and values of a mapping. Raises `ScriptError` if a key occurs twice."""
        if _node_kind(node) != "mapping":
            raise self._error(node, "names with values are expected here.", _LAYOUT_FIX)
        seen: set[str] = set()
        for key, value in node.value:
            if _node_kind(key) != "scalar" or key.value == "<<":
                raise self._error(key, "a key must be a name; merge keys (<<) are not supported.")
            if key.value in seen:
                raise self._error(key, f"{key.value!r} is there twice.", "leave one of them out.")
            seen.add(key.value)
            yield key, value

    def _origin(self, node: Node) -> Origin:
        return Origin(str(self._file), node.start_mark.line + 1)

    def _error(self, node: Node, what: str, fix: str | None = None) -> ScriptError:
        return ScriptError(what.rstrip(), where=self._origin(node), fix=fix)


def _node_kind(node: Node) -> str:
    return str(node.id)


def _node_with_text(text: str, node: Node) -> Node:
    """A new scalar node with the text `text`, at the position of `node`."""
    import yaml

    return yaml.ScalarNode("", text, node.start_mark, node.end_mark)


_LAYOUT_FIX = "begin with `pipelines:`, and below it a name with `source:`, `steps:` and `sink:`."
