#include "keras_ring/core/operation.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <utility>

#include "keras_ring/core/status_error.h"

namespace keras_ring {

namespace py = ::pybind11;

namespace {

// After so long without an end, signals are looked for: Control-C shall end a
// rank that waits for another one.
constexpr std::chrono::milliseconds kSignalPeriod(100);
// A cache line: vector instructions do not cross it.
constexpr size_t kAlignment = 64;

bool HasResultsByRows(int32_t kind) {
  return kind == KR_ALLGATHER || kind == KR_REDUCESCATTER ||
         kind == KR_ALLTOALL;
}

std::vector<size_t> BytesOfDTypes() {
  const KrDType* row;
  std::vector<size_t> bytes;
  for (size_t left = KrDTypes(&row); left > 0; --left, ++row) {
    bytes.push_back(row->bytes);
  }
  return bytes;
}

int64_t BytesOfRow(const Operation::Tensor& tensor) {
  static const std::vector<size_t> bytes_of_dtypes = BytesOfDTypes();
  int64_t bytes = static_cast<int64_t>(bytes_of_dtypes.at(tensor.dtype));
  for (size_t i = 1; i < tensor.shape.size(); ++i) bytes *= tensor.shape[i];
  return bytes;
}

}  // namespace

// What a thread of the runtime touches. It knows nothing of Python, whose lock
// that thread must not wait for.
struct Operation::State {
  std::vector<int64_t> bytes_of_row;
  std::vector<std::unique_ptr<Memory>> results;
  // Its own reference, until `done` was called.
  std::shared_ptr<State> in_flight;

  std::mutex mutex;
  std::condition_variable ended;
  std::string code;
  std::string message;
  // Read without the lock where it may be held for ever: in a fork.
  std::atomic<bool> is_done = false;

  static void Done(void* context, const KrStatus* status) {
    const auto self = std::move(static_cast<State*>(context)->in_flight);
    const std::lock_guard<std::mutex> lock(self->mutex);
    if (status != nullptr) {
      self->code = KrStatusCodeName(status);
      self->message = KrStatusMessage(status);
    }
    self->is_done.store(true, std::memory_order_release);
    self->ended.notify_all();
  }

  static KrStatus* Allocate(void* context, int32_t index, int64_t rows,
                            void** memory) {
    State& self = *static_cast<State*>(context);
    const size_t bytes = static_cast<size_t>(rows * self.bytes_of_row[index]);
    const size_t whole = (bytes / kAlignment + 1) * kAlignment;
    *memory = std::aligned_alloc(kAlignment, whole);
    if (*memory == nullptr) {
      constexpr int32_t kResourceExhausted = 8;
      const std::string message =
          "no memory for a result of " + std::to_string(bytes) + " bytes";
      return KrStatusCreate(kResourceExhausted, message.c_str());
    }
    auto result = std::make_unique<Memory>();
    result->data.reset(*memory);
    result->bytes = bytes;
    result->rows = rows;
    self.results[index] = std::move(result);
    return nullptr;
  }
};

// What only a thread with the interpreter lock touches.
struct Operation::InFlight {
  std::shared_ptr<const State> state;
  py::object owner;

