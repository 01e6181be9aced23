#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <limits>
#include <string>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/logging.h"
#include "csrc/base/status.h"
#include "csrc/capi/keras_ring.h"

namespace keras_ring {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// What a status says, "OK" of null; frees it.
std::string Text(KrStatus* status) {
  std::string text = KrStatusCodeName(status);
  if (status != nullptr) text += std::string(": ") + KrStatusMessage(status);
  KrStatusFree(status);
  return text;
}

// A sum of `shape` float32.
struct Spec {
  explicit Spec(std::vector<int64_t> dimensions)
      : shape(std::move(dimensions)) {
    tensor = {static_cast<int32_t>(DType::kFloat32),
              static_cast<int32_t>(shape.size()), shape.data()};
    KrRequestSpecInit(&spec);
    spec.name = "a";
    spec.name_bytes = 1;
    spec.tensors = &tensor;
    spec.num_tensors = 1;
  }
  Spec(const Spec&) = delete;

  std::string Create() {
    KrRequest* request = nullptr;
    const std::string text = Text(KrRequestCreate(&spec, &request));
    EXPECT_EQ(request != nullptr, text == "OK");
    KrRequestFree(request);
    return text;
  }

  std::vector<int64_t> shape;
  KrTensorSpec tensor;
  KrRequestSpec spec;
};

// An operation on the job of all ranks: how it ended, or why it did not begin.
class Call {
 public:
  std::string Run(const Spec& spec, int64_t process_set = 0) {
    KrRequest* request = nullptr;
    EXPECT_EQ(Text(KrRequestCreate(&spec.spec, &request)), "OK");
    KrRuntimeLookup* const lookup = KrRuntimeLookupCreate(process_set);
    operation.context = this;
    operation.done = [](void* context, const KrStatus* status) {
      std::string text = KrStatusCodeName(status);
      if (status != nullptr) text += ": ";
      static_cast<Call*>(context)->ended_.set_value(text +
                                                    KrStatusMessage(status));
    };
    KrStatus* const refused = KrEnqueue(lookup, request, &operation);
    KrRuntimeLookupFree(lookup);
    KrRequestFree(request);
    if (refused != nullptr) return "refused: " + Text(refused);
    return ended_.get_future().get();
  }

  KrOperation operation = {};
  std::vector<float> input;
  std::vector<float> output;

 private:
  std::promise<std::string> ended_;
};

class Job : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(Text(KrInit(nullptr, 0, nullptr, 0)), "OK");
  }
  void TearDown() override { KrShutdown(""); }
};

TEST(CStatus, IsACodeAndAText) {
  EXPECT_EQ(KrStatusCode(nullptr), 0);
  EXPECT_STREQ(KrStatusCodeName(nullptr), "OK");
  EXPECT_STREQ(KrStatusMessage(nullptr), "");
  KrStatus* const status = KrStatusCreate(14, "rank 2 is gone");
  EXPECT_EQ(KrStatusCode(status), 14);
  EXPECT_EQ(Text(status), "UNAVAILABLE: rank 2 is gone");
}

TEST(CStatus, OfNoErrorIsInternal) {
  for (int32_t code : {0, -1, 99, 256 + 14, std::numeric_limits<int>::max()}) {
    EXPECT_EQ(Text(KrStatusCreate(code, "x")), "INTERNAL: x") << code;
  }
}

TEST(CRequest, IsMadeOfItsSpec) {
  Spec spec({2, 3});
  KrRequest* request = nullptr;
  ASSERT_EQ(Text(KrRequestCreate(&spec.spec, &request)), "OK");
  EXPECT_STREQ(KrRequestLabel(request), "allreduce 'a'");
  KrRequestFree(request);
}

TEST(CRequest, ADefaultIsASumByFactorsOfOne) {
  KrRequestSpec spec;
  std::memset(&spec, 0xff, sizeof(spec));
  KrRequestSpecInit(&spec);
  EXPECT_EQ(spec.kind, KR_ALLREDUCE);
  EXPECT_EQ(spec.reduce_op, KR_SUM);
  EXPECT_EQ(spec.prescale, 1.0);
  EXPECT_EQ(spec.postscale, 1.0);
  EXPECT_EQ(spec.generation, -1);
  EXPECT_EQ(spec.num_tensors, 0u);
}

