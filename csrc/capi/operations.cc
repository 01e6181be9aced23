// Requests and operations.
#include <memory>
#include <string>
#include <utility>

#include "csrc/base/compression.h"
#include "csrc/base/dtype.h"
#include "csrc/base/reduce_op.h"
#include "csrc/capi/handles.h"
#include "csrc/control/tensor_entry.h"
#include "csrc/runtime/elastic/elastic_job.h"
#include "csrc/runtime/runtime.h"

namespace keras_ring {
namespace {

// The numbers of the header are those of the core.
static_assert(KR_JOIN == static_cast<int>(RequestKind::kJoin) &&
              KR_JOIN + 1 == kNumRequestKinds);
static_assert(KR_ALLREDUCE == static_cast<int>(RequestKind::kAllreduce));
static_assert(KR_ALLGATHER == static_cast<int>(RequestKind::kAllgather));
static_assert(KR_BROADCAST == static_cast<int>(RequestKind::kBroadcast));
static_assert(KR_BARRIER == static_cast<int>(RequestKind::kBarrier));
static_assert(KR_REDUCESCATTER ==
              static_cast<int>(RequestKind::kReducescatter));
static_assert(KR_ALLTOALL == static_cast<int>(RequestKind::kAlltoall));
static_assert(KR_ADASUM + 1 == kNumReduceOps);
static_assert(KR_AVERAGE == static_cast<int>(ReduceOp::kAverage));
static_assert(KR_SUM == static_cast<int>(ReduceOp::kSum));
static_assert(KR_MIN == static_cast<int>(ReduceOp::kMin));
static_assert(KR_MAX == static_cast<int>(ReduceOp::kMax));
static_assert(KR_PRODUCT == static_cast<int>(ReduceOp::kProduct));
static_assert(KR_ADASUM == static_cast<int>(ReduceOp::kAdasum));
static_assert(KR_COMPRESSION_BF16 + 1 == kNumCompressions);
static_assert(KR_COMPRESSION_NONE == static_cast<int>(Compression::kNone));
static_assert(KR_COMPRESSION_FP16 == static_cast<int>(Compression::kFloat16));
static_assert(KR_COMPRESSION_BF16 == static_cast<int>(Compression::kBfloat16));
static_assert(KR_DEVICE_CUDA + 1 == kNumDeviceKinds);
static_assert(KR_DEVICE_HOST == static_cast<int>(DeviceKind::kHost));
static_assert(KR_DEVICE_CUDA == static_cast<int>(DeviceKind::kCuda));

Status CheckNumber(const char* what, int32_t number, int limit) {
  if (number >= 0 && number < limit) return OkStatus();
  return InvalidArgumentError("no " + std::string(what) + " has number " +
                              std::to_string(number));
}

Status CheckReduction(int32_t kind, int32_t reduce_op, int32_t compression) {
  KR_RETURN_IF_ERROR(CheckNumber("kind", kind, kNumRequestKinds));
  KR_RETURN_IF_ERROR(CheckNumber("reduce op", reduce_op, kNumReduceOps));
  return CheckNumber("compression", compression, kNumCompressions);
}

Result<TensorSpec> SpecOf(const KrTensorSpec& given) {
  KR_RETURN_IF_ERROR(CheckNumber("element type", given.dtype, kNumDTypes));
  TensorSpec spec;
  spec.dtype = static_cast<DType>(given.dtype);
  if (given.num_dimensions < 0) {
    return InvalidArgumentError(
        "a tensor of " + std::to_string(given.num_dimensions) + " dimensions");
  }
  spec.shape.assign(given.dimensions, given.dimensions + given.num_dimensions);
  for (int64_t dimension : spec.shape) {
    if (dimension < 0) {
      return InvalidArgumentError("a tensor with a dimension of " +
                                  std::to_string(dimension));
    }
  }
  return spec;
}

Result<Request> RequestOf(const KrRequestSpec& spec) {
  Request request;
  request.name.assign(spec.name, spec.name_bytes);
  KR_RETURN_IF_ERROR(CheckName(request.name));
  KR_RETURN_IF_ERROR(
      CheckReduction(spec.kind, spec.reduce_op, spec.compression));
  KR_RETURN_IF_ERROR(CheckNumber("device kind", spec.device, kNumDeviceKinds));
  request.kind = static_cast<RequestKind>(spec.kind);
  request.op = static_cast<ReduceOp>(spec.reduce_op);
  request.compression = static_cast<Compression>(spec.compression);
  request.device = static_cast<DeviceKind>(spec.device);
  request.root = spec.root;
  request.prescale = spec.prescale;
  request.postscale = spec.postscale;
  request.splits.assign(spec.splits, spec.splits + spec.num_splits);
  for (size_t i = 0; i < spec.num_tensors; ++i) {
    KR_ASSIGN_OR_RETURN(TensorSpec tensor, SpecOf(spec.tensors[i]));
    request.tensors.push_back(std::move(tensor));
  }
  return request;
}

class CallbackEvent final : public Event {
 public:
  CallbackEvent(void (*wait)(void*), void* context)
      : wait_(wait), context_(context) {}
  Status Wait() const override {
    wait_(context_);
    return OkStatus();
  }

