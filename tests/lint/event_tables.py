"""The events of `keras_ring/keras/lanes`, as they stand in its files.

Read without importing Keras, so all lanes are seen wherever this runs: for
the table in `docs/architecture.md`, and for the tests that the tables fit
together.
"""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
PACKAGE = _ROOT / "keras_ring"
_LANES = "keras/lanes"
_SHARED = ("python_events", "optimizer_events")
FRAMEWORKS = ("tensorflow_events", "torch_events", "jax_events")
_ALIKE = "keras_events"
LANES = {"Keras 3": "keras3_events", "Keras 2": "keras2_events"}


@dataclasses.dataclass(frozen=True)
class Subscription:
    """A call of `hooks.subscribe`.

    Attributes:
        path: String, the path of the file, within `keras_ring`.
        event: String, the name of the constant in `events`.
        ring: String, the name of the `Ring`.
        purpose: String, the purpose.
    """

    path: str
    event: str
    ring: str
    purpose: str


def _lane_file(name: str) -> ast.Module:
    return ast.parse((PACKAGE / _LANES / f"{name}.py").read_text())


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """Returns the values of a module's constants."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            found[node.target.id] = node.value
    return found


def events() -> dict[str, tuple[str, str]]:
    """Returns the names of events, and when they happen, by constant."""
    return {
        constant: tuple(ast.literal_eval(each) for each in value.args)
        for constant, value in _assigned(_lane_file("events")).items()
    }


def rings() -> list[str]:
    """Returns the names of the rings, the outermost first."""
    (found,) = (
        node
        for node in _lane_file("rings").body
        if isinstance(node, ast.ClassDef)
    )
    values = {
        each.targets[0].id: ast.literal_eval(each.value)
        for each in found.body
        if isinstance(each, ast.Assign)
    }
    return sorted(values, key=values.__getitem__)


def table(name: str) -> dict[str, list[str] | str]:
    """Returns what a table binds events to.

    Args:
        name: String, the module that has it.

    Returns:
        A dictionary by the constants of the events: a list of functions, as
        they are named there, or a string, why there are none.
    """
    found: dict[str, list[str] | str] = {}
    value = _assigned(_lane_file(name))["TABLE"]
    for key, binding in zip(value.keys, value.values, strict=True):
        if key is None:
            found |= table(binding.value.id)
        elif isinstance(binding, ast.Call):
            found[key.attr] = ast.literal_eval(binding.args[0])
        else:
            found[key.attr] = [
                ast.literal_eval(each.args[0]) for each in binding.elts
            ]
    return found


def lane(module: str) -> dict[str, list[str] | str]:
    """Returns all tables that are used together with that of a lane."""
    found = {key: each for name in _SHARED for key, each in table(name).items()}
    # A program has one of these; some events are bound by each.
    for name in FRAMEWORKS:
        for key, each in table(name).items():
            found[key] = [*found.get(key, ()), *each]
    return found | table(module)


def subscriptions() -> list[Subscription]:
    """Returns all subscriptions of the package, in the order of its files."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        if "hooks.subscribe(" in text:
            relative = path.relative_to(PACKAGE).as_posix()
            found += subscriptions_in(relative, text)
    return found


def subscriptions_in(path: str, text: str) -> list[Subscription]:
    """Returns the subscriptions of one file.

    Args:
        path: String, its path within `keras_ring`.
        text: String, its text.
    """
    tree = ast.parse(text)
    constants = _constants(tree)
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "hooks.subscribe"
    ]
    found = []
    for call in sorted(calls, key=lambda each: each.lineno):
        given = {each.arg: each.value for each in call.keywords}
        purpose = given["purpose"]
        found.append(
            Subscription(
                path,
                ast.unparse(call.args[0]).removeprefix("events."),
                ast.unparse(given["ring"]).removeprefix("Ring."),
                constants[purpose.id]
                if isinstance(purpose, ast.Name)
                else ast.literal_eval(purpose),
            )
        )
    return found


def _constants(tree: ast.Module) -> dict[str, str]:
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }


def shown(what: str) -> str:
    """Returns the functions of a `Bound`, in Markdown."""
    module, colon, path = what.partition(":")
    if not colon or " " in module:
        return what
    classes, dot, names = path.rpartition(".")
    if module == "tensorflow":
        classes, dot = f"tf.{classes}".rstrip("."), "."
    elif module.partition(".")[0] not in ("keras", "tensorflow"):
        classes, dot = f"{module}.{classes}".rstrip("."), "."
    else:
        classes = classes.rpartition(".")[2]
    first, *others = names.split(", ")
    if not others:
        return f"`{classes}{dot}{first}`"
    return f"`{classes}`: " + ", ".join(
        f"`{each}`" for each in (first, *others)
    )


def markdown() -> str:
    """Returns the table of the events, in Markdown."""
    lanes = {title: lane(module) for title, module in LANES.items()}
    order = rings()
    by_event: dict[str, list[Subscription]] = {}
    for each in subscriptions():
        by_event.setdefault(each.event, []).append(each)
    lines = ["| when | around | so that |", "|---|---|---|"]
    for constant, (_, when) in events().items():
        bound = {
            title: _bound(found[constant]) for title, found in lanes.items()
        }
        texts = set(bound.values())
        functions = (
            texts.pop()
            if len(texts) == 1
            else "; ".join(f"{title}: {text}" for title, text in bound.items())
        )
        purposes = dict.fromkeys(
            f"{each.purpose} ({each.ring.lower()})"
            for each in sorted(
                by_event.get(constant, ()), key=lambda s: order.index(s.ring)
            )
        )
        lines.append(f"| {when} | {functions} | {'; '.join(purposes)} |")
    return "\n".join(lines) + "\n"


def _bound(binding: list[str] | str) -> str:
    if isinstance(binding, str):
        return f"none ({binding})"
    return "; ".join(dict.fromkeys(map(shown, binding)))
