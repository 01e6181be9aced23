"""The steps after which ranks compare, if there are no epochs."""

# Ranks compare after steps 1, 2, 4 and so on, and after multiples of this.
_EVERY = 1024


def is_one(number: int) -> bool:
    """Returns whether ranks compare after a step.

    Args:
        number: Integer, the number of the step, from 1 on.
    """
    return number & (number - 1) == 0 or number % _EVERY == 0
