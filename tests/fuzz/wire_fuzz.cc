// WireReader and WireWriter: reads of any kind from any bytes.
#include "csrc/base/status.h"
#include "csrc/base/wire.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

constexpr size_t kTextLimit = 100;

// Reads by `kind`, and writes what was read.
void Step(int kind, WireReader& reader, WireWriter& writer) {
  switch (kind) {
    case 0:
      return writer.Byte(reader.Byte());
    case 1:
      return writer.Fixed32(reader.Fixed32());
    case 2:
      return writer.Fixed64(reader.Fixed64());
    case 3:
      return writer.Double(reader.Double());
    case 4:
      return writer.Varint(reader.Varint());
    case 5:
      return writer.SignedVarint(reader.SignedVarint());
    case 6: {
      const std::string_view text = reader.Text(kTextLimit);
      KR_CHECK(text.size() <= kTextLimit);
      return writer.Text(text);
    }
    case 7:
      return writer.Varint(reader.Count(/*element_bytes=*/3));
  }
}

void Read(std::string_view kinds, std::string_view bytes) {
  WireReader reader(bytes);
  WireWriter writer;
  for (char kind : kinds) {
    WireWriter one;
    const bool ok = reader.ok();
    Step(kind & 7, reader, one);
    // Once failed, failed for good: zeros and empty texts.
    if (!ok) KR_CHECK(!reader.ok());
    if (!reader.ok()) {
      KR_CHECK(reader.AtEnd());
      for (char byte : one.bytes()) KR_CHECK(byte == 0);
      continue;
    }
    writer.Raw(one.bytes());
  }
  if (!reader.ok()) return;
  // What was written reads alike. A count may not: what it counts is not there.
  WireReader again(writer.bytes());
  WireWriter twice;
  for (char kind : kinds) Step((kind & 7) == 7 ? 4 : kind & 7, again, twice);
  KR_CHECK(again.Finished());
  KR_CHECK(twice.bytes() == writer.bytes());
  KR_CHECK(writer.bytes().size() <= bytes.size());
}

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  keras_ring::Script script(keras_ring::AsText(data, size));
  const std::string_view kinds = script.Text();
  keras_ring::Read(kinds, script.Rest());
  return 0;
}
