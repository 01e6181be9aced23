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
  char line[160];
  std::snprintf(line, sizeof(line),
                "links: %.1f us, %.2f Gbit/s in each direction\n",
                links.latency * 1e6, 8e-9 / links.byte);
  std::string text = line;
  text +=
      what + " of\n                   in few hops    in few bytes    is done\n";
  for (size_t bytes = 4; bytes <= size_t{64} << 20; bytes *= 16) {
    const bool few_hops =
        AllreduceTakesFewHops(links, preference, groups, bytes);
    std::snprintf(line, sizeof(line), "%15s %11.1f us %12.1f us    in few %s\n",
                  BytesText(bytes).c_str(),
                  AllreduceFewHopsTime(links, groups, bytes) * 1e6,
                  AllreduceFewBytesTime(links, groups, bytes) * 1e6,
                  few_hops ? "hops" : "bytes");
    text += line;
  }
  return text;
}

}  // namespace keras_ring
