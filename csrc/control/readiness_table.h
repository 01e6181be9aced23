// ReadinessTable: the names that a part of a node's subtrees is ready with.
#ifndef KERAS_RING_CONTROL_READINESS_TABLE_H_
#define KERAS_RING_CONTROL_READINESS_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/control/control_tree.h"
#include "csrc/control/last_ready.h"
#include "csrc/control/name_table.h"
#include "csrc/control/participants.h"
#include "csrc/control/request.h"
#include "csrc/control/response_cache.h"
#include "csrc/control/stall_inspector.h"

namespace keras_ring {

class ReadinessTable {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // All of this node's ranks are ready with a slot, all with the same.
    virtual void OnSlotComplete(ResponseCache::Slot slot,
                                std::shared_ptr<const Response> agreed,
                                const LastReady& last) = 0;
    // They are, and differ or name no slot.
    virtual void OnVariantsComplete(const std::string& name,
                                    std::vector<RequestVariant> variants,
                                    const LastReady& last) = 0;
    // A rank has asked for something that may have to wait. `first`: nothing
    // waited before.
    virtual void OnPending(TimePoint now, bool first) = 0;
  };

  // All references must outlive the table.
  ReadinessTable(const ControlTree& tree, const Participants& participants,
                 const ResponseCache& cache, const Clock& clock,
                 Listener& listener)
      : tree_(tree),
        participants_(participants),
        cache_(cache),
        clock_(clock),
        listener_(listener) {}

  struct Contributor {
    int from = 0;          // this rank or a child
    uint64_t sent_at = 0;  // the number of decisions it had applied
    LastReady last;        // of the ranks that it speaks for
  };
  // It is ready with a name. An error if it has said so before.
  Status Contribute(const Contributor& who, ResponseCache::Slot slot,
                    std::shared_ptr<const Response> agreed);
  Status Contribute(const Contributor& who,
                    std::vector<RequestVariant> variants);
  // Completes what has waited only for a rank that has joined.
  void CompleteWithoutJoined();

  // Decision number `sequence` has failed the name.
  void Fail(const std::string& name, uint64_t sequence);
  // What was said of the name when so many decisions were applied is of a use
  // that has failed.
  bool HasFailedSince(const std::string& name, uint64_t sent_at) const;
  // All ranks below have applied the decisions up to this one.
  void ForgetFailed(uint64_t everyone);
  void Clear() {
    by_slot_.Clear();
    pending_.Clear();
  }

  bool empty() const { return pending_.empty(); }
  size_t size() const { return pending_.size(); }
  bool Pends(const std::string& name) const { return pending_.Contains(name); }
  // What waits, in no order.
  std::vector<StalledTensor> List() const;

  // A lower bound for the time since which something pends, so that not every
  // step looks for it: nothing has for longer.
  TimePoint oldest() const { return oldest_; }
  void RefreshOldest(TimePoint now);
  // Contributions up to the next call come at one time: asked for each tensor,
  // the clock would cost more than the tensor.
  void EndBatch() { batch_time_.reset(); }

 private:
  struct Pending {
    // Slot, if every contribution so far named this same one.
    std::optional<ResponseCache::Slot> slot;
    std::shared_ptr<const Response> agreed;  // of the slot
    std::vector<RequestVariant> variants;    // the others
    std::vector<int> from;                   // contributors: self and children
    TimePoint since;                         // the first of them
    TimePoint last;                          // the last of them
    TimePoint first_ready;                   // the first rank of all
    int32_t last_rank = 0;                   // the last one

    void Clear();
  };
  using Entry = NameTable<Pending>::value_type;  // and its name
  struct EntryOfSlot {
    Entry* entry = nullptr;
    void Clear() { entry = nullptr; }
  };

  // The entry to add a contribution to; null if that one belongs to a use of
  // the name that has failed since.
  Entry* EntryFor(const std::string& name, uint64_t sent_at);
  // The same of a name that pends under this slot; null if none does.
  Entry* EntryOf(ResponseCache::Slot slot);
  Status AddContributor(Entry& entry, const Contributor& who);
  // All contributions so far name this slot.
  void SetSlot(Entry& entry, ResponseCache::Slot slot,
               std::shared_ptr<const Response> agreed);
  // They no longer name one.
  void ResetSlot(Pending& pending);
  void Erase(Entry& entry);
  TimePoint BatchTime();
  // The slot no longer stands for all: what it says of these goes in full.
  void ExpandSlot(Pending& pending, int from) const;
  void ExpandOthers(Pending& pending, int from) const;
  void CompleteIfReady(Entry& entry);

  const ControlTree& tree_;
  const Participants& participants_;
  const ResponseCache& cache_;
  const Clock& clock_;
  Listener& listener_;
  // Since a rank joins with nothing under way, none of its contributions is,
  // either: what is complete after its join was decided is so without it.
  NameTable<Pending> pending_;
  // Those with a slot: by it they are found sooner than by the name, which
  // matters where each name has many contributors.
  NameTable<EntryOfSlot, ResponseCache::Slot> by_slot_;
  // Names that a decision has failed, and its number: a contribution sent
  // before the sender knew must not count for the next use.
  std::unordered_map<std::string, uint64_t> failed_;
  TimePoint oldest_;
  std::optional<TimePoint> batch_time_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_READINESS_TABLE_H_
