#include "tf_ops/xla_ticket.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tf_ops/tf_adapters.h"

namespace keras_ring {

using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

std::shared_ptr<XlaTicket> XlaTicket::Start(
    int64_t process_set, KrKind kind, const absl::StatusOr<RequestPtr>& request,
    const std::vector<Input>& inputs) {
  auto ticket = std::make_shared<XlaTicket>();
  const absl::Status status =
      ticket->Enqueue(process_set, kind, request, inputs, ticket);
  if (!status.ok()) ticket->End(status);
  return ticket;
}

absl::Status XlaTicket::Enqueue(int64_t process_set, KrKind kind,
                                const absl::StatusOr<RequestPtr>& request,
                                const std::vector<Input>& inputs,
                                const std::shared_ptr<XlaTicket>& self) {
  TF_RETURN_IF_ERROR(request.status());
  std::vector<void*> copies;
  for (const Input& input : inputs) {
    tensors_.emplace_back(tensorflow::DT_UINT8, TensorShape({input.bytes}));
    void* copy = tensors_.back().data();
    if (copy == nullptr && input.bytes > 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory to start ", KrRequestLabel(request->get())));
    }
    if (input.bytes > 0) std::memcpy(copy, input.data, input.bytes);
    copies.push_back(copy);
    row_bytes_.push_back(input.rows > 0 ? input.bytes / input.rows : 0);
  }
  KrOperation operation = {};
  operation.inputs = copies.data();
  operation.context = this;
  operation.done = [](void* ticket, const KrStatus* status) {
    // Keeps it alive until the end of this function.
    const auto alive = std::move(static_cast<XlaTicket*>(ticket)->in_flight_);
    alive->End(ToAbsl(status));
  };
  if (kind == KR_REDUCESCATTER) {
    operation.allocate = [](void* ticket, int32_t result, int64_t rows,
                            void** memory) -> KrStatus* {
      const absl::Status allocated =
          static_cast<XlaTicket*>(ticket)->AllocateResult(result, rows, memory);
      return allocated.ok() ? nullptr : ToKr(allocated);
    };
  } else {
    operation.outputs = copies.data();
    results_ = tensors_;
  }
  in_flight_ = self;
  KrRuntimeLookup* const runtime = KrRuntimeLookupCreate(process_set);
  KrStatus* const refused = KrEnqueue(runtime, request->get(), &operation);
  KrRuntimeLookupFree(runtime);
  if (refused == nullptr) return absl::OkStatus();
  in_flight_ = nullptr;
  return TakeStatus(refused);
}

absl::Status XlaTicket::AllocateResult(int result, int64_t rows,
                                       void** memory) {
  const int64_t bytes = rows * row_bytes_[result];
  results_.emplace_back(tensorflow::DT_UINT8, TensorShape({bytes}));
  *memory = results_.back().data();
  if (*memory != nullptr || bytes == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError("no memory for a result");
}

void XlaTicket::OnEnd(std::function<void(const absl::Status&)> callback) {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    if (!ended_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
    status = status_;
  }
  callback(status);
}

void XlaTicket::End(const absl::Status& status) {
  std::vector<std::function<void(const absl::Status&)>> callbacks;
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    status_ = status;
    callbacks.swap(callbacks_);
  }
  for (const auto& callback : callbacks) callback(status);
}

XlaTicketTable& XlaTicketTable::OfProcess() {
  // Never destroyed: programs may run until the process ends.
  static auto* table = new XlaTicketTable;
  return *table;
}

int64_t XlaTicketTable::Add(std::shared_ptr<XlaTicket> ticket) {
  absl::MutexLock lock(&mutex_);
  tickets_.emplace(next_, std::move(ticket));
  return next_++;
}

std::shared_ptr<XlaTicket> XlaTicketTable::Take(int64_t number) {
  absl::MutexLock lock(&mutex_);
  auto found = tickets_.find(number);
  if (found == tickets_.end()) return nullptr;
  std::shared_ptr<XlaTicket> ticket = std::move(found->second);
  tickets_.erase(found);
  return ticket;
}

}  // namespace keras_ring
