// XlaTicket: a collective that a compiled program has started.
#ifndef KERAS_RING_TF_OPS_XLA_TICKET_H_
#define KERAS_RING_TF_OPS_XLA_TICKET_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "csrc/capi/keras_ring.h"
#include "tensorflow/core/framework/tensor.h"
#include "tf_ops/request.h"

namespace keras_ring {

// XLA may reuse an input's buffer as soon as the call that received it returns,
// and says only later where the result goes. So the collective runs in memory
// of the ticket.
class XlaTicket final {
 public:
  // A tensor as XLA passes it.
  struct Input {
    const void* data;
    int64_t bytes;
    int64_t rows;  // 0 of a scalar
  };

  // Copies the inputs, one per tensor of the request, and hands the request to
  // the runtime of a process set. If that fails, or `request` is an error, the
  // ticket ends with this error.
  static std::shared_ptr<XlaTicket> Start(
      int64_t process_set, KrKind kind,
      const absl::StatusOr<RequestPtr>& request,
      const std::vector<Input>& inputs);

  // Calls back once the collective has ended: at once, or later on a thread of
  // the runtime, which the callback must not block.
  void OnEnd(std::function<void(const absl::Status&)> callback);

  // The results, as bytes; to be read after a successful end.
  const std::vector<tensorflow::Tensor>& results() const { return results_; }

 private:
  absl::Status Enqueue(int64_t process_set, KrKind kind,
                       const absl::StatusOr<RequestPtr>& request,
                       const std::vector<Input>& inputs,
                       const std::shared_ptr<XlaTicket>& self);
  absl::Status AllocateResult(int result, int64_t rows, void** memory);
  // Ends the collective.
  void End(const absl::Status& status);

  // Used by the current owner of the collective: Start, then the data thread.
  std::shared_ptr<XlaTicket> in_flight_;  // this, while the runtime has it
  std::vector<int64_t> row_bytes_;        // by tensor, of results by rows
  std::vector<tensorflow::Tensor> tensors_;
  std::vector<tensorflow::Tensor> results_;
  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void(const absl::Status&)>> callbacks_
      ABSL_GUARDED_BY(mutex_);
};

// The tickets that no call has waited for yet. XLA carries only numbers from
// one call to another, and it may drop those when a program fails; hence a
// table instead of pointers. Thread-safe.
class XlaTicketTable {
 public:
  static XlaTicketTable& OfProcess();

  int64_t Add(std::shared_ptr<XlaTicket> ticket);
  // Returns null if it has been taken.
  std::shared_ptr<XlaTicket> Take(int64_t number);

 private:
  absl::Mutex mutex_;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<int64_t, std::shared_ptr<XlaTicket>> tickets_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace keras_ring

#endif  // KERAS_RING_TF_OPS_XLA_TICKET_H_
