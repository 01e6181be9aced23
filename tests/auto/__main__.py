"""Prints what scripts come to on ranks: `python -m tests.auto [NAMES]`."""

import argparse
import collections
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.auto import compare, starting
from tests.auto.expected import SCRIPTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.auto")
    parser.add_argument("names", nargs="*", help="scripts; all of them if none")
    parser.add_argument("-np", type=int, nargs="+", default=[2, 3])
    parser.add_argument(
        "--twice",
        action="store_true",
        help="compare one process with one process, instead of with ranks",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        help="where all records stay, and one process need not run again",
    )
    parser.add_argument(
        "--bound",
        type=float,
        default=0.0,
        help="how far apart results may be at least, relatively: Keras computes"
        " in float32 on PyTorch, whatever it is told",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - SCRIPTS.keys():
        parser.error(f"no script {sorted(unknown)}")
    sizes = [None] if arguments.twice else arguments.np
    counts: collections.Counter[str] = collections.Counter()
    wrong = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.keep or Path(temporary)).resolve()
        for name in arguments.names or SCRIPTS:
            script = SCRIPTS[name]
            if not script.runs:
                print(f"{name:24} needs {script.needs}")
                continue
            path = starting.SCRIPTS / f"{name}.py"
            # A script that draws its own numbers is judged by no digit.
            wide = not script.random
            one = starting.start_once(path, folder / name / "one", wide)
            for size in sizes:
                where = folder / name / str(size or "again")
                shutil.rmtree(where, ignore_errors=True)
                many = starting.start(path, where, size, float64=wide)
                try:
                    verdict = compare.judge(
                        one,
                        many,
                        script.random,
                        max(script.weights_bound, arguments.bound),
                        max(script.values_bound, arguments.bound),
                    )
                except ValueError as error:
                    verdict = compare.Verdict("broken", str(error))
                fits = script.fits(verdict.word, verdict.reason)
                wrong += not fits
                counts[verdict.word] += 1
                print(
                    f"{name:24} {size or '1+1':>3} {verdict.word:10}"
                    f"{' ' if fits else '!'}"
                    f" {'shared' if verdict.shared else 'alone':6}"
                    f" {verdict.apart:8.1e}"
                    f" {one.seconds:5.1f} s {many.seconds:5.1f} s"
                    f"  {' '.join(verdict.reason.split())[:200]}",
                    flush=True,
                )
                if verdict.told:
                    print(f"{'':30}(all ranks write {verdict.told}; a warning)")
                if verdict.printed:
                    print(f"{'':30}({verdict.printed})", flush=True)
    print(
        f"{sum(counts.values())} runs in {time.monotonic() - began:.0f} s: "
        + ", ".join(f"{n} {word}" for word, n in sorted(counts.items()))
        + f"; {wrong} not as expected (!)"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
