#include "csrc/collective/net/measure_links.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/comm/transport/deadline_events.h"

namespace keras_ring {
namespace {

constexpr int kShortRounds = 12;
constexpr size_t kShortBytes = 8;
// Enough for a connection to reach its speed, and little on a slow one.
constexpr int kLongRounds = 4;
constexpr size_t kLongBytes = size_t{256} << 10;

class Line {
 public:
  Line(Transport& transport, const std::vector<int>& ranks,
       DeadlineEvents& limit)
      : transport_(transport), limit_(limit) {
    const size_t own =
        std::find(ranks.begin(), ranks.end(), transport.rank()) - ranks.begin();
    next_ = ranks[(own + 1) % ranks.size()];
    previous_ = ranks[(own + ranks.size() - 1) % ranks.size()];
  }

  // The seconds that each of some shifts by one takes.
  Result<std::vector<double>> Shift(int rounds, size_t bytes) {
    std::vector<char> out(bytes), in(bytes);
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
      SendReceivePlan plan;
      plan.tag = ++tag_;
      plan.outgoing.push_back({next_, {{out.data(), bytes}}, 1});
      plan.incoming.push_back({previous_, {{in.data(), bytes}}, 1});
      plan.events = &limit_;
      const TimePoint began = std::chrono::steady_clock::now();
      KR_RETURN_IF_ERROR(transport_.Run(plan));
      times.push_back(std::chrono::duration<double>(
                          std::chrono::steady_clock::now() - began)
                          .count());
    }
    return times;
  }

 private:
  Transport& transport_;
  DeadlineEvents& limit_;
  int next_;
  int previous_;
  uint64_t tag_ = 0;
};

}  // namespace

Result<LinkModel> MeasureLinks(Transport& transport,
                               const std::vector<int>& line,
                               Deadline deadline) {
  KR_ASSIGN_OR_RETURN(
      DeadlineEvents limit,
      DeadlineEvents::Create(deadline, "the measurement of links"));
  Line ranks(transport, line, limit);
  KR_ASSIGN_OR_RETURN(std::vector<double> times,
                      ranks.Shift(kShortRounds, kShortBytes));
  LinkModel links;
  std::sort(times.begin(), times.end());
  const double one = times[times.size() / 2];
  links.latency = std::max(one - 2 * links.message, 1e-6);
  KR_ASSIGN_OR_RETURN(times, ranks.Shift(kLongRounds, kLongBytes));
  const double many = *std::min_element(times.begin(), times.end());
  // 1,000 Gbit/s, if the long ones took no longer than the short ones.
  links.byte = std::max((many - one) / kLongBytes, 8e-12);
  return links;
}

Result<LinkModel> AgreeOnLinks(Mesh& mesh, const LinkModel* own,
                               Deadline deadline) {
  // Whole picoseconds and femtoseconds: numbers that no locale changes.
  std::string text;
  if (own != nullptr) {
    text = std::to_string(std::llround(own->latency * 1e12)) + " " +
           std::to_string(std::llround(own->byte * 1e15));
  }
  KR_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      mesh.Exchange(text, deadline));
  std::optional<LinkModel> slowest;
  for (const std::string& each : all) {
    long long latency, byte;
    if (std::sscanf(each.c_str(), "%lld %lld", &latency, &byte) != 2) continue;
    LinkModel links;
    links.latency = static_cast<double>(latency) * 1e-12;
    links.byte = static_cast<double>(byte) * 1e-15;
    if (!slowest) slowest = links;
    slowest->latency = std::max(slowest->latency, links.latency);
    slowest->byte = std::max(slowest->byte, links.byte);
  }
  return slowest.value_or(LinkModel());
}

Result<LinkModel> MeasureAndAgree(Transport& transport,
                                  const std::vector<int>& line, Mesh& mesh,
                                  Deadline deadline) {
  if (line.size() < 2) return AgreeOnLinks(mesh, nullptr, deadline);
  KR_ASSIGN_OR_RETURN(const LinkModel own,
                      MeasureLinks(transport, line, deadline));
  return AgreeOnLinks(mesh, &own, deadline);
}

}  // namespace keras_ring
