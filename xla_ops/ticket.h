// Ticket: a collective that a compiled program has started.
#ifndef KERAS_RING_XLA_OPS_TICKET_H_
#define KERAS_RING_XLA_OPS_TICKET_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/capi/keras_ring.h"

namespace keras_ring {

// How a collective has ended.
struct Outcome {
  int32_t code = 0;  // a status code, which XLA numbers in the same way
  std::string message;

  bool ok() const { return code == 0; }
};

// Frees `status`; null is OK.
Outcome TakeOutcome(KrStatus* status);

// A request; null with an outcome that is not OK.
using RequestPtr = std::shared_ptr<const KrRequest>;

// Where the tensors of tickets lie: memory of the framework's, so that ranks of
// a host can read each other's. Both functions are thread-safe.
struct TicketMemory {
  void* (*allocate)(size_t bytes);  // null if there is none
  void (*release)(void* memory);
};

// XLA may reuse an input's buffer as soon as the call that received it returns,
// and says only later where the result goes. So the collective runs in memory
// of the ticket.
class Ticket final {
 public:
  // A tensor as XLA passes it.
  struct Input {
    const void* data;
    size_t bytes;
    int64_t rows;  // 0 of a scalar
  };
  struct Result {
    const void* data;
    size_t bytes;
  };

  explicit Ticket(const TicketMemory& memory) : memory_(memory) {}
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  // Copies the inputs, one per tensor of the request, and hands the request to
  // the runtime of a process set. If that fails, the ticket ends with the
  // error.
  static std::shared_ptr<Ticket> Start(const TicketMemory& memory,
                                       int64_t process_set, KrKind kind,
                                       const RequestPtr& request,
                                       const std::vector<Input>& inputs);
  // A ticket that has ended with an error.
  static std::shared_ptr<Ticket> Failed(const Outcome& outcome);

  // Calls back once the collective has ended: at once, or later on a thread of
  // the runtime, which the callback must not block.
  void OnEnd(std::function<void(const Outcome&)> callback);

  // To be read after a successful end.
  const std::vector<Result>& results() const { return results_; }

 private:
  Outcome Enqueue(int64_t process_set, KrKind kind, const RequestPtr& request,
                  const std::vector<Input>& inputs,
                  const std::shared_ptr<Ticket>& self);
  // Returns memory that the ticket owns, null if there is none. At least a
  // byte, so that null says that.
  void* Allocate(size_t bytes);
  void End(const Outcome& outcome);

  const TicketMemory memory_;
  // Used by the current owner of the collective: Start, then the data thread.
  std::shared_ptr<Ticket> in_flight_;  // this, while the runtime has it
  std::vector<int64_t> row_bytes_;     // by tensor, of results by rows
  std::vector<void*> owned_;
  std::vector<Result> results_;

  std::mutex mutex_;  // of the following
  bool ended_ = false;
  Outcome outcome_;
  std::vector<std::function<void(const Outcome&)>> callbacks_;
};

// The tickets that no call has waited for yet. XLA carries only numbers from
// one call to another, and it may drop those when a program fails; hence a
// table instead of pointers. Thread-safe.
class TicketTable {
 public:
  static TicketTable& OfProcess();

  // Returns a number that no ticket in the table has. It has 32 bits, because
  // JAX has no longer integers unless a program asks for them.
  int32_t Add(std::shared_ptr<Ticket> ticket);
  // Returns null if it has been taken.
  std::shared_ptr<Ticket> Take(int32_t number);

 private:
  std::mutex mutex_;  // of the following
  uint32_t next_ = 1;
  std::map<int32_t, std::shared_ptr<Ticket>> tickets_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_XLA_OPS_TICKET_H_
