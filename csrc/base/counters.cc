#include "csrc/base/counters.h"

namespace keras_ring {

const std::vector<CounterDescription>& DescribeCounters() {
  static const auto& rows = *new std::vector<CounterDescription>{
      {"control_bytes_sent", "bytes", "of negotiation, to other ranks",
       &Counters::control_bytes_sent},
      {"control_bytes_received", "bytes", "of negotiation, from other ranks",
       &Counters::control_bytes_received},
      {"control_messages_sent", "messages", "of negotiation, to other ranks",
       &Counters::control_messages_sent},
      {"data_bytes_sent", "bytes", "of tensors, to other ranks",
       &Counters::data_bytes_sent},
      {"data_bytes_received", "bytes", "of tensors, from other ranks",
       &Counters::data_bytes_received},
      {"buckets", "buckets", "that were executed", &Counters::buckets},
      {"entries", "tensors", "in those buckets", &Counters::entries},
      {"cache_hits", "requests", "that the response cache knew",
       &Counters::cache_hits},
      {"cache_misses", "requests", "that had to be described in full",
       &Counters::cache_misses},
      {"last_buckets", "buckets",
       "that waited for this rank: of all it was the last to be ready",
       &Counters::last_buckets},
      {"late_ns", "ns",
       "from the first rank that was ready until this one was; the sum over "
       "those buckets",
       &Counters::late_ns},
      {"rejected_connections", "connections",
       "that were turned away, for they did not know the job's key",
       &Counters::rejected_connections},
      {"steps", "steps",
       "of the training, each with the same tensors as the one before; this "
       "and "
       "the next three on rank 0 only",
       &Counters::steps},
      {"step_ns", "ns",
       "in these steps, from the first tensor to that of the next",
       &Counters::step_ns},
      {"step_bytes", "bytes", "of the tensors of these steps",
       &Counters::step_bytes},
      {"step_tensors", "tensors", "in these steps", &Counters::step_tensors},
      {"negotiate_ns", "ns",
       "from the submission of a tensor until all ranks have agreed on it; the "
       "sum over tensors",
       &Counters::negotiate_ns},
      {"queue_ns", "ns",
       "from then until its bucket is begun; the sum over tensors",
       &Counters::queue_ns},
      {"execute_ns", "ns", "from then until it is done; the sum over buckets",
       &Counters::execute_ns},
      {"wait_ns", "ns", "of that, in which buckets waited for other ranks",
       &Counters::wait_ns},
      {"pack_ns", "ns",
       "in which tensors were copied to where other ranks read them",
       &Counters::pack_ns},
      {"reduce_ns", "ns", "in which numbers were combined",
       &Counters::reduce_ns},
      {"unpack_ns", "ns", "in which results were copied into tensors",
       &Counters::unpack_ns},
      {"callback_ns", "ns", "in which the framework's operations were finished",
       &Counters::callback_ns},
      {"pending", "tensors",
       "that this rank has asked for, and that are not finished: now, as the "
       "seven numbers after it are",
       &Counters::pending},
      {"submitted_ns", "ns",
       "the steady clock of this host when a tensor was last asked for; 0: "
       "never",
       &Counters::submitted_ns},
      {"done_ns", "ns", "the same of when one was last finished",
       &Counters::done_ns},
      {"submitted_execute_ns", "ns",
       "what execute_ns was when a tensor was last asked for, with the bucket "
       "that ran: of a step, the part that computation has hidden",
       &Counters::submitted_execute_ns},
      {"began_ns", "ns",
       "the steady clock of this host when the bucket that runs was begun; 0: "
       "none runs",
       &Counters::began_ns},
      {"activity", "kind",
       "what the program does: 0 computing, 1 waiting for its input pipeline, "
       "2 writing or reading a checkpoint, 3 evaluating, 4 predicting",
       &Counters::activity},
      {"activity_ns", "ns", "the steady clock of this host since when it does",
       &Counters::activity_ns},
      {"epoch", "epochs", "that `fit` has begun", &Counters::epoch},
      {"fit_steps", "steps", "of `fit` that have ended", &Counters::fit_steps},
      {"samples", "samples",
       "that the program has taken from its input pipeline on this rank, other "
       "than to evaluate or predict",
       &Counters::samples},
      {"fit_ns", "ns", "inside of `fit`", &Counters::fit_ns},
      {"data_wait_ns", "ns",
       "in which the program waited for its input pipeline",
       &Counters::data_wait_ns},
      {"checkpoint_ns", "ns", "in which it wrote or read checkpoints",
       &Counters::checkpoint_ns},
      {"evaluate_ns", "ns", "in which it evaluated", &Counters::evaluate_ns},
  };
  return rows;
}

void CarryOver(const Counters& ended, Counters& counters) {
  for (const CounterDescription& row : DescribeCounters()) {
    (counters.*row.count) = (ended.*row.count).load(std::memory_order_relaxed);
  }
  counters.pending = 0;
  counters.began_ns = 0;
}

Counters::Count* FindCounter(Counters& counters, std::string_view name) {
  for (const CounterDescription& row : DescribeCounters()) {
    if (row.name == name) return &(counters.*row.count);
  }
  return nullptr;
}

}  // namespace keras_ring