TEST(CRequest, NumbersThatMeanNothingAreRefused) {
  for (int32_t number : {-1, 1000}) {
    const std::string text = std::to_string(number);
    const auto refused = [&](const char* what) {
      return AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr(what),
                   HasSubstr(text));
    };
    {
      Spec spec({2});
      spec.spec.kind = number;
      EXPECT_THAT(spec.Create(), refused("kind"));
    }
    {
      Spec spec({2});
      spec.spec.reduce_op = number;
      EXPECT_THAT(spec.Create(), refused("reduce op"));
    }
    {
      Spec spec({2});
      spec.spec.compression = number;
      EXPECT_THAT(spec.Create(), refused("compression"));
    }
    {
      Spec spec({2});
      spec.spec.device = number;
      EXPECT_THAT(spec.Create(), refused("device kind"));
    }
    {
      Spec spec({2});
      spec.tensor.dtype = number;
      EXPECT_THAT(spec.Create(), refused("element type"));
    }
  }
  EXPECT_THAT(Spec({2, -5}).Create(), HasSubstr("a dimension of -5"));
  Spec spec({2});
  spec.tensor.num_dimensions = -1;
  EXPECT_THAT(spec.Create(), HasSubstr("-1 dimensions"));
}

TEST(CSettings, OneThatCannotBeIsNamed) {
  const auto said = [](const char* variable, const char* value) {
    const KrSetting setting = {variable, value};
    return Text(KrCheckSettings(&setting, 1));
  };
  EXPECT_EQ(Text(KrCheckSettings(nullptr, 0)), "OK");
  EXPECT_EQ(said("KERAS_RING_TLS", "1"), "OK");
  EXPECT_THAT(said("KERAS_RING_TLS", "yes"),
              HasSubstr("KERAS_RING_TLS is 'yes': expected 0 or 1"));
  EXPECT_EQ(said("KERAS_RING_COLLECTIVE", "ring"), "OK");
  EXPECT_THAT(said("KERAS_RING_COLLECTIVE", "pigeon"), HasSubstr("'pigeon'"));
}

TEST(CRequest, NamesAreBytesOfSomeLength) {
  EXPECT_EQ(Text(KrCheckName("a\0b", 3)), "OK");
  EXPECT_THAT(Text(KrCheckName("", 0)), HasSubstr("received 0"));
  const std::string longest(4096, 'x');
  EXPECT_EQ(Text(KrCheckName(longest.data(), 4096)), "OK");
  Spec spec({2});
  spec.spec.name_bytes = 0;
  EXPECT_THAT(spec.Create(), HasSubstr("received 0"));
}

TEST(CDTypes, AreThoseOfTheCore) {
  const KrDType* rows;
  ASSERT_EQ(KrDTypes(&rows), size_t{kNumDTypes});
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_STREQ(rows[i].name, DTypeName(dtype));
    EXPECT_EQ(rows[i].bytes, DTypeSize(dtype));
    EXPECT_EQ(rows[i].reducible, IsReducible(dtype));
  }
}

TEST(CEnqueue, WithoutAJobIsRefusedAndNeverDone) {
  Call call;
  EXPECT_THAT(call.Run(Spec({1})),
              AllOf(HasSubstr("refused: FAILED_PRECONDITION"),
                    HasSubstr("collective 'a'"), HasSubstr("init()")));
  KrTopology topology;
  EXPECT_THAT(Text(KrGetTopology(&topology)), HasSubstr("not initialized"));
  uint32_t number;
  EXPECT_THAT(Text(KrAddProcessSets(nullptr, nullptr, 0, &number)),
              HasSubstr("not initialized"));
  EXPECT_THAT(Text(KrRemoveProcessSet(1)), HasSubstr("not initialized"));
  EXPECT_THAT(Text(KrReadMetrics(nullptr)), HasSubstr("not initialized"));
  EXPECT_EQ(Text(KrJobStatus()), "OK");
  EXPECT_THAT(Text(KrExplain(0, nullptr, nullptr)),
              HasSubstr("not initialized"));
  EXPECT_THAT(Text(KrReadOption("KERAS_RING_SIZE", nullptr, nullptr)),
              HasSubstr("not initialized"));
  EXPECT_THAT(Text(KrTunables(nullptr, nullptr)), HasSubstr("not initialized"));
  EXPECT_THAT(Text(KrTune("linger", 1)), HasSubstr("not initialized"));
  KrShutdown("");
}

