// DirectTensors, with any numbers in the other rank's table.
#include <cstring>
#include <memory>

#include "csrc/collective/shm/direct_tensors.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

using Table = DirectTensors::Table;

constexpr size_t kArenaBytes = 1 << 16;

const HostGroup& Group() {
  static const std::unique_ptr<HostGroup> group = [] {
    HostGroupLayout layout;
    std::vector<HostGroup::Member> members;
    for (int rank = 0; rank < 2; ++rank) {
      Result<SharedMemory> arena = SharedMemory::Create("arena", kArenaBytes);
      KR_CHECK(arena.ok());
      Result<HostGroup::Member> member = NewHostGroupMember(
          rank, layout,
          std::make_shared<SharedMemory>(std::move(arena).value()));
      KR_CHECK(member.ok());
      members.push_back(std::move(member).value());
    }
    return std::make_unique<HostGroup>(std::move(members), 0, layout);
  }();
  return *group;
}

void CheckPlace(int place, const char* at, size_t bytes) {
  const SharedMemory& arena = *Group().arena(place);
  KR_CHECK(at >= arena.data() && bytes <= arena.bytes() &&
           at + bytes <= arena.data() + arena.bytes());
}

// A step is a tensor of this rank, and the other's row for it.
void Run(Script script) {
  static Table tables[2];
  constexpr size_t kElementBytes = 4;
  DirectTensors direct(Group(), {&tables[0], &tables[1]});
  KR_CHECK(direct.possible());
  const char* arena = Group().arena(0)->data();
  std::vector<TensorSpan> tensors;
  std::string elsewhere(kArenaBytes, '\0');
  while (!script.AtEnd() && tensors.size() < Table::kCapacity) {
    const bool inside = script.Choice(2) == 0;
    const int64_t count = script.Number() % (kArenaBytes / kElementBytes + 1);
    const size_t offset =
        script.Number() % (kArenaBytes - count * kElementBytes + 1);
    const char* at = (inside ? arena : elsewhere.data()) + offset;
    tables[1].rows[tensors.size()] = {script.Number(), script.Number()};
    tensors.push_back({at, const_cast<char*>(at), count});
  }
  direct.Publish(tensors);
  const Status status = direct.Resolve(tensors, kElementBytes);
  if (!status.ok()) {
    KR_CHECK(status.code() == StatusCode::kInternal);
    return;
  }
  KR_CHECK(direct.direct().size() + direct.others().size() == tensors.size());
  for (size_t d = 0; d < direct.direct().size(); ++d) {
    const size_t bytes = direct.direct()[d].count * kElementBytes;
    for (int place = 0; place < 2; ++place) {
      CheckPlace(place, direct.input(place, d), bytes);
      CheckPlace(place, direct.output(place, d), bytes);
    }
  }
}

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  keras_ring::Run(keras_ring::Script(keras_ring::AsText(data, size)));
  return 0;
}
