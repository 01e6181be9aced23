#include "csrc/base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace keras_ring {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Result<Options> Parse(const std::map<std::string, std::string>& environment) {
  return Options::Parse(
      [&](const std::string& name) -> std::optional<std::string> {
        auto it = environment.find(name);
        if (it == environment.end()) return std::nullopt;
        return it->second;
      });
}

const std::string kKey(64, 'a');

TEST(Options, EmptyEnvironmentIsAJobOfOne) {
  Result<Options> options = Parse({});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->rank, 0);
  EXPECT_EQ(options->size, 1);
  EXPECT_EQ(options->fusion_threshold, 128 << 20);
  EXPECT_EQ(options->cycle_time_ms, 0.0);
}

TEST(Options, ReadsAll) {
  Result<Options> options = Parse({{"KERAS_RING_RANK", "3"},
                                   {"KERAS_RING_SIZE", "4"},
                                   {"KERAS_RING_RENDEZVOUS", "[::1]:4000"},
                                   {"KERAS_RING_JOB_KEY", kKey},
                                   {"KERAS_RING_FUSION_THRESHOLD", "1024"},
                                   {"KERAS_RING_PLANNED_BUCKET", "512"},
                                   {"KERAS_RING_CYCLE_TIME", "0.5"},
                                   {"KERAS_RING_LOG_LEVEL", "info"}});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->rank, 3);
  EXPECT_EQ(options->rendezvous_host, "::1");
  EXPECT_EQ(options->rendezvous_port, 4000);
  EXPECT_EQ(options->fusion_threshold, 1024);
  EXPECT_EQ(options->planned_bucket, 512);
  EXPECT_EQ(options->cycle_time_ms, 0.5);
  EXPECT_EQ(options->log_level, LogLevel::kInfo);
}

TEST(Options, AHostMayHaveSeveralAddresses) {
  Result<Options> options =
      Parse({{"KERAS_RING_SIZE", "1"},
             {"KERAS_RING_RENDEZVOUS", "[fd00::1],10.0.0.1:4000"}});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->rendezvous_host, "[fd00::1],10.0.0.1");
  EXPECT_EQ(options->rendezvous_port, 4000);
}

TEST(Options, PortsOfTheRanks) {
  Result<Options> options = Parse({{"KERAS_RING_PORT_RANGE", "30000-30003"}});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->port_low, 30000);
  EXPECT_EQ(options->port_high, 30003);
}

TEST(Options, LargeJobsHaveMoreTimeToStart) {
  auto start_timeout = [](const char* size, const char* said) {
    Result<Options> options = Parse({{"KERAS_RING_SIZE", size},
                                     {"KERAS_RING_RANK", "0"},
                                     {"KERAS_RING_RENDEZVOUS", "h:1"},
                                     {"KERAS_RING_JOB_KEY", kKey},
                                     {"KERAS_RING_START_TIMEOUT", said}});
    KR_CHECK(options.ok());
    return options->start_timeout;
  };
  EXPECT_EQ(start_timeout("4", ""), 60.0);
  EXPECT_EQ(start_timeout("4096", ""), 188.0);
  EXPECT_EQ(start_timeout("4096", "7"), 7.0);
}

TEST(Options, MalformedValuesNameTheVariableAndTheValue) {
  const std::pair<const char*, const char*> cases[] = {
      {"KERAS_RING_SIZE", "0"},
      {"KERAS_RING_SIZE", "two"},
      {"KERAS_RING_RANK", "-1"},
      {"KERAS_RING_RANK", " 1"},
      {"KERAS_RING_RANK", "1x"},
      {"KERAS_RING_RENDEZVOUS", "localhost"},
      {"KERAS_RING_RENDEZVOUS", "localhost:0"},
      {"KERAS_RING_RENDEZVOUS", ":12"},
      {"KERAS_RING_RENDEZVOUS", "a,:12"},
      {"KERAS_RING_RENDEZVOUS", "a,,b:12"},
      {"KERAS_RING_PORT_RANGE", "30000"},
      {"KERAS_RING_PORT_RANGE", "0-5"},
      {"KERAS_RING_PORT_RANGE", "7-6"},
      {"KERAS_RING_PORT_RANGE", "7-65536"},
      {"KERAS_RING_FUSION_THRESHOLD", "64M"},
      {"KERAS_RING_FUSION_THRESHOLD", "99999999999999999999"},
      {"KERAS_RING_CYCLE_TIME", "nan"},
      {"KERAS_RING_CYCLE_TIME", "-1"},
      {"KERAS_RING_HEARTBEAT_TIMEOUT", "0"},
      {"KERAS_RING_START_TIMEOUT", "inf"},
      {"KERAS_RING_LOG_LEVEL", "loud"},
      {"KERAS_RING_ALLREDUCE", "rings"},
      {"KERAS_RING_BROADCAST", "ring"},
      {"KERAS_RING_ALLTOALL", "Auto"},
      {"KERAS_RING_DETERMINISTIC", "yes"},
  };
  for (const auto& [variable, value] : cases) {
    Result<Options> options = Parse({{variable, value}});
    ASSERT_FALSE(options.ok()) << variable << "=" << value;
    EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(
        options.status().message(),
        AllOf(HasSubstr(variable), HasSubstr(value), HasSubstr("expected")));
  }
}

TEST(Options, WhatOtherRanksAreToldIsNotTooLong) {
  for (const char* variable : {"KERAS_RING_HOST_ID", "KERAS_RING_INTERFACE"}) {
    EXPECT_TRUE(Parse({{variable, std::string(1024, 'x')}}).ok());
    EXPECT_THAT(
        Parse({{variable, std::string(1025, 'x')}}).status().message(),
        AllOf(HasSubstr(variable), HasSubstr("expected at most 1024 bytes")));
  }
}

