// Options, from variables with any values.
#include <map>

#include "csrc/base/options.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

using Environment = std::map<std::string, std::string>;

Result<Options> ParseFrom(const Environment& environment) {
  return Options::Parse(
      [&](const std::string& name) -> std::optional<std::string> {
        auto it = environment.find(name);
        if (it == environment.end()) return std::nullopt;
        return it->second;
      });
}

void CheckLimits(const Options& options) {
  KR_CHECK(options.rank >= 0 && options.rank < options.size);
  KR_CHECK(options.size == 1 ||
           (!options.rendezvous_host.empty() && options.rendezvous_port > 0 &&
            options.job_key.size() == 64));
  KR_CHECK(options.fusion_threshold >= 0 && options.planned_bucket >= 0);
  KR_CHECK(options.cache_capacity >= 0 && options.cache_capacity <= 1 << 20);
  for (double time : {options.cycle_time_ms, options.stall_check_time,
                      options.stall_shutdown_time, options.heartbeat_timeout,
                      options.start_timeout}) {
    KR_CHECK(time >= 0 && time <= 1e8);
  }
  KR_CHECK(options.heartbeat_timeout > 0 && options.start_timeout > 0);
  KR_CHECK(options.log_level >= LogLevel::kDebug &&
           options.log_level <= LogLevel::kOff);
}

void CheckError(const Environment& environment, const Status& status) {
  KR_CHECK(status.code() == StatusCode::kInvalidArgument);
  KR_CHECK(status.message().find("KERAS_RING_") != std::string::npos);
  // A wrong key is not shown: what is said of it is said of any other.
  static const std::string key = "KERAS_RING_JOB_KEY";
  if (status.message().rfind(key, 0) != 0) return;
  Environment other = environment;
  other[key] = "another wrong key";
  KR_CHECK(ParseFrom(other).status() == status);
}

// What ranks compare must tell apart whatever is read differently.
void CheckFingerprint(const Environment& environment, const Options& options) {
  Environment shown = environment;
  for (const std::string& item : options.Fingerprint()) {
    const size_t equals = item.find('=');
    shown[item.substr(0, equals)] = item.substr(equals + 1);
  }
  Result<Options> again = ParseFrom(shown);
  KR_CHECK(again.ok());
  KR_CHECK(again->Fingerprint() == options.Fingerprint());
  KR_CHECK(again->size == options.size);
  KR_CHECK(again->fusion_threshold == options.fusion_threshold);
  KR_CHECK(again->planned_bucket == options.planned_bucket);
  KR_CHECK(again->cycle_time_ms == options.cycle_time_ms);
  KR_CHECK(again->cache_capacity == options.cache_capacity);
  KR_CHECK(again->stall_check_time == options.stall_check_time);
  KR_CHECK(again->stall_shutdown_time == options.stall_shutdown_time);
  KR_CHECK(again->heartbeat_timeout == options.heartbeat_timeout);
  KR_CHECK(again->collective == options.collective);
}

void Run(Script script) {
  static const std::vector<OptionDescription> variables = DescribeOptions();
  Environment environment;
  while (!script.AtEnd()) {
    const int i = script.Choice(static_cast<int>(variables.size()));
    environment[variables[i].variable] = script.Text();
  }
  const Result<Options> options = ParseFrom(environment);
  if (!options.ok()) return CheckError(environment, options.status());
  CheckLimits(options.value());
  CheckFingerprint(environment, options.value());
}

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  keras_ring::Run(keras_ring::Script(keras_ring::AsText(data, size)));
  return 0;
}