// A program that a rank has started: it knows the rank, and is none.
TEST(CInitChild, KnowsItsParentAndHasNoPartInTheJob) {
  const KrTopology parent = {2, 4, 1, 2, 1, 2, true, 0};
  ASSERT_EQ(Text(KrInitChild(&parent, 4711)), "OK");
  EXPECT_TRUE(KrIsInitialized());
  KrTopology topology = {};
  ASSERT_EQ(Text(KrGetTopology(&topology)), "OK");
  EXPECT_EQ(topology.rank, 2);
  EXPECT_EQ(topology.size, 4);
  EXPECT_EQ(topology.local_rank, 1);
  EXPECT_EQ(topology.local_size, 2);
  EXPECT_EQ(topology.cross_rank, 1);
  EXPECT_EQ(topology.cross_size, 2);
  EXPECT_TRUE(topology.homogeneous);
  const auto started = HasSubstr("was started by rank 2 (pid 4711)");
  Call call;
  EXPECT_THAT(call.Run(Spec({1})),
              AllOf(HasSubstr("refused: FAILED_PRECONDITION"),
                    HasSubstr("collective 'a'"), started,
                    HasSubstr("KERAS_RING_SIZE=1")));
  uint32_t number;
  EXPECT_THAT(Text(KrAddProcessSets(nullptr, nullptr, 0, &number)), started);
  EXPECT_THAT(Text(KrExplain(0, nullptr, nullptr)), started);
  EXPECT_THAT(Text(KrTune("linger", 1)), started);
  const KrMetric* rows;
  std::vector<uint64_t> values(KrMetrics(&rows), 7);
  EXPECT_EQ(Text(KrReadMetrics(values.data())), "OK");
  EXPECT_THAT(values, Each(0));
  EXPECT_FALSE(KrIsTracing());
  EXPECT_EQ(Text(KrCount("buckets", 1)), "OK");
  EXPECT_THAT(Text(KrInit(nullptr, 0, nullptr, 0)),
              HasSubstr("initialized already"));
  KrShutdown("");
  EXPECT_FALSE(KrIsInitialized());
  EXPECT_THAT(Text(KrGetTopology(&topology)), HasSubstr("not initialized"));
}

TEST_F(Job, SaysHowItWorks) {
  std::string text;
  EXPECT_EQ(Text(KrExplain(
                KR_DEVICE_HOST,
                [](void* context, const char* lines) {
                  static_cast<std::string*>(context)->append(lines);
                },
                &text)),
            "OK");
  EXPECT_THAT(text, HasSubstr("1 rank"));
  EXPECT_THAT(Text(KrExplain(7, nullptr, nullptr)),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("kind 7")));
}

// On any host: with a driver or without.
TEST(CGpus, AreListedOrItIsToldWhyNot) {
  int gpus = 0;
  const std::string listed = Text(KrGpus(
      [](void* context, const KrGpu* gpu) {
        EXPECT_EQ(gpu->ordinal, (*static_cast<int*>(context))++);
        EXPECT_STRNE(gpu->name, "");
      },
      &gpus));
  int32_t driver = 0;
  int32_t nccl = 0;
  const std::string versions = Text(KrGpuVersions(&driver, &nccl));
  EXPECT_EQ(listed, versions);
  if (listed == "OK") {
    EXPECT_GE(driver, 12000);
  } else {
    EXPECT_THAT(listed, AllOf(HasSubstr("FAILED_PRECONDITION"),
                              HasSubstr("NVIDIA driver")));
    EXPECT_EQ(gpus, 0);
  }
}

std::vector<std::string> Tunables() {
  std::vector<std::string> rows;
  EXPECT_EQ(Text(KrTunables(
                [](void* context, const KrTunable* row) {
                  static_cast<std::vector<std::string>*>(context)->push_back(
                      row->name + ("=" + std::to_string(row->value)) + " " +
                      row->unit);
                },
                &rows)),
            "OK");
  return rows;
}

