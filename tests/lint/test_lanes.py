"""Lanes and backends have what their protocols describe, and nothing else.

A program has one lane and one backend, so nothing else would show what the
others lack.
"""

import ast
from pathlib import Path

import pytest

KERAS = Path(__file__).resolve().parents[2] / "keras_ring/keras"
# By protocol: its file, and by lane or backend the files with its members.
PROTOCOLS = {
    "Lane": ("lanes/lane", (("lanes/keras2",), ("lanes/keras3",))),
    "Steps": (
        "lanes/steps",
        (
            ("lanes/keras2_steps", "lanes/keras2_functions"),
            (
                "lanes/keras3_steps",
                "lanes/keras3_functions",
                "lanes/keras3_models",
            ),
        ),
    ),
    "Backend": (
        "backends/interface",
        (
            ("backends/tensorflow_backend",),
            ("backends/torch_backend",),
            ("backends/jax_backend",),
        ),
    ),
}
PAIRS = [
    (protocol, files)
    for protocol, (_, lanes) in PROTOCOLS.items()
    for files in lanes
]


def _tree(module: str) -> ast.Module:
    return ast.parse((KERAS / f"{module}.py").read_text())


def _described(protocol: str) -> dict[str, ast.FunctionDef]:
    """Returns the members of a protocol, by name."""
    (found,) = (
        node
        for node in _tree(PROTOCOLS[protocol][0]).body
        if isinstance(node, ast.ClassDef) and node.name == protocol
    )
    return {
        node.name: node
        for node in found.body
        if isinstance(node, ast.FunctionDef)
    }


def _public(module: str) -> dict[str, ast.stmt]:
    """Returns what a module defines, by name, and what its `__all__` adds."""
    found: dict[str, ast.stmt] = {}
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else None
            name = (target or node.targets[0]).id
            found[name] = node
    return {name: node for name, node in found.items() if name[0] != "_"}


def _members(files: tuple[str, ...]) -> dict[str, ast.stmt]:
    first, *others = files
    found = _public(first)
    exported = [
        ast.literal_eval(node.value)
        for node in _tree(first).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    ]
    for other in others:
        functions = _public(other)
        found |= {
            name: functions[name] for name in exported[0] if name in functions
        }
    return found


def _parameters(node: ast.FunctionDef, *, of_method: bool = False) -> str:
    arguments = node.args
    if of_method:
        arguments = ast.parse(ast.unparse(node)).body[0].args
        del arguments.args[0]
    return ast.unparse(arguments)


@pytest.mark.parametrize(("protocol", "files"), PAIRS)
def test_a_lane_has_what_is_described_and_no_more(protocol, files):
    described, members = _described(protocol), _members(files)
    assert len(described) > 10
    assert members.keys() == described.keys()


@pytest.mark.parametrize(("protocol", "files"), PAIRS)
def test_functions_have_the_parameters_that_are_described(protocol, files):
    described = _described(protocol)
    functions = {
        name: node
        for name, node in _members(files).items()
        if isinstance(node, ast.FunctionDef)
    }
    assert len(functions) > 5
    for name, node in functions.items():
        expected = _parameters(described[name], of_method=True)
        assert _parameters(node) == expected, name


@pytest.mark.parametrize(("protocol", "files"), PAIRS)
def test_a_lane_says_only_what_is_its_own(protocol, files):
    described = _described(protocol)
    for name, node in _members(files).items():
        if isinstance(node, ast.FunctionDef):
            own = ast.get_docstring(node)
            assert own is None or own != ast.get_docstring(described[name])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_describes_each_member(protocol):
    for name, node in _described(protocol).items():
        assert ast.get_docstring(node), name