  // Of operations that were dropped before their end. The list is never
  // destroyed: at the end of the process there is no interpreter for that.
  static std::vector<std::unique_ptr<InFlight>>& Dropped() {
    static auto* const dropped = new std::vector<std::unique_ptr<InFlight>>;
    return *dropped;
  }
  static void FreeDropped() {
    std::vector<std::unique_ptr<InFlight>>& all = Dropped();
    // Owners are freed last: that may run code of the program, which may come
    // here again.
    std::vector<std::unique_ptr<InFlight>> ended;
    const auto end = std::stable_partition(
        all.begin(), all.end(), [](const std::unique_ptr<InFlight>& each) {
          return !each->state->is_done.load(std::memory_order_acquire);
        });
    std::move(end, all.end(), std::back_inserter(ended));
    all.erase(end, all.end());
  }
};

Operation::Operation(int64_t process_set, const Call& call,
                     const std::vector<Tensor>& tensors)
    : lookup_(KrRuntimeLookupCreate(process_set), KrRuntimeLookupFree),
      request_(nullptr, KrRequestFree),
      num_inputs_(tensors.size()) {
  KrRequestSpec spec;
  KrRequestSpecInit(&spec);
  spec.name = call.name.data();
  spec.name_bytes = call.name.size();
  spec.kind = call.kind;
  spec.reduce_op = call.reduce_op;
  spec.compression = call.compression;
  spec.device = call.device;
  spec.root = call.root;
  spec.generation = call.generation;
  spec.prescale = call.prescale;
  spec.postscale = call.postscale;
  spec.splits = call.splits.data();
  spec.num_splits = call.splits.size();
  std::vector<KrTensorSpec> specs;
  for (const Tensor& tensor : tensors) {
    specs.push_back({tensor.dtype, static_cast<int32_t>(tensor.shape.size()),
                     tensor.shape.data()});
  }
  spec.tensors = specs.data();
  spec.num_tensors = specs.size();
  KrRequest* request = nullptr;
  ThrowIfError(KrRequestCreate(&spec, &request));
  request_.reset(request);
  if (HasResultsByRows(call.kind)) {
    for (const Tensor& tensor : tensors) {
      bytes_of_row_.push_back(BytesOfRow(tensor));
    }
    if (call.kind == KR_ALLTOALL) bytes_of_row_.push_back(sizeof(int64_t));
  } else {
    // A join's is the last rank.
    num_outputs_ = call.kind == KR_JOIN ? 1 : num_inputs_;
  }
}

Operation::~Operation() {
  if (in_flight_ != nullptr && !IsDone()) {
    InFlight::Dropped().push_back(std::move(in_flight_));
  }
}

void Operation::Start(Buffers buffers) {
  if (buffers.inputs.size() != num_inputs_ ||
      buffers.outputs.size() != num_outputs_) {
    throw py::value_error(
        std::to_string(buffers.inputs.size()) + " inputs and " +
        std::to_string(buffers.outputs.size()) + " outputs for " +
        std::to_string(num_inputs_) + " and " + std::to_string(num_outputs_));
  }
  if (!IsDone()) {
    constexpr char kText[] = " was started again before its end";
    throw StatusError{"INVALID_ARGUMENT",
                      KrRequestLabel(request_.get()) + std::string(kText)};
  }
  InFlight::FreeDropped();
  auto state = std::make_shared<State>();
  auto in_flight = std::make_unique<InFlight>();
  in_flight->state = state;
  in_flight->owner = std::move(buffers.owner);
  const std::vector<const void*> inputs = [&] {
    std::vector<const void*> pointers;
    for (uintptr_t address : buffers.inputs) {
      pointers.push_back(reinterpret_cast<const void*>(address));
    }
    return pointers;
  }();
  std::vector<void*> outputs;
  for (uintptr_t address : buffers.outputs) {
    outputs.push_back(reinterpret_cast<void*>(address));
  }
  KrOperation operation = {};
  operation.inputs = inputs.data();
  if (bytes_of_row_.empty()) {
    operation.outputs = outputs.data();
  } else {
    state->bytes_of_row = bytes_of_row_;
    state->results.resize(bytes_of_row_.size());
    operation.allocate = State::Allocate;
  }
  operation.context = state.get();
  operation.done = State::Done;
  operation.device_ordinal = buffers.device_ordinal;
  operation.stream = reinterpret_cast<void*>(buffers.stream);
  state->in_flight = state;
  KrStatus* const refused =
      KrEnqueue(lookup_.get(), request_.get(), &operation);
  if (refused != nullptr) {
    state->in_flight = nullptr;
    ThrowIfError(refused);
  }
  state_ = std::move(state);
  in_flight_ = std::move(in_flight);
}

bool Operation::IsDone() const {
  return state_ == nullptr || state_->is_done.load(std::memory_order_acquire);
}

bool Operation::Wait(std::optional<double> seconds) {
  using Clock = std::chrono::steady_clock;
  const std::shared_ptr<State> state = state_;
  if (state == nullptr) return true;
  const Clock::time_point began = Clock::now();
  const auto is_done = [&state] { return state->is_done.load(); };
  while (!is_done()) {
    auto period = std::chrono::duration<double>(kSignalPeriod);
    if (seconds.has_value()) {
      const auto left =
          std::chrono::duration<double>(*seconds) - (Clock::now() - began);
      period = std::clamp(std::chrono::duration<double>(left),
                          std::chrono::duration<double>::zero(), period);
    }
    bool ended;
    {
      py::gil_scoped_release release;
      std::unique_lock<std::mutex> lock(state->mutex);
      ended = state->ended.wait_for(lock, period, is_done);
    }
    if (ended) break;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (seconds.has_value() &&
        Clock::now() - began >= std::chrono::duration<double>(*seconds)) {
      return false;
    }
  }
  // The tensors need not live until the next submission.
  if (state == state_) in_flight_ = nullptr;
  if (!state->code.empty()) throw StatusError{state->code, state->message};
  return true;
}

std::vector<std::unique_ptr<Memory>> Operation::TakeResults() {
  if (state_ == nullptr) return {};
  return std::move(state_->results);
}

}  // namespace keras_ring
