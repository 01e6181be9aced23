"""keras_ring, or with PEER_API=none the floor below it."""

import os

import peer_main

from keras_ring.bench import on_tensorflow

if __name__ == "__main__":
    peer_main.main(
        on_tensorflow.SYSTEMS[os.environ.get("PEER_API", "keras_ring")],
        find_link=lambda system: system.link(),
    )
