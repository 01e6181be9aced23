"""Faults put into the product, one at a time: which tier finds them?

    python -m tests.tiers.mutations [--only WORD] [--tier check]

changes the checkout, runs a tier with what it builds and tests of the changed
language, and puts the file back. The checkout must have no changes. A part of
the gate that the change pulls runs, as it would for whoever made it.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutation:
    """One fault.

    Args:
        what: What is wrong then.
        file: Where.
        right: The text there, which occurs once.
        wrong: What it becomes.
    """

    what: str
    file: str
    right: str
    wrong: str


MUTATIONS = (
    Mutation(
        "bfloat16 is rounded half up, not to even",
        "csrc/base/float16.h",
        "const Bits rounded = bits + 0x7fff + odd;",
        "const Bits rounded = bits + 0x8000 + 0 * odd;",
    ),
    Mutation(
        "a sleeper is not called when a chunk is done",
        "csrc/collective/lockstep.cc",
        "done.store(chunk);\n  WakeOthers();",
        "done.store(chunk);",
    ),
    Mutation(
        "a slot is used again before all have read it",
        "csrc/collective/shm_collective.cc",
        "return chunk > 2 ? lockstep_",
        "return chunk > 9 ? lockstep_",
    ),
    Mutation(
        "ranks may disagree on the dtype",
        "csrc/control/request.cc",
        "return std::string(DTypeName(spec.dtype));\n       });",
        'return std::string("");\n       });',
    ),
    Mutation(
        "a bucket may be larger than the fusion threshold",
        "csrc/control/fusion_plan.cc",
        "if (more > threshold - bytes) continue;",
        "",
    ),
    Mutation(
        "an average is divided by the number of all ranks, joined ones too",
        "csrc/runtime/executor.h",
        "return size_ - static_cast<int>(command.joined.size());",
        "return size_;",
    ),
    Mutation(
        "a silent peer is never lost",
        "csrc/runtime/background_loop.cc",
        "if (now - channel_.LastHeard(peer) >= options_.heartbeat_timeout) {",
        "if (now - channel_.LastHeard(peer) >= Duration::max()) {",
    ),
    Mutation(
        "a failed collective is taken for the cause at once",
        "csrc/runtime/background_loop.cc",
        "suspicion_due_ = now + options_.suspicion_grace;",
        "suspicion_due_ = now;",
    ),
    Mutation(
        "whoever serves need not know the key",
        "csrc/comm/handshake.cc",
        "if (!ConstantTimeEqual(proof,\n"
        "                         AsBytes(ServerProof(key,",
        "if (false && !ConstantTimeEqual(proof,\n"
        "                         AsBytes(ServerProof(key,",
    ),
    Mutation(
        "a frame may be of any length",
        "csrc/comm/frame.cc",
        "if (length > limit_) {",
        "if (length > limit_ && limit_ == 0) {",
    ),
    Mutation(
        "the state of the job is read without its lock",
        "csrc/runtime/background_loop.cc",
        "Status BackgroundLoop::status() const {\n  MutexLock lock(mutex_);",
        "Status BackgroundLoop::status() const KR_NO_THREAD_SAFETY_ANALYSIS {",
    ),
    Mutation(
        "a cancelled step waits for its collectives",
        "tf_ops/collective_kernel.cc",
        "if (!self->Claim(&context, &done)) return;",
        "return;",
    ),
    Mutation(
        "gradients are not divided before the sum",
        "keras_ring/gradients.py",
        "    factor = settings.gradient_predivide_factor",
        "    factor = 1.0",
    ),
    Mutation(
        "a shard of a `PyDataset` has its neighbour's batches",
        "keras_ring/_sharded_batches.py",
        "position = basics.rank() + index * basics.size()",
        "position = index * basics.size()",
    ),
    Mutation(
        "the optimizer's state is not broadcast",
        "keras_ring/callbacks/broadcast.py",
        "variables.extend(own.optimizer_variables(optimizer))",
        "pass",
    ),
    Mutation(
        "metrics are the mean of the ranks' means",
        "keras_ring/callbacks/metric_average.py",
        '(("sum", ops.Sum), ("mean", ops.Average))',
        '(("sum", ops.Average), ("mean", ops.Average))',
    ),
    Mutation(
        "the launcher reports success when a rank has failed",
        "keras_ring/launcher/summary.py",
        "return 1 if first.slow_to_leave else first.exit_code",
        "return 0",
    ),
    Mutation(
        "a file of a checkpoint with other bytes is taken for whole",
        "keras_ring/_checkpoint_files.py",
        "    if found != checksum:",
        "    if not found:",
    ),
    Mutation(
        "the error that ends a rank can be read by all users",
        "keras_ring/launcher/error_file.py",
        "os.open(part, flags, 0o600)",
        "os.open(part, flags, 0o644)",
    ),
    Mutation(
        "rank 0's failure is raised on rank 0 alone",
        "keras_ring/_rank_zero.py",
        "        except CheckpointError as error:",
        "        except ArithmeticError as error:",
    ),
)

_CPP = ("make", "test-cpp")
_QUICK = ("make", "test-quick")
_GATE = ("make", "test-python")
# What a tier runs, of what the change can have an effect on.
_STEPS = {
    ("check", True): (_CPP, _QUICK),
    ("check", False): (_QUICK,),
    ("gate", True): (_GATE, ("make", "test-asan"), ("make", "test-tsan")),
    ("gate", False): (_GATE,),
    ("long", True): (("make", "test-python", "TIER=long"),),
    ("long", False): (("make", "test-python", "TIER=long"),),
}


def caught_by(mutation: Mutation, tiers: list[str]) -> tuple[str, str]:
    """Returns the tier that found a fault, or "", and by what."""
    path = ROOT / mutation.file
    text = path.read_text()
    if text.count(mutation.right) != 1:
        raise ValueError(f"{mutation.file} has {mutation.right!r} not once")
    environment = {**os.environ, "PYTEST_ADDOPTS": "-x"}
    native = not mutation.file.endswith(".py")
    log = ROOT / "build" / "mutation.log"
    try:
        path.write_text(text.replace(mutation.right, mutation.wrong))
        for tier in tiers:
            for step in _STEPS[tier, native]:
                with log.open("w") as output:
                    done = subprocess.run(
                        step,
                        cwd=ROOT,
                        env=environment,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                if done.returncode != 0:
                    return tier, _first_failure(log)
    finally:
        path.write_text(text)
    return "", ""


def _first_failure(log: Path) -> str:
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("FAILED ") or "***Failed" in line:
            return " ".join(line.split())[:120]
        if "***Timeout" in line or "aborted***" in line or " error: " in line:
            return " ".join(line.split())[:120]
    return "see build/mutation.log"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="of these, by file or text")
    parser.add_argument("--tier", action="append", choices=("check", "gate"))
    arguments = parser.parse_args()
    changed = subprocess.run(
        ["git", "status", "--porcelain"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    if changed:
        print(f"There are changes, which could be lost:\n{changed}")
        return 2
    missed = 0
    for mutation in MUTATIONS:
        if arguments.only not in f"{mutation.file} {mutation.what}":
            continue
        began = time.monotonic()
        tier, what = caught_by(mutation, arguments.tier or ["check", "gate"])
        missed += not tier
        seconds = time.monotonic() - began
        print(
            f"{mutation.what} ({mutation.file}): {tier or 'missed'},"
            f" {seconds:.0f} s, {what}",
            flush=True,
        )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
