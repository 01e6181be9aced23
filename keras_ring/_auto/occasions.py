"""When ranks compare what they have, of steps that are not in epochs."""

# After steps 1, 2, 4 and so on, and then each time after so many.
_EVERY = 1024


def is_one(number: int) -> bool:
    """Whether ranks compare after a step.

    Args:
        number: Integer, how many there were.
    """
    return number & (number - 1) == 0 or number % _EVERY == 0
