// The two calls as XLA's CPU runtime makes them.
#include "xla_ops/calls.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/dtype_table.h"
#include "csrc/capi/keras_ring.h"
#include "xla/ffi/api/ffi.h"
#include "xla_ops/program_threads.h"
#include "xla_ops/ticket.h"

namespace keras_ring {
namespace {

namespace ffi = ::xla::ffi;

ffi::Error ToFfi(const Outcome& outcome) {
  // Both enumerations have the same numbers.
  return ffi::Error(static_cast<ffi::ErrorCode>(outcome.code), outcome.message);
}

// Returns the number of a type; negative: no collective carries it.
int32_t DTypeFromFfi(ffi::DataType dtype) {
#define KR_ROW(dtype, name, size, kind, tf, xla) ffi::DataType::xla,
  constexpr ffi::DataType kFfiTypes[] = {KR_FOR_EACH_DTYPE(KR_ROW)};
#undef KR_ROW
  int32_t number = 0;
  for (ffi::DataType each : kFfiTypes) {
    if (each == dtype) return number;
    ++number;
  }
  return -1;
}

// JAX passes tokens, which order calls.
bool IsToken(const ffi::AnyBuffer& buffer) {
  return buffer.element_type() == ffi::DataType::TOKEN;
}

double FromBits(int64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

ffi::Error Start(ffi::RemainingArgs tensors,
                 ffi::Result<ffi::BufferR0<ffi::S32>> number,
                 ffi::RemainingRets /*token*/, std::string_view name,
                 int64_t process_set, int32_t kind, int32_t reduce_op,
                 int32_t root, int64_t prescale, int64_t postscale,
                 int32_t compression) {
  std::vector<KrTensorSpec> specs;
  std::vector<Ticket::Input> inputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    ffi::ErrorOr<ffi::AnyBuffer> tensor = tensors.get<ffi::AnyBuffer>(i);
    if (tensor.has_error()) return tensor.error();
    if (IsToken(*tensor)) continue;
    const auto dimensions = tensor->dimensions();
    specs.push_back({DTypeFromFfi(tensor->element_type()),
                     static_cast<int32_t>(dimensions.size()),
                     dimensions.begin()});
    inputs.push_back({tensor->untyped_data(), tensor->size_bytes(),
                      dimensions.size() > 0 ? *dimensions.begin() : 0});
  }
  KrRequestSpec spec;
  KrRequestSpecInit(&spec);
  spec.name = name.data();
  spec.name_bytes = name.size();
  spec.kind = kind;
  spec.reduce_op = reduce_op;
  spec.root = root;
  spec.prescale = FromBits(prescale);
  spec.postscale = FromBits(postscale);
  spec.compression = compression;
  spec.tensors = specs.data();
  spec.num_tensors = specs.size();
  KrRequest* request = nullptr;
  const Outcome made = TakeOutcome(KrRequestCreate(&spec, &request));
  // `Done` reports an error: it also knows what else was started.
  *number->typed_data() = TicketTable::OfProcess().Add(
      made.ok() ? Ticket::Start(MemoryOfTickets(), process_set,
                                static_cast<KrKind>(kind),
                                RequestPtr(request, KrRequestFree), inputs)
                : Ticket::Failed(made));
  return ffi::Error::Success();
}

// Where XLA wants a result to be written.
struct Output {
  void* data;
  size_t bytes;
};

// One call of `Done`: ends when all its tickets have ended, or one has failed.
class Wait : public std::enable_shared_from_this<Wait> {
 public:
  Wait(std::vector<std::shared_ptr<Ticket>> tickets,
       std::vector<Output> outputs, std::vector<int32_t> others)
      : tickets_(std::move(tickets)),
        outputs_(std::move(outputs)),
        others_(std::move(others)),
        left_(tickets_.size()) {}

  ffi::Future Begin() {
    ffi::Future future(promise_);
    for (const auto& ticket : tickets_) {
      ticket->OnEnd([self = shared_from_this()](const Outcome& outcome) {
        self->OnTicketEnd(outcome);
      });
    }
    bool over;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      begun_ = true;
      over = over_;
    }
    if (over) Finish();
    return future;
  }