TEST_F(Job, IsTuned) {
  EXPECT_THAT(Tunables(),
              testing::ElementsAre("fusion_threshold=134217728 bytes",
                                   "linger=0 microseconds",
                                   "planned_bucket=16777216 bytes"));
  EXPECT_EQ(Text(KrTune("linger", 200)), "OK");
  EXPECT_THAT(Tunables(), testing::Contains("linger=200 microseconds"));
  EXPECT_THAT(Text(KrTune("linger", -1)), HasSubstr("linger cannot be -1"));
  EXPECT_THAT(Text(KrTune("x", 1)), HasSubstr("no 'x' to tune"));
}

TEST_F(Job, TellsWhatItsOptionsAre) {
  std::string value;
  const auto keep = [](void* context, const char* text) {
    *static_cast<std::string*>(context) = text;
  };
  EXPECT_EQ(
      Text(KrReadOption("KERAS_RING_AUTOTUNE_WARMUP_SAMPLES", keep, &value)),
      "OK");
  EXPECT_EQ(value, "3");
  EXPECT_THAT(Text(KrReadOption("KERAS_RING_X", keep, &value)),
              HasSubstr("no option 'KERAS_RING_X'"));
}

TEST_F(Job, ASecondOneIsRefused) {
  EXPECT_THAT(Text(KrInit(nullptr, 0, nullptr, 0)),
              HasSubstr("initialized already"));
  EXPECT_TRUE(KrIsInitialized());
}

TEST_F(Job, OperationsWaitUntilTheirTensorsAreReady) {
  Call call;
  call.input = {0, 0};
  call.output = {0, 0};
  const void* inputs[] = {call.input.data()};
  void* outputs[] = {call.output.data()};
  call.operation.inputs = inputs;
  call.operation.outputs = outputs;
  call.operation.wait_until_ready = [](void* context) {
    static_cast<Call*>(context)->input = {1, 2};
  };
  EXPECT_EQ(call.Run(Spec({2})), "OK");
  EXPECT_EQ(call.output, (std::vector<float>{1, 2}));
}

// No other rank has heard of it, and what comes next is reduced.
TEST_F(Job, TensorsOfADeviceThatIsNotThereAreRefused) {
  Spec spec({2});
  spec.spec.device = KR_DEVICE_CUDA;
  Call there;
  const void* nowhere[] = {nullptr};
  void* nor_results[] = {nullptr};
  there.operation.inputs = nowhere;
  there.operation.outputs = nor_results;
  there.operation.device_ordinal = 3;
  EXPECT_THAT(there.Run(spec),
              AllOf(HasSubstr("refused: INVALID_ARGUMENT"),
                    HasSubstr("allreduce 'a' of rank 0"), HasSubstr("gpu:3"),
                    HasSubstr("there is no")));
  Call here;
  here.input = {1, 2};
  here.output = {0, 0};
  const void* inputs[] = {here.input.data()};
  void* outputs[] = {here.output.data()};
  here.operation.inputs = inputs;
  here.operation.outputs = outputs;
  EXPECT_EQ(here.Run(Spec({2})), "OK");
  EXPECT_EQ(here.output, (std::vector<float>{1, 2}));
  EXPECT_EQ(Text(KrJobStatus()), "OK");
}

TEST_F(Job, MemoryThatIsNotGivenIsHowAnOperationEnds) {
  Call call;
  call.input = {1, 2};
  const void* inputs[] = {call.input.data()};
  call.operation.inputs = inputs;
  call.operation.allocate = [](void*, int32_t, int64_t, void**) {
    return KrStatusCreate(8, "no memory for a result");
  };
  Spec spec({2});
  spec.spec.kind = KR_ALLGATHER;
  EXPECT_THAT(call.Run(spec), AllOf(HasSubstr("RESOURCE_EXHAUSTED"),
                                    HasSubstr("no memory for a result")));
}

TEST_F(Job, ErrorsOfTheRanksTogetherEndAnOperation) {
  Call call;
  call.input = {1, 2};
  call.output = {0, 0};
  const void* inputs[] = {call.input.data()};
  void* outputs[] = {call.output.data()};
  call.operation.inputs = inputs;
  call.operation.outputs = outputs;
  Spec spec({2});
  spec.spec.kind = KR_BROADCAST;
  spec.spec.root = 7;
  EXPECT_THAT(call.Run(spec),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("7")));
}

