#include "csrc/runtime/allgather_strings.h"

#include <future>
#include <memory>

#include "csrc/base/wire.h"
#include "csrc/control/tensor_entry.h"

namespace keras_ring {
namespace {

constexpr size_t kMaxText = 1 << 20;

// The state of one call. The entry shares it, and may outlive the caller's
// interest.
struct Exchange {
  std::string own;
  std::string all;
  std::promise<Status> ended;
};

}  // namespace

Result<std::vector<std::string>> AllgatherStrings(Runtime& runtime,
                                                  const std::string& name,
                                                  const std::string& text) {
  auto exchange = std::make_shared<Exchange>();
  WireWriter writer;
  writer.Text(std::string_view(text).substr(0, kMaxText));
  exchange->own = writer.Take();

  auto request = std::make_shared<Request>();
  request->name = name;
  request->kind = RequestKind::kAllgather;
  request->tensors = {
      TensorSpec{DType::kUint8, {static_cast<int64_t>(exchange->own.size())}}};
  TensorEntry entry;
  entry.request = request;
  entry.inputs = {exchange->own.data()};
  entry.allocate = [exchange](int, int64_t rows) -> Result<void*> {
    exchange->all.resize(rows);
    return static_cast<void*>(exchange->all.data());
  };
  entry.completion = Completion(
      [exchange](const Status& status) { exchange->ended.set_value(status); });
  std::future<Status> ended = exchange->ended.get_future();
  KR_RETURN_IF_ERROR(runtime.Enqueue(std::move(entry)));
  KR_RETURN_IF_ERROR(ended.get());

  std::vector<std::string> texts;
  WireReader reader(exchange->all);
  const int size = runtime.topology().size;
  for (int rank = 0; rank < size && !reader.Finished(); ++rank) {
    texts.emplace_back(reader.Text(kMaxText));
  }
  if (reader.Finished() && texts.size() < static_cast<size_t>(size)) {
    return FailedPreconditionError(
        name + " needs all " + std::to_string(size) + " ranks, and only " +
        std::to_string(texts.size()) +
        " bring something: the others have joined. Wait until join() has "
        "returned on all of them.");
  }
  if (!reader.Finished()) return InternalError("malformed texts of ranks");
  return texts;
}

}  // namespace keras_ring
