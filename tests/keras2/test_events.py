"""Events in Keras 2."""

import json
import os
import subprocess
import sys

from tests.keras2.lane import ENVIRONMENT

PROGRAM = """
import json
import tensorflow as tf
tf.keras.Model
from keras_ring.keras.backends import which
from keras_ring.keras.lanes import events, hooks
assert which.is_keras2()
print(json.dumps({
    event.name: [
        hasattr(point.owner, point.name) for point in hooks.points(event)
    ]
    for event in vars(events).values()
    if isinstance(event, events.Event)
}))
"""


def test_what_events_are_bound_to_is_there():
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    # Keras 3 may be there, too, or not.
    del found["scaled_applied"]
    assert all(all(each) for each in found.values())
    absent = {name for name, each in found.items() if not each}
    assert absent == {
        "compiler_chosen",
        "seed_drawn",
        "applied",
        "scaled_state_applied",
        "batches_read",
        "step_made",
        "batches_made",
        "model_built",
        "step_run",
        "loss_computed",
        "optimizer_made",
    }
