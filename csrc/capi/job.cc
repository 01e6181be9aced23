// The job of this process.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/logging.h"
#include "csrc/base/options.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/tunable.h"
#include "csrc/capi/handles.h"
#include "csrc/comm/net/addresses.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/rendezvous/membership.h"
#include "csrc/runtime/backends.h"
#include "csrc/runtime/elastic/elastic_job.h"
#include "csrc/runtime/process_arena.h"
#include "csrc/runtime/process_runtime.h"
#include "csrc/runtime/runtime.h"
#include "csrc/runtime/runtime_factory.h"

namespace keras_ring {
namespace {

Status NotInitialized() {
  KR_RETURN_IF_ERROR(CheckIsRank());
  return FailedPreconditionError("not initialized");
}

// Listens at an address that others reach, or on every one if it is not of this
// host itself, or is several. On loopback the job is on one host.
Result<Socket> ListenAt(const std::string& address, const Options& options) {
  if (MeansLoopback(address)) return Listen(address, 0);
  const PortRange ports = {options.port_low, options.port_high};
  if (SplitHosts(address).size() == 1) {
    Result<Socket> listener = ListenInRange(address, ports, options.rank);
    if (listener.ok()) return listener;
  }
  return ListenInRange("", ports, options.rank);
}

// Starts a job that goes on without the ranks that it loses.
Status InitElastic(const Options& options,
                   const std::vector<std::string>& versions,
                   std::unique_ptr<Membership> membership) {
  ElasticJob::Parts parts;
  parts.options = options;
  parts.joins_as = options.joins_as;
  parts.start = [versions](const Options& of_generation,
                           const LossHandling& on_loss) {
    SetLogRank(of_generation.rank);
    const std::shared_ptr<ProcessSets> before = CurrentProcessSets();
    return CreateJob(of_generation, versions, ProcessArena(), on_loss,
                     before ? &before->job()->counters() : nullptr);
  };
  parts.publish = ReplaceProcessSets;
  parts.listen = [options](const std::string& address) {
    return ListenAt(address, options);
  };
  KR_ASSIGN_OR_RETURN(
      std::unique_ptr<ElasticJob> job,
      ElasticJob::Start(std::move(parts), std::move(membership)));
  KR_RETURN_IF_ERROR(InstallProcessSets(job->sets()));
  KR_RETURN_IF_ERROR(job->Watch());
  SetCurrentElasticJob(std::move(job));
  return OkStatus();
}

Status Init(const std::vector<std::string>& versions,
            const std::map<std::string, std::string>& settings) {
  KR_ASSIGN_OR_RETURN(const Options options,
                      Options::FromEnvironment(settings));
  SetLogLevel(options.log_level);
  SetLogRank(options.size > 1 ? options.rank : -1);
  if (options.membership_fd >= 0) {
    Result<std::unique_ptr<Membership>> membership =
        OpenMembership(options.membership_fd);
    // A program that a rank has started as a job of its own inherits the
    // variable, and not the socket.
    if (membership.ok() || options.size > 1) {
      KR_RETURN_IF_ERROR(membership.status());
      KR_RETURN_IF_ERROR(
          InitElastic(options, versions, std::move(membership).value()));
      AnswerRequestSignals();
      return OkStatus();
    }
  }
  KR_ASSIGN_OR_RETURN(std::shared_ptr<ProcessSets> job,
                      CreateJob(options, versions, ProcessArena()));
  KR_RETURN_IF_ERROR(InstallProcessSets(std::move(job)));
  if (options.size > 1) AnswerRequestSignals();
  return OkStatus();
}

KrTopology TopologyToC(const Topology& topology) {
  KrTopology result = {};
  result.rank = topology.rank;
  result.size = topology.size;
  result.local_rank = topology.local_rank;
  result.local_size = topology.local_size;
  result.cross_rank = topology.cross_rank;
  result.cross_size = topology.cross_size;
  result.homogeneous = topology.homogeneous;
  result.generation = topology.generation;
  return result;
}

Topology TopologyFromC(const KrTopology& topology) {
  Topology result;
  result.rank = topology.rank;
  result.size = topology.size;
  result.local_rank = topology.local_rank;
  result.local_size = topology.local_size;
  result.cross_rank = topology.cross_rank;
  result.cross_size = topology.cross_size;
  result.homogeneous = topology.homogeneous;
  result.generation = topology.generation;
  return result;
}

// Returns the process sets of the job, for calls that only the rank itself may
// make.
Result<std::shared_ptr<ProcessSets>> OwnProcessSets() {
  KR_RETURN_IF_ERROR(CheckIsRank());
  std::shared_ptr<ProcessSets> sets = CurrentProcessSets();
  if (sets == nullptr) return NotInitialized();
  return sets;
}

Result<int> ReadTopology(const std::string& what, int64_t process_set) {
  KR_ASSIGN_OR_RETURN(std::shared_ptr<Runtime> job, ProcessRuntimeFor(0, what));
  const Topology& of_job = job->topology();
  if (what == "local_rank") return of_job.local_rank;
  if (what == "local_size") return of_job.local_size;
  // Also valid for ranks that are not members.
  if (what == "size" || what == "included") {
    const std::shared_ptr<ProcessSets> sets = CurrentProcessSets();
    if (sets == nullptr) return UnavailableError("this rank has shut down");
    KR_ASSIGN_OR_RETURN(RankSet set, sets->Find(process_set));
    if (what == "size") return static_cast<int>(set.members().size());
    return process_set == 0 || set.Local(of_job.rank) >= 0 ? 1 : 0;
  }
  if (what != "rank") {
    return InvalidArgumentError("the topology has no '" + what + "'");
  }
  KR_ASSIGN_OR_RETURN(std::shared_ptr<Runtime> runtime,
                      ProcessRuntimeFor(process_set, what));
  return runtime->topology().rank;
}

}  // namespace
}  // namespace keras_ring

