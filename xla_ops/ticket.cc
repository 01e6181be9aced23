#include "xla_ops/ticket.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace keras_ring {
namespace {

// RESOURCE_EXHAUSTED of KrStatus, and of XLA.
constexpr int32_t kResourceExhausted = 8;

}  // namespace

Outcome TakeOutcome(KrStatus* status) {
  if (status == nullptr) return {};
  Outcome outcome{KrStatusCode(status), KrStatusMessage(status)};
  KrStatusFree(status);
  return outcome;
}

Ticket::~Ticket() {
  for (void* memory : owned_) memory_.release(memory);
}

std::shared_ptr<Ticket> Ticket::Start(const TicketMemory& memory,
                                      int64_t process_set, KrKind kind,
                                      const RequestPtr& request,
                                      const std::vector<Input>& inputs) {
  auto ticket = std::make_shared<Ticket>(memory);
  const Outcome refused =
      ticket->Enqueue(process_set, kind, request, inputs, ticket);
  if (!refused.ok()) ticket->End(refused);
  return ticket;
}

std::shared_ptr<Ticket> Ticket::Failed(const Outcome& outcome) {
  auto ticket = std::make_shared<Ticket>(TicketMemory{});
  ticket->End(outcome);
  return ticket;
}

void* Ticket::Allocate(size_t bytes) {
  void* memory = memory_.allocate(std::max<size_t>(bytes, 1));
  if (memory != nullptr) owned_.push_back(memory);
  return memory;
}

Outcome Ticket::Enqueue(int64_t process_set, KrKind kind,
                        const RequestPtr& request,
                        const std::vector<Input>& inputs,
                        const std::shared_ptr<Ticket>& self) {
  std::vector<void*> copies;
  for (const Input& input : inputs) {
    void* const copy = Allocate(input.bytes);
    if (copy == nullptr) {
      return {kResourceExhausted, std::string("no memory to start ") +
                                      KrRequestLabel(request.get())};
    }
    if (input.bytes > 0) std::memcpy(copy, input.data, input.bytes);
    copies.push_back(copy);
    row_bytes_.push_back(
        input.rows > 0 ? static_cast<int64_t>(input.bytes) / input.rows : 0);
  }
  KrOperation operation = {};
  operation.inputs = copies.data();
  operation.context = this;
  operation.done = [](void* context, const KrStatus* status) {
    // Keeps it alive until the end of this function.
    const auto ticket = std::move(static_cast<Ticket*>(context)->in_flight_);
    Outcome outcome;
    if (status != nullptr) {
      outcome = {KrStatusCode(status), KrStatusMessage(status)};
    }
    ticket->End(outcome);
  };
  if (kind == KR_REDUCESCATTER || kind == KR_ALLGATHER || kind == KR_ALLTOALL) {
    operation.allocate = [](void* context, int32_t result, int64_t rows,
                            void** memory) -> KrStatus* {
      auto* const ticket = static_cast<Ticket*>(context);
      // An alltoall has one more, the rows from each rank.
      const bool is_extra =
          static_cast<size_t>(result) == ticket->row_bytes_.size();
      const size_t bytes =
          rows * (is_extra ? sizeof(int64_t) : ticket->row_bytes_[result]);
      *memory = ticket->Allocate(bytes);
      if (*memory == nullptr) {
        return KrStatusCreate(kResourceExhausted, "no memory for a result");
      }
      if (!is_extra) ticket->results_.push_back({*memory, bytes});
      return nullptr;
    };
  } else {
    operation.outputs = copies.data();
    for (size_t i = 0; i < inputs.size(); ++i) {
      results_.push_back({copies[i], inputs[i].bytes});
    }
  }
  in_flight_ = self;
  KrRuntimeLookup* const runtime = KrRuntimeLookupCreate(process_set);
  KrStatus* const refused = KrEnqueue(runtime, request.get(), &operation);
  KrRuntimeLookupFree(runtime);
  if (refused != nullptr) in_flight_ = nullptr;
  return TakeOutcome(refused);
}

void Ticket::OnEnd(std::function<void(const Outcome&)> callback) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!ended_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(outcome_);
}

void Ticket::End(const Outcome& outcome) {
  std::vector<std::function<void(const Outcome&)>> callbacks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    outcome_ = outcome;
    callbacks.swap(callbacks_);
  }
  for (const auto& callback : callbacks) callback(outcome);
}

TicketTable& TicketTable::OfProcess() {
  // Never destroyed: programs may run until the process ends.
  static auto* const table = new TicketTable;
  return *table;
}

int32_t TicketTable::Add(std::shared_ptr<Ticket> ticket) {
  std::lock_guard<std::mutex> lock(mutex_);
  while (tickets_.count(static_cast<int32_t>(next_)) > 0) ++next_;
  const auto number = static_cast<int32_t>(next_++);
  tickets_.emplace(number, std::move(ticket));
  return number;
}

std::shared_ptr<Ticket> TicketTable::Take(int32_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = tickets_.find(number);
  if (found == tickets_.end()) return nullptr;
  std::shared_ptr<Ticket> ticket = std::move(found->second);
  tickets_.erase(found);
  return ticket;
}

}  // namespace keras_ring
