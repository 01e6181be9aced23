"""Translates arguments that only the functions of Horovod have.

A program that was written for Horovod runs with only its import changed. So
public functions also accept Horovod's arguments, by name and by position:

* arguments that have a meaning here are translated: `average`, `num_groups`,
  or a name or number at Horovod's position;
* arguments that have no effect here are accepted, with one warning;
* contradictory arguments are an error.

No other module knows these arguments. Our functions are decorated with
`takes_horovods(...)`, which has the orders of Horovod's positional arguments.
The types of the values select the order.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from keras_ring.core import notices, process_sets, reduce_ops

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Arguments without effect, and the reasons.
_WITHOUT_EFFECT = {
    "device_dense": "collectives run where their tensors are",
    "device_sparse": "collectives run where their tensors are",
    "device": "collectives run where their tensors are",
    "ignore_name_scope": "name scopes have no part in the names of collectives",
    "use_locking": "the optimizer has its own setting",
    "session": "objects are shared in a graph and session of their own",
    "inplace": "variables are always assigned",
    "priority": "collectives run in the order in which ranks are ready",
    "legacy_opts": "optimizers of each kind are known by their class",
}
_ONLY_THEIRS = {"average", "num_groups", "process_set_id", *_WITHOUT_EFFECT}
# Values of such arguments that need no warning.
_SAYS_NOTHING = (None, "", False, 0)

# Other names for arguments.
_SAME = {
    "value": "tensor",
    "values": "tensors",
    "gradtape": "tape",
    "filepath": "path",
}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_enumerated(value: object) -> bool:
    return isinstance(value, reduce_ops.ReduceOp)


def _is_process_set(value: object) -> bool:
    return isinstance(value, process_sets.ProcessSet)


# Functions that return whether a value fits an argument. Other arguments take
# any value.
_TYPES: dict[str, Callable[[Any], bool]] = {
    "average": lambda value: value is None or isinstance(value, bool),
    "backward_passes_per_step": _is_number,
    "compression": lambda value: hasattr(value, "compress"),
    "custom_objects": lambda value: value is None or isinstance(value, dict),
    "custom_optimizers": lambda v: v is None or isinstance(v, list | tuple),
    "gradient_predivide_factor": _is_number,
    "local_layers": lambda v: v is not None and not isinstance(v, str),
    "name": lambda value: value is None or isinstance(value, str),
    "num_groups": _is_number,
    "op": lambda value: value is None or _is_enumerated(value),
    "prescale_factor": lambda v: _is_number(v) and not _is_enumerated(v),
    "postscale_factor": lambda v: _is_number(v) and not _is_enumerated(v),
    "process_set": _is_process_set,
    "priority": _is_number,
    "process_set_id": _is_number,
    "sparse_as_dense": lambda value: isinstance(value, bool),
    **{
        device: lambda value: value is None or isinstance(value, str)
        for device in ("device_dense", "device_sparse", "device")
    },
    **{
        flag: lambda value: isinstance(value, bool)
        for flag in (
            "average_aggregated_gradients",
            "check",
            "ignore_name_scope",
            "inplace",
            "use_locking",
        )
    },
}


def takes_horovods(*orders: str) -> Callable[[_Function], _Function]:
    """Makes a function accept Horovod's arguments as well.

    Args:
        *orders: Strings, one for each order of positional arguments in Horovod:
            the names after the required ones, separated by spaces. Each of
            these arguments may also be given by name.

    Returns:
        A decorator, which keeps the signature of the function.
    """

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        shown = function.__qualname__.removesuffix(".__init__")
        of_ours = list(signature.parameters)
        required = [
            name
            for name, parameter in signature.parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        # Our optional arguments that may be given by position.
        ours = [
            name
            for name, parameter in signature.parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            and name not in required
        ]
        candidates = [ours, *(order.split() for order in orders)]
        theirs_only = {
            name
            for order in candidates
            for name in order
            if name not in of_ours and name in (*_ONLY_THEIRS, "name")
        }

        @functools.wraps(function)
        def translated(*args: Any, **kwargs: Any) -> Any:
            given = list(args[: len(required)])
            rest = args[len(required) :]
            for theirs, name in _SAME.items():
                if theirs in kwargs and name in of_ours:
                    kwargs[name] = kwargs.pop(theirs)
            if rest and (
                any(value is None for value in rest) or not _fits(rest, ours)
            ):
                order = next((o for o in candidates if _fits(rest, o)), None)
                # If no order fits, Python raises its own error below.
                if order is not None:
                    for name, value in zip(order, rest, strict=False):
                        if name in kwargs:
                            raise TypeError(
                                f"`{shown}` got two values for "
                                f"`{name}`: {value!r} and {kwargs[name]!r}"
                            )
                        kwargs[name] = value
                    rest = ()
            extras = {
                name: kwargs.pop(name)
                for name in list(kwargs)
                if name in theirs_only
            }
            if extras:
                _translate(shown, extras, kwargs, rest)
            if kwargs.get("op", 0) is None:
                del kwargs["op"]
            return function(*given, *rest, **kwargs)

        return translated  # type: ignore[return-value]

    return decorate


def _fits(values: Sequence[object], order: Sequence[str]) -> bool:
    return len(values) <= len(order) and all(
        _TYPES.get(name, lambda _: True)(value)
        for name, value in zip(order, values, strict=False)
    )


def _translate(
    function: str,
    extras: dict[str, Any],
    kwargs: dict[str, Any],
    positional: Sequence[object],
) -> None:
    """Translates Horovod's arguments into entries of `kwargs`."""
    for name, value in extras.items():
        if name == "average":
            if value is None:
                continue
            if kwargs.get("op") is not None or positional:
                raise ValueError(
                    "`average` and `op` say the same; give one of them. "
                    f"Received: average={value}, op={kwargs.get('op')!r} in "
                    f"`{function}`"
                )
            kwargs["op"] = reduce_ops.Average if value else reduce_ops.Sum
        elif name == "num_groups":
            if not value:
                continue
            if kwargs.get("groups") is not None:
                raise ValueError(
                    "`num_groups` and `groups` say the same; give one of "
                    f"them. Received: num_groups={value}, "
                    f"groups={kwargs['groups']!r} in `{function}`"
                )
            kwargs["groups"] = value
        elif name == "process_set_id":
            kwargs["process_set"] = process_sets.by_id(value)
        elif value not in _SAYS_NOTHING:
            _say_once(function, name, value)


@functools.cache
def _say_once(function: str, name: str, value: object) -> None:
    # The other argument is `name`, the prefix of the op names of Horovod's
    # optimizers.
    why = _WITHOUT_EFFECT.get(name, "gradients are named by their variables")
    notices.warn(f"`{name}={value!r}` of `{function}` has no effect: {why}.")
