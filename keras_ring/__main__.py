"""The `keras-ring` command as `python -m keras_ring`."""

import sys

from keras_ring.launch.cli.cli import main

if __name__ == "__main__":
    sys.exit(main())