 private:
  void OnTicketEnd(const Outcome& outcome) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (over_) return;
      --left_;
      over_ = left_ == 0 || !outcome.ok();
      if (!over_) return;
      outcome_ = outcome;
      if (!begun_) return;  // still in Begin, which finishes it
    }
    ProgramThreads::OfProcess().Run(
        [self = shared_from_this()] { self->Finish(); });
  }

  void Finish() {
    Outcome outcome;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      outcome = outcome_;
    }
    if (!outcome.ok()) {
      // The program ends here, and no call will wait for the other tickets.
      for (int32_t other : others_) TicketTable::OfProcess().Take(other);
      return promise_.SetError(ToFfi(outcome));
    }
    auto output = outputs_.begin();
    for (const auto& ticket : tickets_) {
      for (const Ticket::Result& result : ticket->results()) {
        if (result.bytes != output->bytes) {
          return promise_.SetError(ffi::Error(
              ffi::ErrorCode::kFailedPrecondition,
              "this function was compiled for a job in which this rank's part "
              "had another size; trace it again"));
        }
        if (result.bytes > 0) {
          std::memcpy(output->data, result.data, result.bytes);
        }
        ++output;
      }
    }
    promise_.SetAvailable();
  }

  const std::vector<std::shared_ptr<Ticket>> tickets_;
  const std::vector<Output> outputs_;
  const std::vector<int32_t> others_;
  ffi::Promise promise_;

  std::mutex mutex_;  // of the following
  size_t left_;
  bool begun_ = false;
  bool over_ = false;
  Outcome outcome_;
};

ffi::Future Failed(ffi::Error error) {
  ffi::Promise promise;
  ffi::Future future(promise);
  promise.SetError(std::move(error));
  return future;
}

ffi::Future Done(ffi::RemainingArgs numbers, ffi::RemainingRets results,
                 int64_t own) {
  std::vector<std::shared_ptr<Ticket>> tickets;
  std::vector<int32_t> others;
  for (size_t i = 0; i < numbers.size(); ++i) {
    auto buffer = numbers.get<ffi::AnyBuffer>(i);
    if (buffer.has_error()) return Failed(buffer.error());
    if (IsToken(*buffer)) continue;
    const int32_t number = *static_cast<int32_t*>(buffer->untyped_data());
    if (static_cast<int64_t>(i) >= own) {
      others.push_back(number);
      continue;
    }
    tickets.push_back(TicketTable::OfProcess().Take(number));
  }
  for (const auto& ticket : tickets) {
    if (ticket != nullptr) continue;
    // The program ends here, and no call will wait for the other tickets.
    for (int32_t other : others) TicketTable::OfProcess().Take(other);
    return Failed(ffi::Error(ffi::ErrorCode::kCancelled,
                             "another collective of this step failed"));
  }
  std::vector<Output> outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    auto buffer = results.get<ffi::AnyBuffer>(i);
    if (buffer.has_error()) return Failed(buffer.error());
    if (IsToken(**buffer)) continue;
    outputs.push_back(
        Output{(*buffer)->untyped_data(), (*buffer)->size_bytes()});
  }
  return std::make_shared<Wait>(std::move(tickets), std::move(outputs),
                                std::move(others))
      ->Begin();
}

}  // namespace
}  // namespace keras_ring

XLA_FFI_DEFINE_HANDLER_SYMBOL(KerasRingXlaStart, keras_ring::Start,
                              xla::ffi::Ffi::Bind()
                                  .RemainingArgs()
                                  .Ret<xla::ffi::BufferR0<xla::ffi::S32>>()
                                  .RemainingRets()
                                  .Attr<std::string_view>(keras_ring::kNameAttr)
                                  .Attr<int64_t>(keras_ring::kSetAttr)
                                  .Attr<int32_t>(keras_ring::kKindAttr)
                                  .Attr<int32_t>(keras_ring::kReduceOpAttr)
                                  .Attr<int32_t>(keras_ring::kRootAttr)
                                  .Attr<int64_t>(keras_ring::kPrescaleAttr)
                                  .Attr<int64_t>(keras_ring::kPostscaleAttr)
                                  .Attr<int32_t>(keras_ring::kCompressionAttr));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    KerasRingXlaDone, keras_ring::Done,
    xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<int64_t>(
        keras_ring::kOwnAttr));
