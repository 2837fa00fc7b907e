"""Renders the plans of a script; parts that most of the plans share are shown once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from helios.plan.nodes import Plan
from helios.plan.text import FILES, FORMAT, ROWS, first_line, lines, text_of

MIN_PLANS = 3
"""The smallest number of plans whose common parts are shown once."""
COMMON = (
    "path", "engine", FORMAT, FILES, "spill", "failed", "maintain", "retry", "schema", "trigger", "history",
    "progress", "jars",
)  # fmt: skip
"""The parts of plans that may be common, in the order of a plan."""
OPTIONAL = ("spill", "failed", "maintain", "trigger")
"""The parts that a plan may lack. If such a part is common, a plan without it shows `none`."""
NAME_PLACEHOLDER = "<pipeline>"
"""The text that stands for each pipeline's name in a common part."""


@dataclass(frozen=True)
class Part:
    """The lines of a plan under one label.

    Attributes:
        comparable_texts: The lines with `<pipeline>` in place of the name, so that they can be equal in several plans.
    """

    label: str
    texts: tuple[str, ...]
    comparable_texts: tuple[str, ...]


def render_all(plans: Sequence[Plan]) -> tuple[str, list[str]]:
    """The common parts of a script's plans as text, and the text of each plan without them.

    A part is common if it is equal in at least half of the plans; a plan that differs shows its own part. Fewer than
    three plans have no common parts: their texts are those of `str(plan)`, and the first text is empty.
    """
    parts = [list(_parts(plan)) for plan in plans]
    common = _common(plans, parts) if len(plans) >= MIN_PLANS else {}
    texts = [text_of(first_line(plan), _shown(own, common)) for plan, own in zip(plans, parts, strict=True)]
    if not common:
        return "", texts
    first = f"in common  ({len(plans)} pipelines; each difference is shown below)"
    return text_of(first, _labelled(common)), texts


def _parts(plan: Plan) -> Iterator[Part]:
    """Yields the parts of a plan; a line without a label belongs to the label above."""
    blocks: list[tuple[str, list[str]]] = []
    for label, text in lines(plan):
        if label:
            blocks.append((label, [text]))
        else:
            blocks[-1][1].append(text)
    folder = f"/{plan.pipeline}"
    for label, texts in blocks:
        ends_with_name = label == "progress" and texts[0].endswith(folder)
        comparable_texts = [f"{texts[0].removesuffix(folder)}/{NAME_PLACEHOLDER}"] if ends_with_name else texts
        yield Part(label, tuple(texts), tuple(comparable_texts))


def _common(plans: Sequence[Plan], parts: Sequence[Sequence[Part]]) -> dict[str, tuple[str, ...]]:
    """The common lines, by label."""
    reads = Counter(ROWS + read.kind for plan in plans for read in plan.reads)
    common = {}
    for label in (*reads, *COMMON):
        same_label = [part.comparable_texts for own in parts for part in own if part.label == label]
        (texts, count), *_ = Counter(same_label).most_common(1) or [((), 0)]
        possible = reads.get(label, len(plans))
        if count > 1 and 2 * count >= possible and (len(same_label) == possible or label in OPTIONAL):
            common[label] = texts
    return common


def _shown(own: Sequence[Part], common: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Yields the lines of a plan that are not common, and `none` for each common part that the plan does not have."""
    for part in own:
        if common.get(part.label) != part.comparable_texts:
            yield from _as_lines(part.label, part.texts)
    own_labels = {part.label for part in own}
    yield from ((label, "none") for label in OPTIONAL if label in common and label not in own_labels)


def _as_lines(label: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip((label, *[""] * (len(texts) - 1)), texts, strict=True)


def _labelled(common: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Yields the lines of the common parts; parts with a hidden label get the label `read` or `write`."""
    written = tuple(text for label in (FORMAT, FILES) for text in common.get(label, ()))
    labelled = dict[str, tuple[str, ...]]()
    for label, texts in common.items():
        if label.startswith(ROWS):
            kind = f"{label.removeprefix(ROWS)}: "
            labelled["read"] = (*labelled.get("read", ()), kind + texts[0], *texts[1:])
        else:
            labelled |= {"write": written} if label in (FORMAT, FILES) else {label: texts}
    for label, texts in labelled.items():
        yield from _as_lines(label, texts)
