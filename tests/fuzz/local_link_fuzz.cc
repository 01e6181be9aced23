// LocalLink and ShmStream, while another rank of the host writes anything into
// the pages that both map.
#include <cstring>
#include <memory>
#include <vector>

#include "csrc/comm/transport/local_link.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

constexpr int kSize = 3;
constexpr size_t kLimit = 1000;

// The other is 1; of 2, nothing is touched.
const HostGroup& Group() {
  static const std::unique_ptr<HostGroup> group = [] {
    HostGroupLayout layout;
    layout.control_bytes = ControlPage::BytesFor(kSize);
    std::vector<HostGroup::Member> members;
    for (int rank = 0; rank < kSize; ++rank) {
      Result<HostGroup::Member> member = NewHostGroupMember(rank, layout);
      KR_CHECK(member.ok());
      members.push_back(std::move(member).value());
    }
    return std::make_unique<HostGroup>(std::move(members), 0, layout);
  }();
  return *group;
}

// Where the peer can write: both directions.
ShmStream& StreamOf(int place) {
  return ControlPage::Of(Group(), place).to[1 - place];
}

// All but the bytes, of which only those that were written are ever read.
void Reset(ShmStream& stream) {
  stream.written = 0;
  stream.read = 0;
  stream.writer_waits = 0;
}

bool IsUntouched(const ShmStream& stream) {
  // The beginning and the end are what an overrun would hit.
  constexpr size_t kEdge = 64;
  static const char zeros[kEdge] = {};
  return stream.written == 0 && stream.read == 0 && stream.writer_waits == 0 &&
         std::memcmp(stream.bytes, zeros, kEdge) == 0 &&
         std::memcmp(stream.bytes + ShmStream::kCapacity - kEdge, zeros,
                     kEdge) == 0;
}

void CheckNeighbours() {
  for (int place = 0; place < kSize; ++place) {
    for (int to = 0; to < kSize; ++to) {
      if (place + to == 1) continue;
      KR_CHECK(IsUntouched(ControlPage::Of(Group(), place).to[to]));
    }
  }
}

// What a rank reads, in order, if nobody breaks the counters.
void Write(ShmStream& stream, std::string_view bytes) {
  const uint64_t at = stream.written.load();
  for (size_t i = 0; i < bytes.size(); ++i) {
    stream.bytes[(at + i) % ShmStream::kCapacity] = bytes[i];
  }
  stream.written.store(at + bytes.size());
}

// False once the link is broken.
bool Receive(LocalLink& link) {
  Result<size_t> got = link.Read();
  if (!got.ok()) {
    KR_CHECK(got.status().code() == StatusCode::kInternal);
    return false;
  }
  KR_CHECK(*got <= ShmStream::kCapacity);
  while (true) {
    std::string_view frame;
    Result<bool> whole = link.Next(&frame);
    if (!whole.ok()) return false;
    if (!*whole) return true;
    KR_CHECK(frame.size() <= kLimit);
  }
}

bool Step(Script& script, LocalLink& link) {
  ShmStream& stream = StreamOf(script.Choice(2));
  switch (script.Choice(9)) {
    case 0:
      stream.written = script.Number();
      break;
    case 1:
      stream.read = script.Number();
      break;
    case 2:
      stream.writer_waits = script.Byte();
      break;
    case 3:
      Write(stream, script.Text());
      break;
    case 4:
      ControlPage::Of(Group(), script.Choice(2)).bell.state = script.Byte();
      break;
    case 5: {
      const std::string frame(script.Number() % (2 * ShmStream::kCapacity),
                              'f');
      KR_CHECK(link.Send(frame) >= frame.size());
      break;
    }
    case 6:
      link.Flush();
      break;
    case 7:
      return Receive(link);
    case 8: {
      Doorbell& bell = ControlPage::Of(Group(), 0).bell;
      bell.FallAsleep();
      bell.WakeUp();
      KR_CHECK(!bell.IsNotified());
      break;
    }
  }
  return true;
}

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace keras_ring;
  for (int place = 0; place < 2; ++place) Reset(StreamOf(place));
  LocalLink link(Group(), 1, kLimit);
  Script script(AsText(data, size));
  // What is sent and cannot leave is kept: of few messages, little.
  for (int i = 0; i < 50 && !script.AtEnd(); ++i) {
    if (!Step(script, link)) break;
  }
  CheckNeighbours();
  return 0;
}