TEST(Options, TheKeyIsNeverShown) {
  Result<Options> options = Parse({{"KERAS_RING_JOB_KEY", "secret"}});
  ASSERT_FALSE(options.ok());
  EXPECT_THAT(options.status().message(),
              AllOf(HasSubstr("KERAS_RING_JOB_KEY"), Not(HasSubstr("secret"))));
  options = Parse({{"KERAS_RING_JOB_KEY", kKey}, {"KERAS_RING_SIZE", "1"}});
  ASSERT_TRUE(options.ok());
  EXPECT_THAT(options->Fingerprint(), Not(Contains(HasSubstr(kKey))));
}

TEST(Options, ValuesMustFitTogether) {
  EXPECT_THAT(Parse({{"KERAS_RING_RANK", "2"}, {"KERAS_RING_SIZE", "2"}})
                  .status()
                  .message(),
              HasSubstr("from 0 to size - 1"));
}

TEST(Options, WhatIsDeterministicIsNoRing) {
  const auto parse = [](const char* variable, const char* size) {
    return Parse({{"KERAS_RING_DETERMINISTIC", "1"},
                  {variable, "ring"},
                  {"KERAS_RING_RANK", "0"},
                  {"KERAS_RING_SIZE", size},
                  {"KERAS_RING_RENDEZVOUS", "h:1"},
                  {"KERAS_RING_JOB_KEY", kKey}});
  };
  for (const char* variable :
       {"KERAS_RING_ALLREDUCE", "KERAS_RING_REDUCESCATTER"}) {
    EXPECT_THAT(parse(variable, "2").status().message(),
                AllOf(HasSubstr("KERAS_RING_DETERMINISTIC is 1, but"),
                      HasSubstr(variable)));
  }
  // These add nothing up.
  EXPECT_TRUE(parse("KERAS_RING_ALLGATHER", "2").ok());
  EXPECT_TRUE(parse("KERAS_RING_ALLTOALL", "2").ok());
  // Up to 32 ranks exchange.
  EXPECT_TRUE(parse("KERAS_RING_COLLECTIVE", "32").ok());
  EXPECT_FALSE(parse("KERAS_RING_COLLECTIVE", "33").ok());
}

// A rank that misses a part of what it needs would train alone, or be a second
// rank 0.
TEST(Options, PartsOfARankAreAnErrorThatNamesTheMissingOne) {
  const std::map<std::string, std::string> parts = {
      {"KERAS_RING_RANK", "0"},
      {"KERAS_RING_SIZE", "2"},
      {"KERAS_RING_RENDEZVOUS", "h:1"},
      {"KERAS_RING_JOB_KEY", kKey}};
  for (const auto& [missing, value] : parts) {
    std::map<std::string, std::string> others = parts;
    ASSERT_TRUE(Parse(others).ok());
    others.erase(missing);
    const Result<Options> options = Parse(others);
    EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(options.status().message(), HasSubstr(missing));
    EXPECT_THAT(options.status().message(), HasSubstr("not"));
  }
  // Neither of them means anything alone.
  EXPECT_FALSE(Parse({{"KERAS_RING_RENDEZVOUS", "h:1"}}).ok());
  EXPECT_FALSE(Parse({{"KERAS_RING_JOB_KEY", kKey}}).ok());
  EXPECT_TRUE(Parse({{"KERAS_RING_RENDEZVOUS", "h:1"},
                     {"KERAS_RING_JOB_KEY", kKey},
                     {"KERAS_RING_SIZE", "1"}})
                  .ok());
}

TEST(Options, FingerprintTellsTunablesApart) {
  Result<Options> one = Parse({});
  Result<Options> two = Parse({{"KERAS_RING_CYCLE_TIME", "1"}});
  EXPECT_NE(one->Fingerprint(), two->Fingerprint());
  EXPECT_THAT(two->Fingerprint(), Contains("KERAS_RING_CYCLE_TIME=1"));
}

TEST(Options, FingerprintHasAllDigitsAndNoNegativeZero) {
  auto fingerprint = [](const char* value) {
    return Parse({{"KERAS_RING_STALL_CHECK_TIME", value}})->Fingerprint();
  };
  EXPECT_NE(fingerprint("60"), fingerprint("60.0000001"));
  EXPECT_EQ(fingerprint("0"), fingerprint("-0"));
}

TEST(Options, NothingIsReadInPart) {
  for (const char* variable : {"FUSION_THRESHOLD", "CYCLE_TIME"}) {
    EXPECT_FALSE(
        Parse({{std::string("KERAS_RING_") + variable, std::string("5\0x", 3)}})
            .ok());
  }
}

TEST(Options, OneIsShownAsItIs) {
  const Result<Options> options = Parse({{"KERAS_RING_AUTOTUNE", "1"},
                                         {"KERAS_RING_SIZE", "1"},
                                         {"KERAS_RING_JOB_KEY", kKey}});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(*options->Show("KERAS_RING_AUTOTUNE"), "1");
  EXPECT_EQ(*options->Show("KERAS_RING_AUTOTUNE_WARMUP_SAMPLES"), "3");
  EXPECT_EQ(*options->Show("KERAS_RING_JOB_KEY"), "");
  EXPECT_FALSE(options->Show("AUTOTUNE").ok());
}

TEST(Options, EveryVariableIsDescribedOnce) {
  std::set<std::string> names;
  for (const OptionDescription& option : DescribeOptions()) {
    EXPECT_TRUE(names.insert(option.variable).second);
    EXPECT_FALSE(option.meaning.empty());
  }
  EXPECT_EQ(names.count("KERAS_RING_FUSION_THRESHOLD"), 1u);
}

}  // namespace
}  // namespace keras_ring
