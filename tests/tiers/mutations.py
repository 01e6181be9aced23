"""Faults put into the product, one at a time: which tier finds them?

    python -m tests.tiers.mutations [--only WORD]

changes the checkout, builds it, runs the tests that are named with the fault,
as the quick tier runs them and then as the gate does, and puts the file back.
A fault that they miss is missed, even if another test would find it. The
checkout must have no changes.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LOG = ROOT / "build" / "mutation.log"


@dataclass(frozen=True)
class Mutation:
    """One fault.

    Args:
        what: What is wrong then.
        file: Where.
        right: The text there, which occurs once.
        wrong: What it becomes.
        tests: Where it should be found: a name of `ctest`, or files and tests
            of `pytest`.
    """

    what: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


MUTATIONS = (
    Mutation(
        "bfloat16 is rounded half up, not to even",
        "csrc/base/float16.h",
        "const Bits rounded = bits + 0x7fff + odd;",
        "const Bits rounded = bits + 0x8000 + 0 * odd;",
        tests=("float16_test",),
    ),
    Mutation(
        "a sleeper is not called when a chunk is done",
        "csrc/collective/shm/chunk_barrier.cc",
        "done.store(chunk);\n  WakeOthers();",
        "done.store(chunk);",
        tests=("chunk_barrier_test",),
    ),
    Mutation(
        "a slot is used again before all have read it",
        "csrc/collective/shm/slot_streams.h",
        "return chunk > depth ? barrier",
        "return chunk > depth + 7 ? barrier",
        tests=(
            "chunk_barrier_test",
            "shm_collective_test",
        ),
    ),
    Mutation(
        "ranks may disagree on the dtype",
        "csrc/control/request.cc",
        "return std::string(DTypeName(spec.dtype));\n       });",
        "return std::string(DTypeName(spec.dtype)).substr(0, 0);\n       });",
        tests=(
            "request_test",
            "controller_test",
        ),
    ),
    Mutation(
        "a bucket may be larger than the fusion threshold",
        "csrc/control/fusion_plan.cc",
        "if (more > threshold - bytes) continue;",
        "",
        tests=("fusion_plan_test",),
    ),
    Mutation(
        "an average is divided by the number of all ranks, joined ones too",
        "csrc/runtime/executor.h",
        "return size_ - static_cast<int>(command.joined.size());",
        "return size_ - 0 * static_cast<int>(command.joined.size());",
        tests=(
            "executor_test",
            "tests/multiprocess/collectives/test_join.py",
        ),
    ),
    Mutation(
        "a silent peer is never lost",
        "csrc/runtime/peer_contacts.cc",
        "now - SilentSince(peer, contact) >= timeout_) {",
        "now - SilentSince(peer, contact) >= Duration::max()) {",
        tests=(
            "runtime_test",
            "join_placeholders_test",
            "tests/multiprocess/failures/test_failure.py",
        ),
    ),
    Mutation(
        "a failed collective is taken for the cause at once",
        "csrc/runtime/background_loop.cc",
        "suspicion_due_ = now + options_.suspicion_grace;",
        "suspicion_due_ = now;",
        tests=(
            "runtime_test",
            "join_placeholders_test",
            "tests/multiprocess/failures/test_failure.py",
        ),
    ),
    Mutation(
        "whoever serves need not know the key",
        "csrc/comm/net/handshake.cc",
        "if (!ConstantTimeEqual(proof,\n"
        "                         AsBytes(ServerProof(key,",
        "if (false && !ConstantTimeEqual(proof,\n"
        "                         AsBytes(ServerProof(key,",
        tests=("handshake_test",),
    ),
    Mutation(
        "a frame may be of any length",
        "csrc/comm/net/frame.cc",
        "if (length > limit_) {",
        "if (length > limit_ && limit_ == 0) {",
        tests=("frame_test",),
    ),
    Mutation(
        "the state of the job is read without its lock",
        "csrc/runtime/background_loop.cc",
        "Status BackgroundLoop::status() const {\n  MutexLock lock(mutex_);",
        "Status BackgroundLoop::status() const KR_NO_THREAD_SAFETY_ANALYSIS {",
        tests=("runtime_test",),
    ),
    Mutation(
        "a cancelled step waits for its collectives",
        "tf_ops/collective_kernel.cc",
        "if (!self->Claim(&context, &done)) return;",
        "return;",
        tests=("tests/multiprocess/collectives/test_graph.py",),
    ),
    Mutation(
        "gradients are not divided before the sum",
        "keras_ring/keras/optimizer/reduction.py",
        "    factor = settings.gradient_predivide_factor",
        "    factor = 1.0",
        tests=(
            "tests/keras/test_optimizer.py",
            "tests/keras/test_tape.py",
        ),
    ),
    Mutation(
        "a shard of a `PyDataset` has its neighbour's batches",
        "keras_ring/keras/data/sharded_batches.py",
        "position = topology.rank() + index * topology.size()",
        "position = index * topology.size()",
        tests=("tests/unit/test_sharded_batches.py",),
    ),
    Mutation(
        "the optimizer's state is not broadcast",
        "keras_ring/keras/model/model_broadcast.py",
        "variables.extend(compat.optimizer_variables(optimizer))",
        "pass",
        tests=("tests/keras/test_callbacks.py",),
    ),
    Mutation(
        "metrics are the mean of the ranks' means",
        "keras_ring/keras/model/metric_state.py",
        '("sum", reduce_ops.Sum)',
        '("sum", reduce_ops.Average)',
        tests=("tests/keras/test_callbacks.py",),
    ),
    Mutation(
        "the launcher reports success when a rank has failed",
        "keras_ring/launch/summary.py",
        "return 1 if first.slow_to_leave else first.exit_code",
        "return 0",
        tests=(
            "tests/unit/test_launcher_summary.py",
            "tests/launcher/test_run.py",
        ),
    ),
    Mutation(
        "a file of a checkpoint with other bytes is taken for whole",
        "keras_ring/keras/checkpoint/checkpoint_files.py",
        "    if found != checksum:",
        "    if not found:",
        tests=("tests/unit/test_checkpoint_files.py",),
    ),
    Mutation(
        "the error that ends a rank can be read by all users",
        "keras_ring/protocol/error_file.py",
        "os.open(part, flags, 0o600)",
        "os.open(part, flags, 0o644)",
        tests=("tests/unit/test_launcher_error_file.py",),
    ),
    Mutation(
        "rank 0's failure is raised on rank 0 alone",
        "keras_ring/core/rank_zero.py",
        "    broadcast_in(generation, _that_pickles(outcome), 0, name)",
        "    broadcast_in(generation, Outcome(), 0, name)",
        tests=(
            "tests/keras/test_saving_on_ranks.py",
            "tests/multiprocess/core",
        ),
    ),
    Mutation(
        "a device reads the arrays of others before they are written",
        "csrc/collective/cuda/ipc_call.cc",
        "return lane_.AwaitWritten();",
        "return OkStatus();",
        tests=("cuda_collectives_test", "device_runtime_test"),
    ),
    Mutation(
        "a device is done before the others have written its results",
        "csrc/collective/cuda/ipc_call.cc",
        "  KR_RETURN_IF_ERROR(lane_.AwaitReduced());\n  return Copy(out_);",
        "  return Copy(out_);",
        tests=("cuda_collectives_test", "device_runtime_test"),
    ),
    Mutation(
        "a staging area is used again before all devices have read it",
        "csrc/collective/cuda/ipc_lane.cc",
        "return AwaitReduced();\n}",
        "return OkStatus();\n}",
        tests=("cuda_ipc_processes_test",),
    ),
    Mutation(
        "a rank says that its arrays are written, and has recorded nothing",
        "csrc/collective/cuda/ipc_call.cc",
        "  KR_RETURN_IF_ERROR(lane_.RecordWritten());\n",
        "",
        tests=("cuda_collectives_test", "device_runtime_test"),
    ),
    Mutation(
        "two devices reduce the same part",
        "csrc/collective/cuda/ipc_call.cc",
        "std::min((rank + 1) * part, count)};",
        "std::min((rank + 2) * part, count)};",
        tests=("cuda_collectives_test",),
    ),
    Mutation(
        "a rank shows the arrays of a call where others read those before it",
        "csrc/collective/cuda/ipc_call.h",
        "->arrays[parts_.number % 2];",
        "->arrays[0];",
        tests=("cuda_collectives_test",),
    ),
    Mutation(
        "a device does not wait for the events of a call",
        "csrc/collective/cuda/device_calls.cc",
        "for (const auto& event : call.ready) {",
        "for (const auto& event : call.ordinal < 0 ? call.ready : Events()) {",
        tests=("device_runtime_test",),
    ),
    Mutation(
        "the event of a caller is recorded on the default stream",
        "csrc/cuda/cuda_access.cc",
        "event->Record(static_cast<Stream>(stream))",
        "event->Record(static_cast<Stream>(stream) == nullptr ? nullptr : "
        "nullptr)",
        tests=("device_runtime_test",),
    ),
    Mutation(
        "a call on a device is done before its event is reached",
        "csrc/cuda/finalizer.cc",
        "if (*reached) return aborted_;",
        "if (*reached || true) return aborted_;",
        tests=("cuda_collectives_test", "device_runtime_test"),
    ),
    Mutation(
        "an event that is never reached is waited for without a limit",
        "csrc/cuda/finalizer.cc",
        "now - aborted_at_ >= grace_",
        "now - aborted_at_ >= Duration::max()",
        tests=("cuda_ipc_processes_test",),
    ),
    Mutation(
        "tensors are reduced on the host before they have been copied there",
        "csrc/collective/cuda/staged_collective.cc",
        "      next += RoundUp(bytes, kAlignment);\n    }\n"
        "    KR_RETURN_IF_ERROR(Synchronize());\n",
        "      next += RoundUp(bytes, kAlignment);\n    }\n",
        tests=("cuda_collectives_test",),
    ),
    Mutation(
        "an event of a device belongs to the pool while a call waits for it",
        "csrc/cuda/cuda_access.cc",
        "      event = std::move(pool->free.back());\n"
        "      pool->free.pop_back();\n",
        "      event = pool->free.back();\n",
        tests=("device_runtime_test",),
    ),
    Mutation(
        "memory that is allocated late is written before the stream is done",
        "csrc/runtime/executor.cc",
        "if (entry.stream.has_value() && entry.outputs.empty()) {",
        "if (entry.stream.has_value() && entry.inputs.empty()) {",
        tests=("executor_test", "device_runtime_test"),
    ),
    Mutation(
        "an op does not say on which stream its tensors are written",
        "tf_ops/collective_kernel.cc",
        "operation.stream = stream_;",
        "operation.stream = nullptr;",
        tests=("tests/gpu/test_tensorflow.py",),
    ),
    Mutation(
        "a cancelled op of a device gets its result in host memory",
        "tf_ops/collective_kernel.cc",
        "held_.emplace_back(allocator, dtype, shape);",
        "held_.emplace_back(dtype, shape);",
        tests=("tests/gpu/test_tensorflow.py",),
    ),
)

_PYTHON = sys.executable
_NO_TESTS = 5  # as pytest says it


def caught_by(mutation: Mutation) -> tuple[str, str]:
    """Returns the tier that found a fault, or "", and by what."""
    path = ROOT / mutation.file
    text = path.read_text()
    if text.count(mutation.right) != 1:
        raise ValueError(f"{mutation.file} has {mutation.right!r} not once")
    try:
        path.write_text(text.replace(mutation.right, mutation.wrong))
        for tier in ("check", "gate"):
            for step in _steps(mutation, tier):
                if _run(step) not in (0, _NO_TESTS):
                    return tier, _first_failure()
    finally:
        path.write_text(text)
    return "", ""


def _steps(mutation: Mutation, tier: str) -> list[list[str]]:
    """Returns the commands of a tier, the quick ones first."""
    of_cpp = [name for name in mutation.tests if name.endswith("_test")]
    of_python = [name for name in mutation.tests if name not in of_cpp]
    names = f"^({'|'.join(of_cpp)})"
    flavours = ["plain"] if tier == "check" else ["asan", "tsan"]
    steps = []
    if of_cpp:
        steps += [["sh", "tools/test_cpp.sh", each, names] for each in flavours]
    if of_python:
        if not mutation.file.endswith(".py"):
            steps.append([_PYTHON, "setup.py", "build_ext", "--inplace"])
        option = "--tier=" + ("quick" if tier == "check" else tier)
        steps.append([_PYTHON, "-m", "pytest", option, "-x", *of_python])
    return steps


def _run(step: list[str]) -> int:
    bin_directory = str(Path(_PYTHON).parent)
    path = f"{bin_directory}{os.pathsep}{os.environ['PATH']}"
    with _LOG.open("w") as output:
        return subprocess.run(
            step,
            cwd=ROOT,
            env={**os.environ, "PATH": path},
            stdout=output,
            stderr=subprocess.STDOUT,
        ).returncode


def _first_failure() -> str:
    for line in _LOG.read_text(errors="replace").splitlines():
        if line.startswith("FAILED ") or "***Failed" in line:
            return " ".join(line.split())[:120]
        if "***Timeout" in line or "aborted***" in line or " error: " in line:
            return " ".join(line.split())[:120]
    return "see build/mutation.log"


def _stop(number: int, frame: object) -> None:
    del frame
    raise SystemExit(128 + number)


def main() -> int:
    # Whoever ends it gets the file back.
    signal.signal(signal.SIGTERM, _stop)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="of these, by file or text")
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
        tier, what = caught_by(mutation)
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
