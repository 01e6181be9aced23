#include "csrc/runtime/backends.h"

#include <cstddef>
#include <iterator>
#include <vector>

#include "csrc/collective/cuda/cuda_backends.h"
#include "csrc/collective/hierarchy/hierarchy_backend.h"
#include "csrc/collective/mpi/mpi_backend.h"
#include "csrc/collective/net/ring_backend.h"
#include "csrc/collective/shm/shm_backend.h"

namespace keras_ring {
namespace {

constexpr char kAuto[] = "auto";

// For each kind of device the fastest come first. The ring, and staging, are
// always available, so backends after them must be chosen by name: NCCL has
// never run on several devices.
const CollectiveBackend* const kBackends[] = {
    &kShmBackend,     &kHierarchyBackend, &kRingBackend, &kMpiBackend,
    &kCudaIpcBackend, &kStagedBackend,    &kNcclBackend};

// How the choice for a kind of device is made.
struct Choice {
  const char* variable;
  std::string Options::*wanted;
  // A job of one rank moves nothing: every backend does what this one does.
  const CollectiveBackend* alone;
};
const Choice& ChoiceFor(DeviceKind kind) {
  static const Choice kChoices[] = {
      {"KERAS_RING_COLLECTIVE", &Options::collective, &kRingBackend},
      {"KERAS_RING_GPU_COLLECTIVE", &Options::gpu_collective, &kCudaIpcBackend},
  };
  static_assert(std::size(kChoices) == kNumDeviceKinds);
  return kChoices[static_cast<int>(kind)];
}

std::vector<const CollectiveBackend*> BackendsFor(DeviceKind kind) {
  std::vector<const CollectiveBackend*> found;
  for (const CollectiveBackend* backend : kBackends) {
    if (backend->device == kind) found.push_back(backend);
  }
  return found;
}

bool MayBeChosen(const CollectiveBackend& backend,
                 const std::string& collective) {
  return collective == kAuto || collective == backend.name;
}

Status CheckChoice(const Options& options, DeviceKind kind) {
  const Choice& choice = ChoiceFor(kind);
  const std::string& wanted = options.*choice.wanted;
  for (const CollectiveBackend* backend : BackendsFor(kind)) {
    if (MayBeChosen(*backend, wanted)) return OkStatus();
  }
  return InvalidArgumentError(std::string(choice.variable) + " is '" + wanted +
                              "': expected " + CollectiveChoices(kind));
}

}  // namespace

std::string CollectiveChoices(DeviceKind kind) {
  std::string text = kAuto;
  const auto backends = BackendsFor(kind);
  for (size_t i = 0; i < backends.size(); ++i) {
    text += i + 1 < backends.size() ? ", " : " or ";
    text += backends[i]->name;
  }
  return text;
}

Status CheckCollectiveChoices(const Options& options) {
  for (int kind = 0; kind < kNumDeviceKinds; ++kind) {
    KR_RETURN_IF_ERROR(CheckChoice(options, static_cast<DeviceKind>(kind)));
  }
  return OkStatus();
}

bool MayReadArenas(const std::string& collective) {
  for (const CollectiveBackend* backend : kBackends) {
    if (backend->reads_arenas && MayBeChosen(*backend, collective)) return true;
  }
  return false;
}

Result<const CollectiveBackend*> ChooseBackend(const BackendDeps& deps,
                                               DeviceKind kind) {
  const Choice& choice = ChoiceFor(kind);
  const std::string& wanted = deps.options.*choice.wanted;
  Status why_not = CheckChoice(deps.options, kind);
  if (!why_not.ok()) return why_not;
  for (const CollectiveBackend* backend : BackendsFor(kind)) {
    if (!MayBeChosen(*backend, wanted)) continue;
    why_not = backend->available(deps);
    if (why_not.ok()) return backend;
  }
  if (deps.options.size == 1) return choice.alone;
  return FailedPreconditionError(std::string(choice.variable) + " is '" +
                                 wanted + "', but " + why_not.message() +
                                 "; use 'auto'");
}

}  // namespace keras_ring
