"""The environments of Python in which tests run, beside that of all others.

Each has a framework of its own, its tests in a folder of their own, and a lane
of the gate. There keras_ring is the one installed, not that of the checkout.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Environment:
    """An environment with the tests that run in it.

    Args:
        folder: The folder of `tests`; the name of the lane and of the kind in
            `durations.json` as well.
        directory: The virtual environment, in the checkout.
        budget: Seconds of tests that the gate draws, of two workers together.
        is_only: Whether the tests run nowhere else. Those of Keras 2 also run
            where all others do, on `tf_keras`.
    """

    folder: str
    directory: str
    budget: float
    is_only: bool

    @property
    def python(self) -> str:
        """The interpreter, in the checkout."""
        return f"{self.directory}/bin/python"

    @property
    def options(self) -> tuple[str, ...]:
        """The options with which pytest finds the settings of the folder."""
        return (
            *("-c", f"tests/{self.folder}/pytest.ini"),
            *("--rootdir=.", "--confcutdir=."),
        )


ENVIRONMENTS = {
    each.folder: each
    for each in (
        Environment("keras2", ".venv-tf215", 200.0, is_only=False),
        Environment("pytorch", ".venv-torch", 120.0, is_only=True),
        Environment("with_jax", ".venv-jax", 80.0, is_only=True),
        Environment("with_mxnet", ".venv-mxnet", 30.0, is_only=True),
    )
}