TEST_F(Job, SetsHaveMembers) {
  for (const char* what : {"size", "included", "local_size"}) {
    int32_t value = -1;
    EXPECT_EQ(Text(KrReadTopology(what, 0, &value)), "OK");
    EXPECT_EQ(value, 1) << what;
  }
  for (const char* what : {"rank", "local_rank"}) {
    int32_t value = -1;
    EXPECT_EQ(Text(KrReadTopology(what, 0, &value)), "OK");
    EXPECT_EQ(value, 0) << what;
  }
  int32_t value = -1;
  EXPECT_THAT(Text(KrReadTopology("colour", 0, &value)),
              HasSubstr("no 'colour'"));
  EXPECT_EQ(value, -1);
}

TEST_F(Job, SetsThatCannotBeAreRefused) {
  // Of one rank there are no others than that of all.
  const int32_t ranks[] = {0};
  const size_t num_ranks[] = {1};
  uint32_t number = 0;
  EXPECT_THAT(Text(KrAddProcessSets(ranks, num_ranks, 1, &number)),
              HasSubstr("process set [0]"));
  EXPECT_THAT(Text(KrRemoveProcessSet(99)), HasSubstr("99"));
  int32_t value = -1;
  EXPECT_THAT(Text(KrReadTopology("rank", 99, &value)), HasSubstr("99"));
  Call call;
  EXPECT_THAT(call.Run(Spec({0}), 99),
              AllOf(HasSubstr("refused: "), HasSubstr("99")));
}

TEST_F(Job, MetricsAreInTheOrderOfTheirRows) {
  const KrMetric* rows;
  std::vector<uint64_t> values(KrMetrics(&rows), 77);
  ASSERT_EQ(Text(KrReadMetrics(values.data())), "OK");
  for (size_t i = 0; i < values.size(); ++i) {
    // One rank has nobody to send anything to.
    if (std::strstr(rows[i].name, "_sent")) {
      EXPECT_EQ(values[i], 0u);
    }
    EXPECT_STRNE(rows[i].meaning, "");
    EXPECT_STRNE(rows[i].unit, "");
  }
  EXPECT_NE(values.back(), 77u);
}

TEST(CInit, TakesSettingsBeforeTheEnvironment) {
  const KrSetting settings[] = {{"KERAS_RING_SIZE", "2"},
                                {"KERAS_RING_RANK", "7"}};
  EXPECT_THAT(Text(KrInit(nullptr, 0, settings, 2)),
              AllOf(HasSubstr("KERAS_RING_RANK is 7"),
                    HasSubstr("KERAS_RING_SIZE is 2")));
  EXPECT_FALSE(KrIsInitialized());
}

TEST(CDescriptions, AreThereWithoutAJob) {
  const KrOption* options;
  ASSERT_GT(KrOptions(&options), 10u);
  EXPECT_EQ(std::string(options[0].variable).rfind("KERAS_RING_", 0), 0u);
  EXPECT_STRNE(KrCompiler(), "");
  EXPECT_STRNE(KrCpuLevel(), "");
}

TEST(CArena, LendsMemoryThatItContains) {
  KrArena* arena = nullptr;
  ASSERT_EQ(Text(KrArenaCreate(2, &arena)), "OK");
  KrArena* again = nullptr;
  ASSERT_EQ(Text(KrArenaCreate(2, &again)), "OK");
  EXPECT_EQ(arena, again);
  void* const memory = KrArenaAllocate(arena, 5000);
  ASSERT_NE(memory, nullptr);
  EXPECT_TRUE(KrArenaContains(arena, memory));
  EXPECT_FALSE(KrArenaContains(arena, &arena));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
  KrArenaRelease(arena, memory);
}

TEST(CLogQueue, GetsTheLinesUntilItIsClosed) {
  KrLogQueue* const queue = KrLogQueueCreate();
  KR_LOG(kError) << "to the queue";
  std::vector<std::string> lines;
  const auto visit = [](void* context, int32_t level, const char* line) {
    EXPECT_EQ(level, 3);
    static_cast<std::vector<std::string>*>(context)->push_back(line);
  };
  EXPECT_TRUE(KrLogQueueTake(queue, visit, &lines));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines.front(), HasSubstr("to the queue"));
  KrLogQueueClose(queue);
  EXPECT_FALSE(KrLogQueueTake(queue, visit, &lines));
  KrLogQueueFree(queue);
  EXPECT_EQ(lines.size(), 1u);
}

}  // namespace
}  // namespace keras_ring
