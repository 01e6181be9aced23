#include "csrc/control/flight_recorder.h"

#include <algorithm>

namespace keras_ring {

const char* FlightStateName(FlightState state) {
  constexpr const char* kNames[] = {"waiting", "running", "done", "failed"};
  return kNames[static_cast<int>(state)];
}

FlightRecorder::FlightRecorder(size_t capacity, Counters* counters)
    : counters_(counters), records_(std::max<size_t>(capacity, 1)) {}

void FlightRecorder::Submitted(TensorEntry& entry) {
  if (counters_ != nullptr) {
    ++counters_->pending;
    const uint64_t now = SteadyNanoseconds(entry.submitted);
    const uint64_t began = counters_->began_ns.load(std::memory_order_relaxed);
    counters_->submitted_ns.store(now, std::memory_order_relaxed);
    counters_->submitted_execute_ns.store(
        counters_->execute_ns.load(std::memory_order_relaxed) +
            (began != 0 && now > began ? now - began : 0),
        std::memory_order_relaxed);
  }
  MutexLock lock(mutex_);
  entry.flight = ++last_;
  FlightRecord& record = records_[last_ % records_.size()];
  record.number = last_;
  record.request = entry.request;
  record.state = FlightState::kWaiting;
  record.decision = 0;
  record.last = LastReady();
  record.error.clear();
  record.submitted = entry.submitted;
  record.decided = record.ended = TimePoint();
}

void FlightRecorder::Decided(const std::vector<TensorEntry>& entries,
                             uint64_t decision, const LastReady& last,
                             TimePoint now) {
  MutexLock lock(mutex_);
  for (const TensorEntry& entry : entries) {
    FlightRecord* record = Find(entry);
    if (record == nullptr) continue;
    record->state = FlightState::kRunning;
    record->decision = decision;
    record->last = last;
    record->decided = now;
  }
}

void FlightRecorder::Ended(const std::vector<TensorEntry>& entries,
                           const Status& status, TimePoint now) {
  if (counters_ != nullptr && !entries.empty()) {
    // Placeholders of a rank that has joined were never asked for.
    const auto asked = std::count_if(
        entries.begin(), entries.end(),
        [](const TensorEntry& entry) { return entry.flight != 0; });
    counters_->pending -= static_cast<uint64_t>(asked);
    counters_->done_ns.store(SteadyNanoseconds(now), std::memory_order_relaxed);
  }
  MutexLock lock(mutex_);
  for (const TensorEntry& entry : entries) {
    FlightRecord* record = Find(entry);
    if (record == nullptr) continue;
    record->state = status.ok() ? FlightState::kDone : FlightState::kFailed;
    record->ended = now;
    if (!status.ok()) record->error = status.ToString();
  }
}

std::vector<FlightRecord> FlightRecorder::Records() const {
  std::vector<FlightRecord> records;
  MutexLock lock(mutex_);
  const uint64_t size = records_.size();
  for (uint64_t n = last_ > size ? last_ - size + 1 : 1; n <= last_; ++n) {
    records.push_back(records_[n % size]);
  }
  return records;
}

FlightRecord* FlightRecorder::Find(const TensorEntry& entry) {
  FlightRecord& record = records_[entry.flight % records_.size()];
  return entry.flight != 0 && record.number == entry.flight ? &record : nullptr;
}

}  // namespace keras_ring
