"""Draws pipelines as a graph, in mermaid or dot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helios.errors import NotFound

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog
    from helios.errors import Origin
    from helios.model.flow import Flow, Pipeline, Source
    from helios.model.step import Step
    from helios.model.values import Identifier
    from helios.plan import Context

LONGEST_LABEL = 100


@dataclass(frozen=True)
class Node:
    """A node; `kind` is source, step or sink. `pipelines` has the indexes of the pipelines that contain the node."""

    id: str
    kind: str
    label: str
    pipelines: list[int] = field(default_factory=list, compare=False)


@dataclass(frozen=True)
class Edge:
    """An arrow from one node to another. A dashed arrow links the sink of a table with a source of the same table."""

    start: str
    end: str
    label: str = ""
    dashed: bool = False


@dataclass
class Graph:
    """The nodes, and the arrows between them. Equal arrows are drawn once."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def add(self, kind: str, label: str) -> str:
        self.nodes.append(Node(f"n{len(self.nodes)}", kind, label))
        return self.nodes[-1].id

    def connect(self, start: str, end: str, label: str = "", *, dashed: bool = False) -> None:
        edge = Edge(start, end, label, dashed)
        if edge not in self.edges:
            self.edges.append(edge)


def draw(pipelines: Sequence[Pipeline], context: Context) -> Graph:
    """The graph of pipelines. Equal sources and shared streams are drawn once."""
    drawing = _Drawing(context)
    for index, pipeline in enumerate(pipelines):
        drawing.pipeline_index = index
        drawing.draw_pipeline(pipeline)
    drawing.link_tables()
    return drawing.graph


class _Drawing:
    """Draws one pipeline after the other into a graph. Nodes are referred to by their ids."""

    def __init__(self, context: Context) -> None:
        self.graph = Graph()
        self.context = context
        self.pipeline_index = 0  # of the pipeline that is being drawn
        self.sources: list[tuple[Source, str]] = []  # the drawn sources, each with its node
        self.steps: dict[tuple[str, int], str] = {}  # each step's node, by the node before it and the id of the step
        self.read_tables: list[tuple[str, str]] = []  # names of tables, each with the node of a source
        self.written_tables: list[tuple[str, str]] = []  # names of tables, each with the node of a sink

    def draw_pipeline(self, pipeline: Pipeline) -> None:
        label = pipeline.sink.label() + (f"\n{pipeline.name}" if pipeline.name else "")
        end = self.draw_flow(pipeline.stream)
        sink = self.add_pipeline(self.graph.add("sink", label))
        self.graph.connect(end, sink)
        if (target := pipeline.sink.iceberg) is not None:
            self.written_tables.append((self.table_name(target.table, target.catalog, target.origin), sink))

    def draw_flow(self, flow: Flow) -> str:
        """Draws a flow, and returns its last node."""
        last = self.draw_source(flow.source)
        for step in flow.steps:
            last = self.draw_step(last, step)
        return last

    def draw_source(self, source: Source) -> str:
        for drawn_source, node in self.sources:
            if drawn_source is source or (drawn_source.comparable and drawn_source == source):
                return self.add_pipeline(node)
        node = self.add_pipeline(self.graph.add("source", source.label()))
        self.sources.append((source, node))
        if source.reference is not None:
            self.read_tables.append((self.table_name(*source.reference, source.origin), node))
        return node

    def draw_step(self, before: str, step: Step) -> str:
        # If several pipelines have the same step object after the same node, they share a stream.
        key = (before, id(step))
        if key not in self.steps:
            from helios.steps.join import Join
            from helios.steps.union import Union

            label = " ".join(step.text().split())  # put SQL with several lines on one line
            if isinstance(step, Join):
                label = step.short
            elif isinstance(step, Union):
                label = "union"
            node = self.steps[key] = self.graph.add("step", label)
            self.graph.connect(before, node)
            if isinstance(step, (Join, Union)):
                self.graph.connect(self.draw_flow(step.other), node, "right" if isinstance(step, Join) else "")
        return self.add_pipeline(self.steps[key])

    def add_pipeline(self, node: str) -> str:
        """Adds the current pipeline to the pipelines that share a node, and returns the node."""
        indexes = self.graph.nodes[int(node[1:])].pipelines
        if self.pipeline_index not in indexes:
            indexes.append(self.pipeline_index)
        return node

    def table_name(self, name: Identifier, catalog: Catalog | str | None, where: Origin) -> str:
        try:
            return self.context.resolve(name, catalog, where).text
        except NotFound:
            return str(name)  # the graph shows the unknown name, which `helios check` refuses

    def link_tables(self) -> None:
        """Draws a dashed arrow from each sink to the sources that read its table, or a table of its mirror."""
        for table, sink in self.written_tables:
            for name, source in self.read_tables:
                of_mirror = table.endswith(".*") and name.startswith(table.removesuffix("*"))
                if name == table or of_mirror:
                    self.graph.connect(sink, source, dashed=True)


def _shortened(label: str) -> str:
    lines = [" ".join(line.split()) for line in label.split("\n")]
    return "\n".join(line if len(line) <= LONGEST_LABEL else f"{line[: LONGEST_LABEL - 3]}..." for line in lines)


_MERMAID_SHAPES = {"source": ('[("', '")]'), "step": ('["', '"]'), "sink": ('[("', '")]')}
_MERMAID_SIGNS = {
    "#": "#35;", "&": "#38;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;", "\\": "#92;", "\n": "<br/>",
    "*": "#42;",
}  # fmt: skip
_DOT_SHAPES = {"source": "cylinder", "step": "box", "sink": "cylinder"}


def mermaid(graph: Graph) -> str:
    lines = ["flowchart LR"]
    for node in graph.nodes:
        left, right = _MERMAID_SHAPES[node.kind]
        label = "".join(_MERMAID_SIGNS.get(sign, sign) for sign in _shortened(node.label))
        lines.append(f"    {node.id}{left}{label}{right}")
    for edge in graph.edges:
        arrow = "-.->" if edge.dashed else "-->"
        label = f"|{edge.label}|" if edge.label else ""
        lines.append(f"    {edge.start} {arrow}{label} {edge.end}")
    return "\n".join(lines)


def dot(graph: Graph) -> str:
    """The graph in Graphviz's language."""
    lines = ["digraph helios {", "    rankdir=LR;"]
    for node in graph.nodes:
        lines.append(f"    {node.id} [shape={_DOT_SHAPES[node.kind]}, label={_dot_text(_shortened(node.label))}];")
    for edge in graph.edges:
        styles = [f"label={_dot_text(edge.label)}"] if edge.label else []
        styles += ["style=dashed"] if edge.dashed else []
        style = f" [{', '.join(styles)}]" if styles else ""
        lines.append(f"    {edge.start} -> {edge.end}{style};")
    return "\n".join([*lines, "}"])


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


FORMATS: dict[str, Callable[[Graph], str]] = {"mermaid": mermaid, "dot": dot}
