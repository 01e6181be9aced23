#include "tf_ops/xla_ticket.h"

#include <cstring>
#include <utility>

#include "csrc/control/tensor_entry.h"
#include "csrc/runtime/process_runtime.h"

namespace keras_ring {

std::shared_ptr<XlaTicket> XlaTicket::Start(
    int64_t process_set, Request request,
    const std::vector<const void*>& inputs) {
  auto ticket = std::make_shared<XlaTicket>();
  Status status =
      ticket->Enqueue(process_set, std::move(request), inputs, ticket);
  if (!status.ok()) ticket->Complete(status);
  return ticket;
}

Status XlaTicket::Enqueue(int64_t process_set, Request request,
                          const std::vector<const void*>& inputs,
                          const std::shared_ptr<XlaTicket>& self) {
  KR_ASSIGN_OR_RETURN(std::shared_ptr<Runtime> runtime,
                      ProcessRuntimeFor(process_set, request.name));
  TensorEntry entry;
  const bool in_place = request.kind != RequestKind::kReducescatter;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t bytes = request.tensors[i].num_bytes();
    tensors_.emplace_back(tensorflow::DT_UINT8,
                          tensorflow::TensorShape({bytes}));
    void* copy = tensors_.back().data();
    if (copy == nullptr && bytes > 0) {
      return ResourceExhaustedError("no memory to start " + request.Label());
    }
    if (bytes > 0) std::memcpy(copy, inputs[i], bytes);
    entry.inputs.push_back(copy);
    if (in_place) entry.outputs.push_back(copy);
  }
  if (in_place) {
    results_ = tensors_;
  } else {
    entry.allocate = [self, specs = request.tensors](
                         int result, int64_t rows) -> Result<void*> {
      TensorSpec spec = specs[result];
      spec.shape.front() = rows;
      const int64_t bytes = spec.num_bytes();
      self->results_.emplace_back(tensorflow::DT_UINT8,
                                  tensorflow::TensorShape({bytes}));
      void* memory = self->results_.back().data();
      if (memory == nullptr && bytes > 0) {
        return ResourceExhaustedError("no memory for a result");
      }
      return memory;
    };
  }
  entry.request = std::make_shared<const Request>(std::move(request));
  entry.completion = Completion(self);
  return runtime->Enqueue(std::move(entry));
}

void XlaTicket::OnEnd(std::function<void(const Status&)> callback) {
  Status status;
  {
    MutexLock lock(mutex_);
    if (!ended_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
    status = status_;
  }
  callback(status);
}

void XlaTicket::Complete(const Status& status) {
  std::vector<std::function<void(const Status&)>> callbacks;
  {
    MutexLock lock(mutex_);
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
  MutexLock lock(mutex_);
  tickets_.emplace(next_, std::move(ticket));
  return next_++;
}

std::shared_ptr<XlaTicket> XlaTicketTable::Take(int64_t number) {
  MutexLock lock(mutex_);
  auto found = tickets_.find(number);
  if (found == tickets_.end()) return nullptr;
  std::shared_ptr<XlaTicket> ticket = std::move(found->second);
  tickets_.erase(found);
  return ticket;
}

}  // namespace keras_ring
