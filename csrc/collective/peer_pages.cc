#include "csrc/collective/peer_pages.h"

#include <sys/mman.h>

#include <fstream>
#include <string>

namespace keras_ring {
namespace {

// Linux maps the pages around the one that is read, or a huge one if the memory
// consists of such.
size_t GranuleBytes() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string text;
  std::getline(file, text);
  // "advise" does not matter: nobody advises it.
  for (const char* huge : {"[always]", "[within_size]", "[force]"}) {
    if (text.find(huge) != std::string::npos) return 2 << 20;
  }
  return 64 << 10;
}

}  // namespace

PeerPages::PeerPages(const HostGroup& group, size_t limit, Counters& counters)
    : group_(group),
      limit_(limit),
      counters_(counters),
      granule_(GranuleBytes()),
      granules_(group.size()) {}

void PeerPages::NoteRead(int place, const char* begin, size_t bytes) {
  if (bytes == 0) return;
  const uint64_t offset = begin - group_.arena(place)->data();
  const uint64_t last = (offset + bytes - 1) / granule_;
  for (uint64_t granule = offset / granule_; granule <= last; ++granule) {
    mapped_ += granules_[place].insert(granule).second;
  }
}

void PeerPages::UnmapIfTooMany() {
  if (bytes() <= limit_) return;
  for (int place = 0; place < group_.size(); ++place) {
    if (granules_[place].empty()) continue;
    granules_[place].clear();
    // Of a shared mapping this forgets where the pages are, not what they hold.
    // Where it fails they stay mapped, which is only too much memory.
    const SharedMemory& arena = *group_.arena(place);
    (void)madvise(arena.data(), arena.bytes(), MADV_DONTNEED);
  }
  counters_.peer_bytes_unmapped += bytes();
  mapped_ = 0;
}

}  // namespace keras_ring
