// XlaTicket: a collective that a compiled program has started.
#ifndef KERAS_RING_TF_OPS_XLA_TICKET_H_
#define KERAS_RING_TF_OPS_XLA_TICKET_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "csrc/base/completion.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/control/request.h"
#include "tensorflow/core/framework/tensor.h"

namespace keras_ring {

// XLA may reuse an input's buffer as soon as the call that got it returns, and
// says only later where the result goes. So the collective runs in memory of
// the ticket.
class XlaTicket final : public Completion::Target {
 public:
  // Copies the inputs, one per tensor of the request, and hands the request to
  // the runtime of a process set. A failure to do so is how the ticket ends.
  static std::shared_ptr<XlaTicket> Start(
      int64_t process_set, Request request,
      const std::vector<const void*>& inputs);

  // Calls back once the collective has ended: at once, or later on a thread of
  // the runtime, which the callback must not block.
  void OnEnd(std::function<void(const Status&)> callback);

  // The end of the collective.
  void Complete(const Status& status) override;

  // The results, as bytes; to be read after a good end.
  const std::vector<tensorflow::Tensor>& results() const { return results_; }

 private:
  Status Enqueue(int64_t process_set, Request request,
                 const std::vector<const void*>& inputs,
                 const std::shared_ptr<XlaTicket>& self);

  std::vector<tensorflow::Tensor> tensors_;
  std::vector<tensorflow::Tensor> results_;
  Mutex mutex_;
  bool ended_ KR_GUARDED_BY(mutex_) = false;
  Status status_ KR_GUARDED_BY(mutex_);
  std::vector<std::function<void(const Status&)>> callbacks_
      KR_GUARDED_BY(mutex_);
};

// The tickets that nobody has waited for yet. All that XLA carries from one
// call to another are numbers, and it may drop those when a program fails;
// hence a table instead of pointers. Thread-safe.
class XlaTicketTable {
 public:
  static XlaTicketTable& OfProcess();

  int64_t Add(std::shared_ptr<XlaTicket> ticket);
  // Null if it has been taken.
  std::shared_ptr<XlaTicket> Take(int64_t number);

 private:
  Mutex mutex_;
  int64_t next_ KR_GUARDED_BY(mutex_) = 1;
  std::map<int64_t, std::shared_ptr<XlaTicket>> tickets_ KR_GUARDED_BY(mutex_);
};

}  // namespace keras_ring

#endif  // KERAS_RING_TF_OPS_XLA_TICKET_H_
