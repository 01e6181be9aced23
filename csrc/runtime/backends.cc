#include "csrc/runtime/backends.h"

#include <cstddef>

#include "csrc/collective/hierarchy/hierarchy_backend.h"
#include "csrc/collective/mpi/mpi_backend.h"
#include "csrc/collective/net/ring_backend.h"
#include "csrc/collective/shm/shm_backend.h"

namespace keras_ring {
namespace {

constexpr char kAuto[] = "auto";

// The fastest come first. The ring is always available, so backends after it
// must be chosen by name.
const CollectiveBackend* const kBackends[] = {&kShmBackend, &kHierarchyBackend,
                                              &kRingBackend, &kMpiBackend};

bool MayBeChosen(const CollectiveBackend& backend,
                 const std::string& collective) {
  return collective == kAuto || collective == backend.name;
}

}  // namespace

std::string CollectiveChoices() {
  std::string text = kAuto;
  const size_t count = std::size(kBackends);
  for (size_t i = 0; i < count; ++i) {
    text += i + 1 < count ? ", " : " or ";
    text += kBackends[i]->name;
  }
  return text;
}

Status CheckCollectiveChoice(const std::string& collective) {
  for (const CollectiveBackend* backend : kBackends) {
    if (MayBeChosen(*backend, collective)) return OkStatus();
  }
  return InvalidArgumentError("KERAS_RING_COLLECTIVE is '" + collective +
                              "': expected " + CollectiveChoices());
}

bool MayReadArenas(const std::string& collective) {
  for (const CollectiveBackend* backend : kBackends) {
    if (backend->reads_arenas && MayBeChosen(*backend, collective)) return true;
  }
  return false;
}

Result<const CollectiveBackend*> ChooseBackend(const BackendDeps& deps) {
  const std::string& wanted = deps.options.collective;
  Status why_not = CheckCollectiveChoice(wanted);
  if (!why_not.ok()) return why_not;
  for (const CollectiveBackend* backend : kBackends) {
    if (!MayBeChosen(*backend, wanted)) continue;
    why_not = backend->available(deps);
    if (why_not.ok()) return backend;
  }
  // A job of one rank moves nothing: every backend does what its ring does.
  if (deps.options.size == 1) return &kRingBackend;
  return FailedPreconditionError("KERAS_RING_COLLECTIVE is '" + wanted +
                                 "', but " + why_not.message() +
                                 "; use 'auto'");
}

}  // namespace keras_ring
