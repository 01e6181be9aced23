"""Writes checkpoints one after the other, until it is killed."""

import sys
from pathlib import Path

import numpy as np

from keras_ring.keras.checkpoint import checkpoint_files

ARRAYS = 20


def contents(step):
    """Returns what the checkpoint of a step holds."""
    return {
        f"part-{i}.npy": np.full(4000 + 100 * i, step + i, "float32")
        for i in range(ARRAYS)
    }


def main():
    directory = Path(sys.argv[1])
    found = checkpoint_files.find(directory)
    step = found[0].step if found else 0
    print("ready", flush=True)
    while True:
        # Every third step is written again, as a run that goes back would.
        step += step % 3 != 0 or not found or found[0].attempt > 1
        newest = checkpoint_files.write(
            directory,
            step,
            {
                name: lambda file, array=array: np.save(file, array)
                for name, array in contents(step).items()
            },
            {"ranks": 1},
        )
        checkpoint_files.prune(directory, newest, keep=2)
        found = [newest]
        print(step, flush=True)


if __name__ == "__main__":
    main()
