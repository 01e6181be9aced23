#include "csrc/comm/transport/silence.h"

#include <algorithm>
#include <chrono>

namespace keras_ring {
namespace {

// "rank 1, rank 2 and 5 more"
std::string Listed(const std::vector<int>& peers, const RankSet& ranks) {
  constexpr size_t kMaxShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(kMaxShown, peers.size()); ++i) {
    if (i > 0) text += ", ";
    text += "rank " + std::to_string(ranks.Global(peers[i]));
  }
  if (peers.size() > kMaxShown) {
    text += " and " + std::to_string(peers.size() - kMaxShown) + " more";
  }
  return text;
}

}  // namespace

std::string SilenceText(const std::vector<int>& senders,
                        const std::vector<int>& receivers,
                        const PlanEvents* events, Duration idle,
                        const RankSet& ranks) {
  const std::string from = Listed(senders, ranks);
  const std::string to = Listed(receivers, ranks);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(idle);
  std::string text =
      "no byte moved for " + std::to_string(milliseconds.count()) + " ms while";
  if (!from.empty()) text += " receiving from " + from;
  if (!from.empty() && !to.empty()) text += " and";
  if (!to.empty()) text += " sending to " + to;
  const std::string awaited = events == nullptr ? "" : events->Awaited();
  if (!awaited.empty()) {
    if (!from.empty() || !to.empty()) text += " and";
    text += " waiting " + awaited;
  }
  return text;
}

}  // namespace keras_ring
