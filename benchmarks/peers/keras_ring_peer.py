"""keras_ring, or with PEER_API=none the floor below it."""

import os

import peer_main

from keras_ring.bench import ours

if __name__ == "__main__":
    peer_main.main(
        ours.SYSTEMS[os.environ.get("PEER_API", "keras_ring")],
        find_link=lambda system: system.link(),
    )