using ::keras_ring::ElasticJob;
using ::keras_ring::Options;
using ::keras_ring::ProcessSets;
using ::keras_ring::Result;
using ::keras_ring::Runtime;
using ::keras_ring::ToC;
using ::keras_ring::Topology;

KrStatus* KrInit(const char* const* versions, size_t num_versions,
                 const KrSetting* settings, size_t num_settings) {
  std::map<std::string, std::string> given;
  for (size_t i = 0; i < num_settings; ++i) {
    given[settings[i].variable] = settings[i].value;
  }
  return ToC(keras_ring::Init(
      std::vector<std::string>(versions, versions + num_versions), given));
}

void KrShutdown(const char* reason) {
  const bool is_rank = keras_ring::CheckIsRank().ok();
  const std::shared_ptr<ProcessSets> sets = keras_ring::TakeProcessSets();
  keras_ring::ElasticJob* const elastic = keras_ring::CurrentElasticJob();
  keras_ring::SetCurrentElasticJob(nullptr);
  if (elastic != nullptr && is_rank) return elastic->Shutdown(reason);
  if (sets != nullptr) sets->Shutdown(reason);
}

KrStatus* KrInitChild(const KrTopology* parent, int64_t parent_pid) {
  return ToC(keras_ring::InstallParentRank(
      {keras_ring::TopologyFromC(*parent), parent_pid}));
}

bool KrIsInitialized(void) {
  return keras_ring::ProcessRuntime() != nullptr ||
         keras_ring::CurrentParentRank() != nullptr;
}

KrSteps KrGetSteps(void) {
  const ElasticJob* const job = keras_ring::CurrentElasticJob();
  if (job == nullptr) return {};
  const ElasticJob::Steps steps = job->steps();
  return {steps.committed, steps.discarded, steps.generation};
}

bool KrIsWaiting(void) {
  const ElasticJob* const job = keras_ring::CurrentElasticJob();
  return job != nullptr && job->IsWaiting();
}

uint64_t KrNumWaiting(void) {
  ElasticJob* const job = keras_ring::CurrentElasticJob();
  return job == nullptr ? 0 : job->NumWaiting();
}

KrStatus* KrAdmit(double seconds, bool* done) {
  ElasticJob* const job = keras_ring::CurrentElasticJob();
  if (job == nullptr) {
    return ToC(keras_ring::FailedPreconditionError(
        "the job of this process is not elastic"));
  }
  const Result<bool> admitted =
      job->Admit(keras_ring::Deadline::AfterSeconds(seconds));
  if (!admitted.ok()) return ToC(admitted.status());
  *done = *admitted;
  return nullptr;
}

KrStatus* KrTell(const char* key, const char* text, size_t text_bytes,
                 int64_t generation) {
  ElasticJob* const job = keras_ring::CurrentElasticJob();
  if (job == nullptr) return nullptr;
  return ToC(job->Tell(key, std::string(text, text_bytes), generation));
}

void KrReadTold(const char* key, int64_t after, void* context,
                void (*visit)(void* context, const KrTold* told)) {
  const ElasticJob* const job = keras_ring::CurrentElasticJob();
  if (job == nullptr) return;
  for (const ElasticJob::Told& told : job->ToldAfter(after, key)) {
    std::vector<const char*> texts;
    std::vector<size_t> bytes;
    for (const std::string& text : told.texts) {
      texts.push_back(text.data());
      bytes.push_back(text.size());
    }
    const KrTold row = {told.generation, told.members.size(),
                        told.members.data(), texts.data(), bytes.data()};
    visit(context, &row);
  }
}

