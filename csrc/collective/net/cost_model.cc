#include "csrc/collective/net/cost_model.h"

#include <algorithm>
#include <cstdio>

namespace keras_ring {
namespace {

double OneShotTime(const LinkModel& links, int size, double bytes) {
  return links.latency + (size - 1) * (links.message + bytes * links.byte);
}

std::string BytesText(size_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

struct Ways {
  double few_hops_time;
  double few_bytes_time;
  bool takes_few_hops;
};

// ways_of(bytes): Ways.
template <typename WaysOf>
std::string Explain(const LinkModel& links, const std::string& what,
                    const WaysOf& ways_of) {
  char line[160];
  std::snprintf(line, sizeof(line),
                "links: %.1f us, %.2f Gbit/s in each direction\n",
                links.latency * 1e6, 8e-9 / links.byte);
  std::string text = line;
  text +=
      what + " of\n                   in few hops    in few bytes    is done\n";
  for (size_t bytes = 4; bytes <= size_t{64} << 20; bytes *= 16) {
    const Ways ways = ways_of(bytes);
    std::snprintf(line, sizeof(line), "%15s %11.1f us %12.1f us    in few %s\n",
                  BytesText(bytes).c_str(), ways.few_hops_time * 1e6,
                  ways.few_bytes_time * 1e6,
                  ways.takes_few_hops ? "hops" : "bytes");
    text += line;
  }
  return text;
}

}  // namespace

double AllreduceFewHopsTime(const LinkModel& links,
                            const std::vector<int>& groups, size_t bytes) {
  double time = 0;
  for (size_t level = 0; level < groups.size(); ++level) {
    const bool is_top = level + 1 == groups.size();
    time += (is_top ? 1 : 2) *
            OneShotTime(links, groups[level], static_cast<double>(bytes));
  }
  return time;
}

double AllreduceFewBytesTime(const LinkModel& links,
                             const std::vector<int>& groups, size_t bytes) {
  double time = 0;
  double part = static_cast<double>(bytes);
  for (size_t level = 0; level < groups.size(); ++level) {
    const int size = groups[level];
    const bool is_pair = level + 1 == groups.size() && size == 2;
    time += is_pair ? OneShotTime(links, size, part)
                    : 2 * OneShotTime(links, size, part / size);
    part /= size;
  }
  return time;
}

bool AllreduceTakesFewHops(const LinkModel& links, Preference preference,
                           const std::vector<int>& groups, size_t bytes) {
  if (groups.size() == 1 && groups.front() <= 2) return true;
  if (preference != Preference::kByModel) {
    return preference == Preference::kFewHops;
  }
  return AllreduceFewHopsTime(links, groups, bytes) <=
         AllreduceFewBytesTime(links, groups, bytes);
}

double PairFewHopsTime(const LinkModel& links, size_t bytes) {
  const auto all = static_cast<double>(bytes);
  return OneShotTime(links, 2, all) + all * links.fold;
}

double PairFewBytesTime(const LinkModel& links, size_t bytes) {
  const double half = static_cast<double>(bytes) / 2;
  return 2 * OneShotTime(links, 2, half) + half * links.fold;
}

bool PairTakesFewHops(const LinkModel& links, Preference preference,
                      size_t bytes) {
  if (preference != Preference::kByModel) {
    return preference == Preference::kFewHops;
  }
  return PairFewHopsTime(links, bytes) <= PairFewBytesTime(links, bytes);
}

double BroadcastFewHopsTime(const LinkModel& links, int size, size_t bytes) {
  return OneShotTime(links, size, static_cast<double>(bytes));
}

double BroadcastFewBytesTime(const LinkModel& links, int size, size_t bytes,
                             size_t segment) {
  const double first = static_cast<double>(std::min(bytes, segment));
  return (size - 1) * (links.latency + links.message + first * links.byte) +
         (static_cast<double>(bytes) - first) * links.byte;
}

bool BroadcastTakesFewHops(const LinkModel& links, Preference preference,
                           int size, size_t bytes, size_t segment) {
  if (preference != Preference::kByModel) {
    return preference == Preference::kFewHops;
  }
  return BroadcastFewHopsTime(links, size, bytes) <=
         BroadcastFewBytesTime(links, size, bytes, segment);
}

std::string ExplainAllreduce(const LinkModel& links, Preference preference,
                             const std::vector<int>& groups,
                             const std::string& what) {
  return Explain(links, what, [&](size_t bytes) {
    return Ways{AllreduceFewHopsTime(links, groups, bytes),
                AllreduceFewBytesTime(links, groups, bytes),
                AllreduceTakesFewHops(links, preference, groups, bytes)};
  });
}

std::string ExplainPair(const LinkModel& links, Preference preference,
                        const std::string& what) {
  return Explain(links, what, [&](size_t bytes) {
    return Ways{PairFewHopsTime(links, bytes), PairFewBytesTime(links, bytes),
                PairTakesFewHops(links, preference, bytes)};
  });
}

}  // namespace keras_ring
