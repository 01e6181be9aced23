"""Clusters that are described in `TF_CONFIG`, as for `tf.distribute`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from keras_ring.core.engines.process_identity import Engine, ProcessIdentity

# In the order of the ranks.
_TRAINING = ("chief", "master", "worker")


@dataclass(frozen=True)
class TfConfigEngine(Engine):
    """Any engine that sets `TF_CONFIG`."""

    name: str = "the one that has set TF_CONFIG"

    def identify(
        self, environment: Mapping[str, str]
    ) -> ProcessIdentity | None:
        """Returns the identity among chief and workers, which alone train."""
        text = environment.get("TF_CONFIG", "")
        try:
            config = json.loads(text)
            cluster = config["cluster"]
            hosts = {kind: list(cluster.get(kind, ())) for kind in _TRAINING}
            task = config.get("task", {})
            kind, index = task.get("type"), int(task.get("index", 0))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        training = [host for kind in _TRAINING for host in hosts[kind]]
        before = len(training) - len(hosts["worker"])
        rank = index + (before if kind == "worker" else 0)
        return ProcessIdentity(
            engine=self.name,
            size=len(training),
            rank=rank if kind in hosts else None,
            variables={"TF_CONFIG": text},
            address=str(training[0]) if training else None,
        )
