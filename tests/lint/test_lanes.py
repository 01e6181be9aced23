"""Both modules of what differs between Keras 2 and 3 have the same functions.

The program has one of them, so nothing else would show what the other lacks.
"""

import ast
from pathlib import Path

LANES = Path(__file__).resolve().parents[2] / "keras_ring/keras/lanes"


def _functions(module: str) -> dict[str, str]:
    """Returns the public functions of a lane, with their parameters."""
    tree = ast.parse((LANES / f"{module}.py").read_text())
    return {
        node.name: ast.unparse(node.args)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


def test_no_lane_has_a_function_of_its_own():
    own = _functions("keras2")
    assert len(own) > 20
    assert own == _functions("keras3")
