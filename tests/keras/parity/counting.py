"""How many gradients were reduced, with any framework."""

from tests.keras.parity.models import BACKEND

if BACKEND == "tensorflow":
    from tests.keras2.counting import Counted
else:

    class Counted:
        """Counts none: gradients are reduced in groups."""

        collectives = 0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass


__all__ = ["Counted"]
