// The two calls as XLA's CPU runtime makes them.
#include "tf_ops/xla_calls.h"

#include <cfenv>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "csrc/base/dtype_table.h"
#include "csrc/capi/keras_ring.h"
#include "tensorflow/core/platform/env.h"
#include "tf_ops/request.h"
#include "tf_ops/xla_ticket.h"
#include "tsl/platform/denormal.h"
#include "tsl/platform/setround.h"
#include "xla/ffi/api/ffi.h"

namespace xla::ffi {
// Declared in xla/ffi/ffi_api.h, which cannot be included with api/ffi.h.
const XLA_FFI_Api* GetXlaFfiApi();
}  // namespace xla::ffi

namespace keras_ring {
namespace {

namespace ffi = ::xla::ffi;

ffi::Error ToFfi(const absl::Status& status) {
  // Both enumerations have the same numbers.
  return ffi::Error(static_cast<ffi::ErrorCode>(status.code()),
                    std::string(status.message()));
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

double FromBits(int64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

ffi::Error Start(ffi::RemainingArgs tensors,
                 ffi::Result<ffi::BufferR0<ffi::S64>> number,
                 std::string_view name, int64_t process_set, int32_t kind,
                 int32_t reduce_op, int32_t root, int64_t prescale,
                 int64_t postscale, int32_t compression) {
  RequestBuilder builder{std::string(name)};
  builder.spec.kind = kind;
  builder.spec.reduce_op = reduce_op;
  builder.spec.root = root;
  builder.spec.prescale = FromBits(prescale);
  builder.spec.postscale = FromBits(postscale);
  builder.spec.compression = compression;
  std::vector<XlaTicket::Input> inputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    ffi::ErrorOr<ffi::AnyBuffer> tensor = tensors.get<ffi::AnyBuffer>(i);
    if (tensor.has_error()) return tensor.error();
    const auto dimensions = tensor->dimensions();
    builder.AddTensor(DTypeFromFfi(tensor->element_type()),
                      {dimensions.begin(), dimensions.size()});
    inputs.push_back({tensor->untyped_data(),
                      static_cast<int64_t>(tensor->size_bytes()),
                      dimensions.size() > 0 ? *dimensions.begin() : 0});
  }
  // `Done` reports an error: it also knows what else was started.
  *number->typed_data() = XlaTicketTable::OfProcess().Add(XlaTicket::Start(
      process_set, static_cast<KrKind>(kind), builder.Build(), inputs));
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
  Wait(std::vector<std::shared_ptr<XlaTicket>> tickets,
       std::vector<Output> outputs, std::vector<int64_t> others)
      : tickets_(std::move(tickets)),
        outputs_(std::move(outputs)),
        others_(std::move(others)),
        left_(tickets_.size()) {}

  ffi::Future Begin() {
    ffi::Future future(promise_);
    for (const auto& ticket : tickets_) {
      ticket->OnEnd([self = shared_from_this()](const absl::Status& status) {
        self->OnTicketEnd(status);
      });
    }
    bool over;
    {
      absl::MutexLock lock(&mutex_);
      begun_ = true;
      over = over_;
    }
    if (over) Finish();
    return future;
  }

 private:
  void OnTicketEnd(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (over_) return;
      --left_;
      over_ = left_ == 0 || !status.ok();
      if (!over_) return;
      status_ = status;
      if (!begun_) return;  // still in Begin, which finishes it
    }
    // The thread that sets the promise goes on with the program, and the
    // runtime's threads have other things to do.
    tensorflow::Env::Default()->SchedClosure([self = shared_from_this()] {
      // Set as on all threads of XLA, or ranks would differ in the last bits.
      tsl::port::ScopedFlushDenormal flush;
      tsl::port::ScopedSetRound round(FE_TONEAREST);
      self->Finish();
    });
  }

  void Finish() {
    absl::Status status;
    {
      absl::MutexLock lock(&mutex_);
      status = status_;
    }
    if (!status.ok()) {
      // The program ends here, and no call will wait for the other tickets.
      for (int64_t other : others_) XlaTicketTable::OfProcess().Take(other);
      return promise_.SetError(ToFfi(status));
    }
    auto output = outputs_.begin();
    for (const auto& ticket : tickets_) {
      for (const tensorflow::Tensor& result : ticket->results()) {
        const size_t bytes = result.NumElements();
        if (bytes != output->bytes) {
          return promise_.SetError(ffi::Error(
              ffi::ErrorCode::kFailedPrecondition,
              "this function was compiled for a job in which this rank's part "
              "had another size; trace it again"));
        }
        if (bytes > 0) std::memcpy(output->data, result.data(), bytes);
        ++output;
      }
    }
    promise_.SetAvailable();
  }

  const std::vector<std::shared_ptr<XlaTicket>> tickets_;
  const std::vector<Output> outputs_;
  const std::vector<int64_t> others_;
  ffi::Promise promise_;

  absl::Mutex mutex_;
  size_t left_ ABSL_GUARDED_BY(mutex_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

ffi::Future Failed(ffi::Error error) {
  ffi::Promise promise;
  ffi::Future future(promise);
  promise.SetError(std::move(error));
  return future;
}

ffi::Future Done(ffi::RemainingArgs numbers, ffi::RemainingRets results,
                 int64_t own) {
  std::vector<std::shared_ptr<XlaTicket>> tickets;
  std::vector<int64_t> others;
  for (size_t i = 0; i < numbers.size(); ++i) {
    auto buffer = numbers.get<ffi::BufferR0<ffi::S64>>(i);
    if (buffer.has_error()) return Failed(buffer.error());
    const int64_t number = *buffer->typed_data();
    if (static_cast<int64_t>(i) >= own) {
      others.push_back(number);
      continue;
    }
    tickets.push_back(XlaTicketTable::OfProcess().Take(number));
  }
  for (const auto& ticket : tickets) {
    if (ticket != nullptr) continue;
    // The program ends here, and no call will wait for the other tickets.
    for (int64_t other : others) XlaTicketTable::OfProcess().Take(other);
    return Failed(ffi::Error(ffi::ErrorCode::kCancelled,
                             "another collective of this step failed"));
  }
  std::vector<Output> outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    auto buffer = results.get<ffi::AnyBuffer>(i);
    if (buffer.has_error()) return Failed(buffer.error());
    outputs.push_back(
        Output{(*buffer)->untyped_data(), (*buffer)->size_bytes()});
  }
  return std::make_shared<Wait>(std::move(tickets), std::move(outputs),
                                std::move(others))
      ->Begin();
}

XLA_FFI_DEFINE_HANDLER(kStartHandler, Start,
                       ffi::Ffi::Bind()
                           .RemainingArgs()
                           .Ret<ffi::BufferR0<ffi::S64>>()
                           .Attr<std::string_view>(kNameAttr)
                           .Attr<int64_t>(kSetAttr)
                           .Attr<int32_t>(kKindAttr)
                           .Attr<int32_t>(kReduceOpAttr)
                           .Attr<int32_t>(kRootAttr)
                           .Attr<int64_t>(kPrescaleAttr)
                           .Attr<int64_t>(kPostscaleAttr)
                           .Attr<int32_t>(kCompressionAttr));
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kXlaStart, "Host", kStartHandler);

XLA_FFI_DEFINE_HANDLER(
    kDoneHandler, Done,
    ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<int64_t>(kOwnAttr));
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kXlaDone, "Host", kDoneHandler);

}  // namespace
}  // namespace keras_ring