 private:
  void (*const wait_)(void*);
  void* const context_;
};

TensorEntry EntryOf(const KrRequest& request, const KrOperation& operation) {
  TensorEntry entry;
  entry.request = request.request;
  const size_t tensors = request.request->tensors.size();
  entry.inputs.reserve(tensors);
  for (size_t i = 0; i < tensors; ++i) {
    entry.inputs.push_back(operation.inputs[i]);
  }
  // A join has no tensor, and one result.
  const size_t results =
      request.request->kind == RequestKind::kJoin ? 1 : tensors;
  if (operation.outputs != nullptr) {
    entry.outputs.reserve(results);
    for (size_t i = 0; i < results; ++i) {
      entry.outputs.push_back(operation.outputs[i]);
    }
  }
  void* const context = operation.context;
  if (operation.allocate != nullptr) {
    entry.allocate = [allocate = operation.allocate, context](
                         int result, int64_t rows) -> Result<void*> {
      void* memory = nullptr;
      const std::unique_ptr<KrStatus> failed(
          allocate(context, result, rows, &memory));
      if (failed != nullptr) return failed->status;
      return memory;
    };
  }
  entry.device_ordinal = operation.device_ordinal;
  if (operation.wait_until_ready != nullptr) {
    entry.ready = std::make_shared<const CallbackEvent>(
        operation.wait_until_ready, context);
  }
  // Two pointers, which std::function stores without an allocation.
  entry.completion =
      Completion([done = operation.done, context](const Status& status) {
        if (status.ok()) return done(context, nullptr);
        const KrStatus failed{status};
        done(context, &failed);
      });
  return entry;
}

}  // namespace
}  // namespace keras_ring

using ::keras_ring::Request;
using ::keras_ring::Result;
using ::keras_ring::Runtime;
using ::keras_ring::Status;
using ::keras_ring::ToC;

void KrRequestSpecInit(KrRequestSpec* spec) {
  *spec = KrRequestSpec();
  spec->name = "";
  spec->reduce_op = KR_SUM;
  spec->prescale = 1.0;
  spec->postscale = 1.0;
  spec->generation = keras_ring::ElasticJob::kPresent;
}

KrStatus* KrRequestCreate(const KrRequestSpec* spec, KrRequest** request) {
  Result<Request> made = keras_ring::RequestOf(*spec);
  if (!made.ok()) return ToC(made.status());
  auto kept = std::make_shared<const Request>(std::move(made).value());
  std::string label = kept->Label();
  std::shared_ptr<const std::string> group;
  if (spec->commit_group_bytes > 0) {
    group = std::make_shared<const std::string>(spec->commit_group,
                                                spec->commit_group_bytes);
    const Status valid = keras_ring::CheckName(*group);
    if (!valid.ok()) return ToC(valid);
  }
  *request = new KrRequest{std::move(kept), std::move(label), std::move(group),
                           spec->generation};
  return nullptr;
}

const char* KrRequestLabel(const KrRequest* request) {
  return request->label.c_str();
}

void KrRequestFree(const KrRequest* request) { delete request; }

KrStatus* KrCheckName(const char* name, size_t bytes) {
  return ToC(keras_ring::CheckName(std::string(name, bytes)));
}

KrStatus* KrCheckReduction(int32_t kind, int32_t reduce_op,
                           int32_t compression) {
  return ToC(keras_ring::CheckReduction(kind, reduce_op, compression));
}

KrRuntimeLookup* KrRuntimeLookupCreate(int64_t process_set) {
  return new KrRuntimeLookup{keras_ring::RuntimeLookup(process_set)};
}

void KrRuntimeLookupFree(KrRuntimeLookup* lookup) { delete lookup; }

KrStatus* KrEnqueue(KrRuntimeLookup* lookup, const KrRequest* request,
                    const KrOperation* operation) {
  Result<std::shared_ptr<Runtime>> runtime =
      lookup->lookup.For(request->request->name);
  if (!runtime.ok()) return ToC(runtime.status());
  keras_ring::TensorEntry entry = keras_ring::EntryOf(*request, *operation);
  const Request& what = *request->request;
  if (what.device != keras_ring::DeviceKind::kHost && entry.ready == nullptr &&
      !what.tensors.empty()) {
    auto ready = (*runtime)->Record({what.device, entry.device_ordinal},
                                    operation->stream);
    if (!ready.ok()) {
      entry.completion.Disarm();
      return ToC(ready.status().WithContext((*runtime)->LabelOf(what)));
    }
    entry.ready = *ready;
    entry.stream = operation->stream;
  }
  if (auto* const elastic = keras_ring::CurrentElasticJob()) {
    return ToC(elastic->Enqueue(std::move(entry), request->commit_group,
                                request->generation));
  }
  return ToC((*runtime)->Enqueue(std::move(entry)));
}

KrStatus* KrCommit(const char* group, size_t group_bytes, void* context,
                   void (*done)(void* context, const KrStatus* status,
                                bool committed)) {
  const std::string name(group, group_bytes);
  const Status valid = keras_ring::CheckName(name);
  if (!valid.ok()) return ToC(valid);
  const auto runtime =
      keras_ring::ProcessRuntimeFor(0, "the commit of " + name);
  if (!runtime.ok()) return ToC(runtime.status());
  auto* const elastic = keras_ring::CurrentElasticJob();
  if (elastic == nullptr) {
    done(context, nullptr, true);
    return nullptr;
  }
  return ToC(elastic->Commit(name, [done, context](const Result<bool>& answer) {
    if (answer.ok()) return done(context, nullptr, *answer);
    const KrStatus failed{answer.status()};
    done(context, &failed, false);
  }));
}
