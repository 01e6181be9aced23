"""The order of collectives in compiled programs: that of the program.

XLA orders calls by data dependencies alone, and may choose another order on
another rank, whose program need not be quite the same: it may have other
constants, or print more. Ranks that wait for different collectives would wait
for ever. So collectives have an *ordered effect* of JAX, by which each depends
on the one before it: in functions, loops and branches, and from one program to
the next. It also keeps those whose results are not used.

Effects are not public in JAX. tests/with_jax fails if their meaning changes.
"""

from __future__ import annotations

from typing import Any

from jax._src import core, effects
from jax.interpreters import mlir


class CollectiveEffect(effects.Effect):
    """The effect that all collectives have.

    JAX itself refuses programs for several devices that have it, with this
    text.
    """

    def __repr__(self) -> str:
        return (
            "collectives of keras_ring, which has one device for each rank: "
            "start as many ranks as there are devices"
        )


EFFECT = CollectiveEffect()
TOKEN = core.abstract_token
"""The type of the value by which one collective depends on another."""

for _allowed in (
    effects.lowerable_effects,
    effects.ordered_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
):
    _allowed.add_type(CollectiveEffect)


def token_before(context: mlir.LoweringRuleContext) -> Any:
    """Returns the value on which a collective must depend."""
    return context.tokens_in.get(EFFECT)


def set_token_after(context: mlir.LoweringRuleContext, token: Any) -> None:
    """Sets the value on which the next collective must depend."""
    tokens = mlir.TokenSet({EFFECT: token})
    context.set_tokens_out(context.tokens_in.update_tokens(tokens))
