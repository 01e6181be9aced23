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
  };
  return rows;
}

}  // namespace keras_ring
