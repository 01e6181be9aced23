#include "keras_ring/core/array_operation.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
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

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

// A result of a size that is known when the ranks have agreed.
struct Result {
  std::unique_ptr<void, FreeMemory> memory;
  int64_t rows = 0;
};

bool HasResultsByRows(int32_t kind) {
  return kind == KR_ALLGATHER || kind == KR_REDUCESCATTER ||
         kind == KR_ALLTOALL;
}

int64_t BytesOfRow(const py::array& array) {
  int64_t bytes = array.itemsize();
  for (py::ssize_t i = 1; i < array.ndim(); ++i) bytes *= array.shape(i);
  return bytes;
}

// Of the memory, which it takes.
py::array ArrayOf(Result result, py::dtype dtype,
                  std::vector<py::ssize_t> shape) {
  void* const memory = result.memory.get();
  py::capsule owner(result.memory.release(), [](void* p) { std::free(p); });
  return py::array(std::move(dtype), std::move(shape), memory, owner);
}

std::vector<py::ssize_t> ShapeOf(const py::array& array) {
  return {array.shape(), array.shape() + array.ndim()};
}

}  // namespace

// What a thread of the runtime touches. It knows nothing of Python, whose lock
// that thread must not wait for.
struct ArrayOperation::State {
  std::vector<int64_t> bytes_of_row;  // of each result by rows
  std::vector<Result> results;
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
    self.results[index].memory.reset(*memory);
    self.results[index].rows = rows;
    return nullptr;
  }
};

// What only a thread with the interpreter lock touches.
struct ArrayOperation::Arrays {
  std::shared_ptr<const State> state;
  int32_t kind;
  std::vector<py::array> inputs;
  std::vector<py::array> outputs;

  // Of operations that were dropped before their end. The list is never
  // destroyed: at the end of the process there is no interpreter for that.
  static std::vector<std::unique_ptr<Arrays>>& Dropped() {
    static auto* const dropped = new std::vector<std::unique_ptr<Arrays>>;
    return *dropped;
  }
  static void FreeDropped() {
    std::vector<std::unique_ptr<Arrays>>& all = Dropped();
    all.erase(std::remove_if(all.begin(), all.end(),
                             [](const std::unique_ptr<Arrays>& each) {
                               return each->state->is_done.load(
                                   std::memory_order_acquire);
                             }),
              all.end());
  }
};

ArrayOperation::ArrayOperation(int64_t process_set, const Call& call,
                               std::vector<py::array> inputs,
                               const std::vector<int32_t>& dtypes)
    : state_(std::make_shared<State>()), arrays_(std::make_unique<Arrays>()) {
  Arrays::FreeDropped();
  arrays_->state = state_;
  arrays_->kind = call.kind;
  arrays_->inputs = std::move(inputs);

  KrRequestSpec spec;
  KrRequestSpecInit(&spec);
  spec.name = call.name.data();
  spec.name_bytes = call.name.size();
  spec.kind = call.kind;
  spec.reduce_op = call.reduce_op;
  spec.compression = call.compression;
  spec.root = call.root;
  spec.prescale = call.prescale;
  spec.postscale = call.postscale;
  spec.splits = call.splits.data();
  spec.num_splits = call.splits.size();
  std::vector<std::vector<int64_t>> shapes;
  std::vector<const void*> input_pointers;
  for (const py::array& input : arrays_->inputs) {
    shapes.emplace_back(input.shape(), input.shape() + input.ndim());
    input_pointers.push_back(input.data());
  }
  std::vector<KrTensorSpec> tensors;
  for (size_t i = 0; i < shapes.size(); ++i) {
    tensors.push_back({dtypes.at(i), static_cast<int32_t>(shapes[i].size()),
                       shapes[i].data()});
  }
  spec.tensors = tensors.data();
  spec.num_tensors = tensors.size();
  KrRequest* made = nullptr;
  ThrowIfError(KrRequestCreate(&spec, &made));
  const std::unique_ptr<const KrRequest, void (*)(const KrRequest*)> request(
      made, KrRequestFree);

  KrOperation operation = {};
  std::vector<void*> outputs;
  if (HasResultsByRows(call.kind)) {
    for (const py::array& input : arrays_->inputs) {
      state_->bytes_of_row.push_back(BytesOfRow(input));
    }
    if (call.kind == KR_ALLTOALL) {
      state_->bytes_of_row.push_back(sizeof(int64_t));
    }
    state_->results.resize(state_->bytes_of_row.size());
    operation.allocate = State::Allocate;
  } else {
    for (const py::array& input : arrays_->inputs) {
      arrays_->outputs.emplace_back(input.dtype(), ShapeOf(input));
    }
    if (call.kind == KR_JOIN) {
      arrays_->outputs.emplace_back(py::dtype::of<int32_t>(),
                                    std::vector<py::ssize_t>{});
    }
    for (py::array& output : arrays_->outputs) {
      outputs.push_back(output.mutable_data());
    }
    operation.outputs = outputs.data();
  }
  operation.inputs = input_pointers.data();
  operation.context = state_.get();
  operation.done = State::Done;
  state_->in_flight = state_;
  const std::unique_ptr<KrRuntimeLookup, void (*)(KrRuntimeLookup*)> lookup(
      KrRuntimeLookupCreate(process_set), KrRuntimeLookupFree);
  KrStatus* const refused = KrEnqueue(lookup.get(), request.get(), &operation);
  if (refused == nullptr) return;
  state_->in_flight = nullptr;
  state_->is_done = true;
  ThrowIfError(refused);
}

ArrayOperation::~ArrayOperation() {
  if (state_->is_done.load(std::memory_order_acquire)) return;
  Arrays::Dropped().push_back(std::move(arrays_));
}

bool ArrayOperation::Wait(std::optional<double> seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  const auto is_done = [this] { return state_->is_done.load(); };
  while (true) {
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
      std::unique_lock<std::mutex> lock(state_->mutex);
      ended = state_->ended.wait_for(lock, period, is_done);
    }
    if (ended) break;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (seconds.has_value() &&
        Clock::now() - began >= std::chrono::duration<double>(*seconds)) {
      return false;
    }
  }
  if (!state_->code.empty()) throw StatusError{state_->code, state_->message};
  return true;
}

std::vector<py::array> ArrayOperation::Results() {
  if (!HasResultsByRows(arrays_->kind)) return arrays_->outputs;
  std::vector<py::array> arrays;
  const size_t num_inputs = arrays_->inputs.size();
  for (size_t i = 0; i < state_->results.size(); ++i) {
    Result result = std::move(state_->results[i]);
    if (i == num_inputs) {
      const py::ssize_t rows = result.rows;
      arrays.push_back(
          ArrayOf(std::move(result), py::dtype::of<int64_t>(), {rows}));
      continue;
    }
    const py::array& input = arrays_->inputs[i];
    std::vector<py::ssize_t> shape = ShapeOf(input);
    shape[0] = result.rows;
    arrays.push_back(
        ArrayOf(std::move(result), input.dtype(), std::move(shape)));
  }
  return arrays;
}

}  // namespace keras_ring
