// BucketGate: holds requests back until the bucket that they are planned for
// is complete on this rank.
#ifndef KERAS_RING_CONTROL_BUCKET_GATE_H_
#define KERAS_RING_CONTROL_BUCKET_GATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/control/request.h"

namespace keras_ring {

// One word for a bucket instead of one for each of its tensors: that saves
// waking the control thread and sending a message for each. Nothing is held
// for long: a bucket of which nothing has come for kMaxHold goes on in part,
// and what is not planned goes on at once.
class BucketGate {
 public:
  static constexpr Duration kMaxHold = std::chrono::milliseconds(2);

  // Each bucket: names of requests. Appends to `released` what was held.
  void SetPlan(const std::vector<std::vector<std::string>>& buckets,
               std::vector<RequestPtr>& released);

  // Appends to `released` what may go on: nothing, `request`, or its bucket.
  void Add(const RequestPtr& request, TimePoint now,
           std::vector<RequestPtr>& released);

  bool holds() const { return holding_ > 0; }
  // When something that is held goes on for lack of the rest.
  std::optional<TimePoint> NextRelease() const;
  void ReleaseDue(TimePoint now, std::vector<RequestPtr>& released);

  void Clear() { *this = BucketGate(); }

 private:
  struct Bucket {
    size_t size = 0;
    uint64_t round = 1;
    size_t came = 0;       // in this round
    bool partial = false;  // this round goes on in part
    std::vector<RequestPtr> held;
    TimePoint last;  // when the last of those came
  };
  struct Member {
    int bucket = 0;
    uint64_t round = 0;  // that it last came in
  };

  void Release(Bucket& bucket, std::vector<RequestPtr>& released);

  std::vector<Bucket> buckets_;
  std::unordered_map<std::string, Member> members_;
  size_t holding_ = 0;  // buckets
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_BUCKET_GATE_H_
