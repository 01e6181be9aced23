"""Several calls in one job: starting ranks takes longer than most of them."""

import importlib
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from tests.harness.run_ranks import run_ranks


def run_calls(
    module: ModuleType,
    num_ranks: int,
    calls: Iterable[tuple[Any, ...]],
    **options: Any,
) -> Callable[..., list[Any]]:
    """Makes calls in one job, one after the other.

    Before each of them `module.before_each_call()` is called, if there is one.

    Args:
        module: Where the functions are, or in the modules of its
            `MORE_CALLS`, if it has that.
        num_ranks: Integer.
        calls: (name of a function, its arguments).
        **options: Of `run_ranks`.

    Returns:
        A function of a call, as `result("train", 3)`, that returns what each
        rank returned.
    """
    result = run_ranks(
        make_calls,
        num_ranks,
        args=(module.__name__, list(calls)),
        **options,
    )
    values = result.values

    def of_call(name: str, *arguments: Any) -> list[Any]:
        return [value[_text(name, arguments)] for value in values]

    return of_call


def make_calls(
    module_name: str, calls: Sequence[tuple[Any, ...]]
) -> dict[str, Any]:
    """Makes the calls in a rank; returns what each returned, by its text."""
    module = importlib.import_module(module_name)
    places = [module, *getattr(module, "MORE_CALLS", ())]
    before = getattr(module, "before_each_call", lambda: None)
    results = {}
    for name, *arguments in calls:
        text = _text(name, arguments)
        # What a rank that hangs was doing.
        print(text, flush=True)
        before()
        function = next(
            getattr(place, name) for place in places if hasattr(place, name)
        )
        results[text] = function(*arguments)
    return results


def only(values: Sequence[Any]) -> Any:
    """Returns what all ranks returned alike."""
    assert all(value == values[0] for value in values), values
    return values[0]


def _text(name: str, arguments: Sequence[Any]) -> str:
    return f"{name}{tuple(arguments)}"
