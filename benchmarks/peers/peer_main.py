"""What every peer's script does: measures the cases of a file, in order.

    python benchmarks/peers/X_peer.py TASK RESULTS

TASK is a JSON object with `budget` and `cases`; rank 0 adds a line to RESULTS
for each case as soon as it is measured, so that what was done before a deadline
is not lost. Peers differ in how they start, so nothing but files is common.
"""

import json
import sys
from pathlib import Path

from keras_ring.bench.case import Case
from keras_ring.bench.host_link import HostLink
from keras_ring.bench.measure import Budget, Meter


def results_path():
    """Returns where the results go; its folder is this run's own."""
    return Path(sys.argv[2])


def main(make_system, find_link=lambda system: HostLink()):
    """Measures all cases.

    Args:
        make_system: Called without arguments; joins the job and returns a
            `keras_ring.bench.system.System`.
        find_link: Called with it; says what is between its hosts. Defaults to
            one host.
    """
    task = json.loads(Path(sys.argv[1]).read_text())
    system = make_system()
    meter = Meter(system, Budget(**task["budget"]), find_link(system))
    for fields in task["cases"]:
        record = meter.measure(Case.from_dict(fields))
        if system.rank == 0:
            with results_path().open("a") as results:
                print(json.dumps(record.to_dict()), file=results)
    system.barrier()
