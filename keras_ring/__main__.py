"""`python -m keras_ring` is the `keras-ring` command."""

import sys

from keras_ring.cli.cli import main

if __name__ == "__main__":
    sys.exit(main())
