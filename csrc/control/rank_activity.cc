#include "csrc/control/rank_activity.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>

namespace keras_ring {
namespace {

// Named one by one.
constexpr size_t kMaxListed = 3;

// "allreduce 'a', allreduce 'b' and 7 more"
std::string List(const std::vector<const FlightRecord*>& records) {
  std::string text;
  for (size_t i = 0; i < std::min(records.size(), kMaxListed); ++i) {
    text += (i > 0 ? ", " : "") + records[i]->request->Label();
  }
  if (records.size() > kMaxListed) {
    text += " and " + std::to_string(records.size() - kMaxListed) + " more";
  }
  return text;
}

// "; the last that ended, allreduce 'a', did so 3 s ago"
std::string LastEnded(const std::vector<FlightRecord>& records, TimePoint now) {
  const FlightRecord* last = nullptr;
  for (const FlightRecord& record : records) {
    const bool ended = record.state == FlightState::kDone ||
                       record.state == FlightState::kFailed;
    if (ended && (last == nullptr || last->ended <= record.ended)) {
      last = &record;
    }
  }
  if (last == nullptr) return "; none has ended so far";
  return "; the last that ended, " + last->request->Label() +
         (last->state == FlightState::kFailed ? ", failed " : ", did so ") +
         SecondsText(now - last->ended) + " ago";
}

}  // namespace

std::string SecondsText(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s",
                std::chrono::duration<double>(duration).count());
  return text;
}

RankActivity DescribeActivity(const std::vector<FlightRecord>& records,
                              const std::vector<std::string>& names,
                              TimePoint now, const std::string& program) {
  std::vector<const FlightRecord*> waiting, running;
  for (const FlightRecord& record : records) {
    if (record.state == FlightState::kWaiting) waiting.push_back(&record);
    if (record.state == FlightState::kRunning) running.push_back(&record);
  }
  RankActivity activity;
  for (const FlightRecord* record : waiting) {
    if (activity.waits.size() == kMaxActivityNames) break;
    activity.waits.push_back(record->request->name);
  }
  for (const std::string& name : names) {
    activity.knows.push_back(std::any_of(
        records.begin(), records.end(),
        [&](const auto& record) { return record.request->name == name; }));
  }
  activity.text = program;
  const auto next = [&activity] {
    return activity.text.empty() ? "" : ", and ";
  };
  if (!running.empty()) activity.text += next() + ("runs " + List(running));
  if (!waiting.empty()) {
    activity.text += next() + ("waits for " + List(waiting)) + ", for " +
                     SecondsText(now - waiting.front()->submitted);
  }
  if (activity.text.empty()) activity.text = "is in no collective";
  activity.text += LastEnded(records, now);
  activity.text.resize(std::min(activity.text.size(), kMaxActivityBytes));
  return activity;
}

// The words are those of keras_ring/observe/words.py and of the report.
std::string ProgramActivity(const Counters& counters, TimePoint now) {
  constexpr const char* kWords[] = {"", "waits for its input pipeline",
                                    "saves a checkpoint", "evaluates",
                                    "predicts"};
  const uint64_t activity = counters.activity;
  if (activity == 0 || activity >= std::size(kWords)) return "";
  const TimePoint since(std::chrono::duration_cast<Duration>(
      std::chrono::nanoseconds(counters.activity_ns)));
  return std::string(kWords[activity]) + ", for " + SecondsText(now - since);
}

}  // namespace keras_ring