bool KrIsElastic(void) { return keras_ring::CurrentElasticJob() != nullptr; }

KrStatus* KrCheckSettings(const KrSetting* settings, size_t num_settings) {
  std::map<std::string, std::string> given;
  for (size_t i = 0; i < num_settings; ++i) {
    given[settings[i].variable] = settings[i].value;
  }
  const auto options = Options::Parse(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto setting = given.find(name);
        if (setting == given.end()) return std::nullopt;
        return setting->second;
      });
  if (!options.ok()) return ToC(options.status());
  return ToC(keras_ring::CheckCollectiveChoices(*options));
}

KrStatus* KrGetTopology(KrTopology* topology) {
  if (const auto parent = keras_ring::CurrentParentRank()) {
    *topology = keras_ring::TopologyToC(parent->topology);
    return nullptr;
  }
  const std::shared_ptr<Runtime> runtime = keras_ring::ProcessRuntime();
  if (runtime == nullptr) return ToC(keras_ring::NotInitialized());
  *topology = keras_ring::TopologyToC(runtime->topology());
  return nullptr;
}

KrStatus* KrReadTopology(const char* what, int64_t process_set,
                         int32_t* value) {
  const Result<int> found = keras_ring::ReadTopology(what, process_set);
  if (!found.ok()) return ToC(found.status());
  *value = *found;
  return nullptr;
}

KrStatus* KrJobStatus(void) {
  const std::shared_ptr<Runtime> runtime = keras_ring::ProcessRuntime();
  return runtime == nullptr ? nullptr : ToC(runtime->status());
}

KrStatus* KrExplain(int32_t device,
                    void (*visit)(void* context, const char* text),
                    void* context) {
  const std::shared_ptr<Runtime> runtime = keras_ring::ProcessRuntime();
  if (runtime == nullptr) {
    return ToC(keras_ring::NotInitialized());
  }
  if (device < 0 || device >= keras_ring::kNumDeviceKinds) {
    return ToC(keras_ring::InvalidArgumentError("there is no device kind " +
                                                std::to_string(device)));
  }
  const auto text =
      runtime->Explain(static_cast<keras_ring::DeviceKind>(device));
  if (!text.ok()) return ToC(text.status());
  visit(context, text->c_str());
  return nullptr;
}

KrStatus* KrReadOption(const char* variable,
                       void (*visit)(void* context, const char* text),
                       void* context) {
  const std::shared_ptr<Runtime> runtime = keras_ring::ProcessRuntime();
  if (runtime == nullptr) return ToC(keras_ring::NotInitialized());
  const Result<std::string> text = runtime->options().Show(variable);
  if (!text.ok()) return ToC(text.status());
  visit(context, text->c_str());
  return nullptr;
}

KrStatus* KrTunables(void (*visit)(void* context, const KrTunable* tunable),
                     void* context) {
  const std::shared_ptr<Runtime> runtime = keras_ring::ProcessRuntime();
  if (runtime == nullptr) return ToC(keras_ring::NotInitialized());
  for (const keras_ring::TunableRange& range : runtime->tunables()) {
    const KrTunable row = {TunableName(range.tunable),
                           TunableUnit(range.tunable), range.value, range.low,
                           range.high};
    visit(context, &row);
  }
  return nullptr;
}

KrStatus* KrTune(const char* name, int64_t value) {
  const std::shared_ptr<Runtime> runtime = keras_ring::ProcessRuntime();
  if (runtime == nullptr) return ToC(keras_ring::NotInitialized());
  return ToC(runtime->Tune(name, value));
}

KrStatus* KrAddProcessSets(const int32_t* ranks, const size_t* num_ranks,
                           size_t num_sets, uint32_t* process_sets) {
  if (KrIsElastic()) {
    return ToC(keras_ring::UnimplementedError(
        "process sets: an elastic job has none yet, since they would lose "
        "ranks as well; run it without --elastic"));
  }
  Result<std::shared_ptr<ProcessSets>> sets = keras_ring::OwnProcessSets();
  if (!sets.ok()) return ToC(sets.status());
  std::vector<std::vector<int32_t>> lists;
  for (size_t i = 0; i < num_sets; ++i) {
    lists.emplace_back(ranks, ranks + num_ranks[i]);
    ranks += num_ranks[i];
  }
  const Result<std::vector<uint32_t>> numbers =
      (*sets)->AddAll(std::move(lists));
  if (!numbers.ok()) return ToC(numbers.status());
  std::copy(numbers->begin(), numbers->end(), process_sets);
  return nullptr;
}

KrStatus* KrRemoveProcessSet(int64_t process_set) {
  Result<std::shared_ptr<ProcessSets>> sets = keras_ring::OwnProcessSets();
  if (!sets.ok()) return ToC(sets.status());
  return ToC((*sets)->Remove(process_set));
}
