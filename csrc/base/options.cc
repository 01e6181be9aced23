#include "csrc/base/options.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>

namespace keras_ring {
namespace {

constexpr char kPrefix[] = "KERAS_RING_";

// How a variable reaches its field. Exactly one row of kRows per variable: the
// parser, the documentation and the fingerprint all read this table.
struct Row {
  const char* variable;  // without the prefix
  const char* type;
  const char* meaning;
  // Returns an explanation of what was expected, or null on success.
  const char* (*parse)(const std::string& text, Options& options);
  std::string (*show)(const Options& options);
  bool must_be_equal;  // on all ranks
};

bool ParseInteger(const std::string& text, int64_t low, int64_t high,
                  int64_t* value) {
  if (text.empty() || std::isspace(static_cast<unsigned char>(text[0]))) {
    return false;
  }
  char* end = nullptr;
  errno = 0;
  long long parsed = std::strtoll(text.c_str(), &end, 10);
  // All of it: a text may hold zeros.
  const bool whole = end == text.c_str() + text.size();
  if (errno != 0 || !whole || parsed < low || parsed > high) return false;
  *value = parsed;
  return true;
}

bool ParseNumber(const std::string& text, double low, double high,
                 double* value) {
  if (text.empty() || std::isspace(static_cast<unsigned char>(text[0]))) {
    return false;
  }
  char* end = nullptr;
  double parsed = std::strtod(text.c_str(), &end);
  const bool whole = end == text.c_str() + text.size();
  if (!whole || !(parsed >= low && parsed <= high)) return false;
  *value = parsed + 0.0;  // no negative zero
  return true;
}

// Shows as many digits as it takes to tell all numbers apart: ranks compare
// them.
std::string ShowNumber(double value) {
  char text[32];
  const std::to_chars_result end =
      std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

constexpr double kMaxSeconds = 1e8;
// By which the default of START_TIMEOUT grows.
constexpr int kRanksPerSecond = 32;

// A field of whole numbers within bounds.
template <auto Field, int64_t kLow, int64_t kHigh>
const char* IntegerField(const std::string& text, Options& options) {
  static const std::string expected = "an integer from " +
                                      std::to_string(kLow) + " to " +
                                      std::to_string(kHigh);
  int64_t value;
  if (!ParseInteger(text, kLow, kHigh, &value)) return expected.c_str();
  options.*Field = value;
  return nullptr;
}

template <auto Field>
std::string ShowInteger(const Options& options) {
  return std::to_string(options.*Field);
}

// A field of seconds or milliseconds, at least 0.
template <auto Field>
const char* TimeField(const std::string& text, Options& options) {
  return ParseNumber(text, 0.0, kMaxSeconds, &(options.*Field))
             ? nullptr
             : "a number, at least 0";
}

template <auto Field>
const char* PositiveTimeField(const std::string& text, Options& options) {
  return ParseNumber(text, 1e-3, kMaxSeconds, &(options.*Field))
             ? nullptr
             : "a number, at least 0.001";
}

template <auto Field>
std::string ShowTime(const Options& options) {
  return ShowNumber(options.*Field);
}

template <auto Field>
const char* TextField(const std::string& text, Options& options) {
  options.*Field = text;
  return nullptr;
}

// Other ranks are told it.
template <auto Field>
const char* ShortTextField(const std::string& text, Options& options) {
  options.*Field = text;
  return text.size() <= 1024 ? nullptr : "at most 1024 bytes";
}

template <auto Field>
std::string ShowText(const Options& options) {
  return options.*Field;
}

const char* ParseRendezvous(const std::string& text, Options& options) {
  static constexpr char kExpected[] =
      "host:port, or several addresses of one host, separated by commas, and "
      ":port";
  size_t colon = text.rfind(':');
  int64_t port;
  if (colon == std::string::npos ||
      !ParseInteger(text.substr(colon + 1), 1, 65535, &port)) {
    return kExpected;
  }
  options.rendezvous_host = text.substr(0, colon);
  std::string& host = options.rendezvous_host;
  const std::string listed = "," + host + ",";
  if (listed.find(",,") != std::string::npos) return kExpected;
  // An IPv6 address is written in brackets, to keep its colons apart.
  const bool several = host.find(',') != std::string::npos;
  if (!several && host.size() > 2 && host.front() == '[' &&
      host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  options.rendezvous_port = static_cast<uint16_t>(port);
  return nullptr;
}

const char* ParsePortRange(const std::string& text, Options& options) {
  const size_t dash = text.find('-');
  int64_t low, high;
  if (dash == std::string::npos ||
      !ParseInteger(text.substr(0, dash), 1, 65535, &low) ||
      !ParseInteger(text.substr(dash + 1), low, 65535, &high)) {
    return "two ports, the lower one first, such as 30000-30099";
  }
  options.port_low = static_cast<uint16_t>(low);
  options.port_high = static_cast<uint16_t>(high);
  return nullptr;
}

std::string ShowPortRange(const Options& options) {
  if (options.port_low == 0) return "";
  return std::to_string(options.port_low) + "-" +
         std::to_string(options.port_high);
}

const char* ParseJobKey(const std::string& text, Options& options) {
  const bool hexadecimal =
      text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  if (text.size() != 64 || !hexadecimal) return "64 hexadecimal digits";
  options.job_key = text;
  return nullptr;
}

constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error",
                                       "off"};

const char* ParseLogLevel(const std::string& text, Options& options) {
  for (int level = 0; level < 5; ++level) {
    if (text == kLevelNames[level]) {
      options.log_level = static_cast<LogLevel>(level);
      return nullptr;
    }
  }
  return "debug, info, warning, error or off";
}

template <auto Field>
const char* DirectoryField(const std::string& text, Options& options) {
  if (text != "off" && text[0] != '/') return "an absolute path, or off";
  options.*Field = text;
  return nullptr;
}

template <auto Field>
const char* AbsolutePathField(const std::string& text, Options& options) {
  if (text[0] != '/') return "an absolute path";
  options.*Field = text;
  return nullptr;
}

template <auto Field>
const char* SwitchField(const std::string& text, Options& options) {
  if (text != "0" && text != "1") return "0 or 1";
  options.*Field = text == "1";
  return nullptr;
}

template <auto Field>
std::string ShowSwitch(const Options& options) {
  return options.*Field ? "1" : "0";
}

// A field that takes one of some names.
template <auto Field, const auto& kNames>
const char* NameField(const std::string& text, Options& options) {
  static const std::string expected = [] {
    std::string names;
    const size_t count = std::size(kNames);
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) names += i + 1 == count ? " or " : ", ";
      names += kNames[i];
    }
    return names;
  }();
  if (std::find(std::begin(kNames), std::end(kNames), text) ==
      std::end(kNames)) {
    return expected.c_str();
  }
  options.*Field = text;
  return nullptr;
}

constexpr std::string_view kAllreduces[] = {
    "auto", "one_shot", "two_shots", "tree", "halving_doubling", "ring"};
constexpr std::string_view kBroadcasts[] = {"auto", "direct", "chain"};
constexpr std::string_view kAutoOrRing[] = {"auto", "ring"};
constexpr std::string_view kAutoOrSwitch[] = {"auto", "0", "1"};

const Row kRows[] = {
    {"RANK", "integer", "This process's rank. Set by the launcher.",
     IntegerField<&Options::rank, 0, INT32_MAX>, ShowInteger<&Options::rank>,
     false},
    {"SIZE", "integer", "Number of ranks. Set by the launcher.",
     IntegerField<&Options::size, 1, INT32_MAX>, ShowInteger<&Options::size>,
     true},
    {"RENDEZVOUS", "host:port",
     "Where rank 0 serves the store by which the ranks find each other; host "
     "may be several addresses of it, separated by commas. Set by the "
     "launcher.",
     ParseRendezvous, [](const Options&) { return std::string(); }, false},
    {"RENDEZVOUS_FD", "integer",
     "Rank 0 only: number of an inherited listening socket for that store. "
     "Set by the launcher.",
     IntegerField<&Options::rendezvous_fd, 0, INT32_MAX>,
     [](const Options&) { return std::string(); }, false},
    {"MEMBERSHIP_FD", "integer",
     "Number of an inherited socket on which the launcher says who the members "
     "of an elastic job are. Set by keras-ring run --elastic.",
     IntegerField<&Options::membership_fd, 0, INT32_MAX>,
     [](const Options&) { return std::string(); }, false},
    {"JOINS_AS", "integer",
     "Number of this process in an elastic job that runs, which it joins. Set "
     "by keras-ring run --elastic.",
     IntegerField<&Options::joins_as, 0, INT32_MAX>,
     [](const Options&) { return std::string(); }, false},
    {"JOB_KEY", "64 hexadecimal digits",
     "The job's secret, by which ranks prove themselves to each other. Set by "
     "the launcher; never shown.",
     ParseJobKey, [](const Options&) { return std::string(); }, false},
    {"HOST_ID", "text",
     "Identity of this host; ranks with equal identities share one. Defaults "
     "to that of the running system and of its network.",
     ShortTextField<&Options::host_id>, ShowText<&Options::host_id>, false},
    {"INTERFACE", "interface",
     "The interface at which other ranks reach this one: by its name, its "
     "network (10.0.0.0/8) or its address; of several, separated by commas, "
     "the first that this host has. Defaults to the one from which it reaches "
     "the store, so loopback when that is on loopback; of rank 0, to the "
     "store's.",
     ShortTextField<&Options::interface_address>,
     ShowText<&Options::interface_address>, false},
    {"PORT_RANGE", "port-port",
     "The ports on which ranks listen, one for each rank of a host. Defaults "
     "to any that are free.",
     ParsePortRange, ShowPortRange, false},
    {"GENERATION", "number",
     "Which this is of the jobs that the same ranks are in one after another. "
     "Ranks of different generations refuse each other.",
     IntegerField<&Options::generation, 0, int64_t{1} << 50>,
     ShowInteger<&Options::generation>, true},
    {"FUSION_THRESHOLD", "bytes",
     "Tensors that are ready together are fused into buckets of at most this "
     "size. 0: each tensor on its own.",
     IntegerField<&Options::fusion_threshold, 0,
                  std::numeric_limits<int64_t>::max()>,
     ShowInteger<&Options::fusion_threshold>, true},
    {"PLANNED_BUCKET", "bytes",
     "Where steps repeat, their tensors are planned for buckets of at most "
     "this size, and of no more than FUSION_THRESHOLD; 0: of one tensor each. "
     "Those that are complete at the same time, say because others were on "
     "their way, share a collective up to FUSION_THRESHOLD. Smaller ones start "
     "earlier while gradients are computed, larger ones take less time "
     "together.",
     IntegerField<&Options::planned_bucket, 0,
                  std::numeric_limits<int64_t>::max()>,
     ShowInteger<&Options::planned_bucket>, true},
    {"CYCLE_TIME", "milliseconds",
     "How long a ready tensor is held back so that others may be fused with "
     "it. 0: not at all; tensors still fuse while a bucket is on its way.",
     TimeField<&Options::cycle_time_ms>, ShowTime<&Options::cycle_time_ms>,
     true},
    {"CACHE_CAPACITY", "names",
     "Agreements that are remembered, so that a repeated tensor costs bytes "
     "instead of its description: at least as many as a step has names, so "
     "that steps can be planned. Each takes about a kilobyte. 0: none.",
     IntegerField<&Options::cache_capacity, 0, 1 << 20>,
     ShowInteger<&Options::cache_capacity>, true},
    {"STALL_CHECK_TIME", "seconds",
     "A tensor that some ranks asked for and others did not is reported after "
     "this time, with the ranks. 0: never.",
     TimeField<&Options::stall_check_time>,
     ShowTime<&Options::stall_check_time>, true},
    {"STALL_SHUTDOWN_TIME", "seconds",
     "Such a tensor, and a collective in which nothing moves though all ranks "
     "and connections are alive, ends in an error after this time. 0: never.",
     TimeField<&Options::stall_shutdown_time>,
     ShowTime<&Options::stall_shutdown_time>, true},
    {"HEARTBEAT_TIMEOUT", "seconds",
     "A rank from which nothing was heard for this time is lost. Its own "
     "thread answers, so a rank that is merely slow is not.",
     PositiveTimeField<&Options::heartbeat_timeout>,
     ShowTime<&Options::heartbeat_timeout>, true},
    {"START_TIMEOUT", "seconds",
     "How long init() waits for all ranks to come. Its default grows by a "
     "second for every 32 ranks.",
     PositiveTimeField<&Options::start_timeout>,
     ShowTime<&Options::start_timeout>, false},
    {"SHUTDOWN_TIMEOUT", "seconds",
     "How long a rank that leaves the job waits until the other ranks have "
     "agreed to its end. Then it leaves without. Where MPI has started the "
     "ranks, its own end may take twice as long after a rank was lost.",
     PositiveTimeField<&Options::shutdown_timeout>,
     ShowTime<&Options::shutdown_timeout>, false},
    {"COLLECTIVE", "auto, or a backend",
     "How tensors are reduced: shm, through shared memory (all ranks must be "
     "on one host); hierarchy, through shared memory within hosts and TCP "
     "between them (several hosts, one of which has several ranks); ring, "
     "through TCP alone; or mpi, through MPI, and through shared memory within "
     "hosts where there are several. auto: the first of these that can be, "
     "and never mpi.",
     TextField<&Options::collective>, ShowText<&Options::collective>, true},
    {"GPU_COLLECTIVE", "auto, or a backend",
     "How tensors in the memory of GPUs are reduced: cuda_ipc, by GPUs of one "
     "host that read each other's memory; staged, through host memory, as "
     "COLLECTIVE says; or nccl, by NVIDIA's NCCL, where all ranks have it and "
     "a "
     "GPU each, else as auto. auto: the first of these that can be, and never "
     "nccl.",
     TextField<&Options::gpu_collective>, ShowText<&Options::gpu_collective>,
     true},
    {"CUDA_DRIVER", "text", "The library of NVIDIA's driver.",
     TextField<&Options::cuda_driver>, ShowText<&Options::cuda_driver>, false},
    {"NCCL", "text", "The library of NCCL, where the program has loaded none.",
     TextField<&Options::nccl>, ShowText<&Options::nccl>, false},
    {"MPI", "text",
     "The MPI that mpi4py has loaded, as COLLECTIVE=mpi needs to know it. Set "
     "by init().",
     TextField<&Options::mpi>, ShowText<&Options::mpi>, false},
    {"ALLREDUCE", "auto, or an algorithm",
     "How hosts reduce what they have: one_shot, everybody sends all to "
     "everybody; two_shots, everybody reduces a part and sends the result; "
     "tree and halving_doubling, the same in groups of two, and groups of "
     "groups; ring. auto: one of the first two, by what links cost, which is "
     "measured at start; more than 32 hosts in groups. On one host: nothing.",
     NameField<&Options::allreduce, kAllreduces>, ShowText<&Options::allreduce>,
     true},
    {"BROADCAST", "auto, or an algorithm",
     "How a broadcast goes between hosts: direct, from the root to all; or "
     "chain, from rank to rank. auto: by what links cost.",
     NameField<&Options::broadcast, kBroadcasts>, ShowText<&Options::broadcast>,
     true},
    {"ALLGATHER", "auto or ring",
     "How an allgather goes between hosts. auto: from each to all, of up to 32 "
     "ranks.",
     NameField<&Options::allgather, kAutoOrRing>, ShowText<&Options::allgather>,
     true},
    {"REDUCESCATTER", "auto or ring",
     "How a reducescatter goes between hosts. auto: from each to all, of up to "
     "32 ranks.",
     NameField<&Options::reducescatter, kAutoOrRing>,
     ShowText<&Options::reducescatter>, true},
    {"ALLTOALL", "auto or ring",
     "How an alltoall goes between hosts. auto: from each to all, of up to 32 "
     "ranks; of more by a rank of each host.",
     NameField<&Options::alltoall, kAutoOrRing>, ShowText<&Options::alltoall>,
     true},
    {"DETERMINISTIC", "0 or 1",
     "Whether what would make the bits of a sum depend on the bucket that a "
     "tensor happens to be in is refused: the ring; or done for each tensor by "
     "itself: Adasum.",
     SwitchField<&Options::deterministic>, ShowSwitch<&Options::deterministic>,
     true},
    {"HELPER_THREAD", "auto, 0 or 1",
     "Whether each rank has a thread that sums and copies what is on its host, "
     "of large buckets, in jobs of several hosts with several ranks. auto: "
     "where the ranks of the host have at least four cores each.",
     NameField<&Options::helper_thread, kAutoOrSwitch>,
     ShowText<&Options::helper_thread>, false},
    {"ZERO_COPY", "0 or 1",
     "Whether tensors of TensorFlow and PyTorch are put where the other ranks "
     "of the host "
     "can read them, so that large ones are reduced without being copied.",
     SwitchField<&Options::zero_copy>, ShowSwitch<&Options::zero_copy>, false},
    {"TLS", "0 or 1",
     "Whether every TCP connection between ranks, and to the store, is "
     "encrypted, by TLS 1.3. Ranks of one host go on sharing memory.",
     SwitchField<&Options::tls>, ShowSwitch<&Options::tls>, true},
    {"FLIGHT_DIRECTORY", "directory, or off",
     "Where ranks write what they did last when the job breaks, or on SIGUSR1, "
     "for `keras-ring doctor`: an absolute path, or off. Without it, "
     "/tmp/keras-ring-flight- and more.",
     DirectoryField<&Options::flight_directory>,
     ShowText<&Options::flight_directory>, false},
    {"STATUS_DIR", "directory, or off",
     "Where ranks show how they are, for `keras-ring top`: an absolute path, "
     "or off. Without it, /tmp/keras-ring-status- and the user's number.",
     DirectoryField<&Options::status_directory>,
     ShowText<&Options::status_directory>, false},
    {"TIMELINE", "file",
     "Where the timeline of all ranks is to be (timeline.md): an absolute "
     "path. Each rank writes its part into a directory with .ranks after that "
     "name, and `keras-ring run` joins them. Without it, none is recorded from "
     "the start.",
     AbsolutePathField<&Options::timeline>, ShowText<&Options::timeline>,
     false},
    {"TIMELINE_MARK_CYCLES", "0 or 1",
     "Whether that timeline shows each decision of the coordinator.",
     SwitchField<&Options::timeline_mark_cycles>,
     ShowSwitch<&Options::timeline_mark_cycles>, false},
    {"AUTOTUNE", "0 or 1",
     "Whether rank 0 tunes the job while it trains (autotune.md).",
     SwitchField<&Options::autotune>, ShowSwitch<&Options::autotune>, false},
    {"AUTOTUNE_LOG", "file",
     "Where rank 0 writes what it tries, as CSV. Without it, nowhere.",
     TextField<&Options::autotune_log>, ShowText<&Options::autotune_log>,
     false},
    {"AUTOTUNE_CACHE", "directory, or off",
     "Where rank 0 keeps what was found for a cluster and a model: an absolute "
     "path, or off. Without it, keras_ring/autotune in the user's cache.",
     DirectoryField<&Options::autotune_cache>,
     ShowText<&Options::autotune_cache>, false},
    {"AUTOTUNE_WARMUP_SAMPLES", "integer",
     "Samples at the start that do not count.",
     IntegerField<&Options::autotune_warmup_samples, 0, 1000>,
     ShowInteger<&Options::autotune_warmup_samples>, false},
    {"AUTOTUNE_STEPS_PER_SAMPLE", "integer", "Steps of which a sample is made.",
     IntegerField<&Options::autotune_steps_per_sample, 1, 100000>,
     ShowInteger<&Options::autotune_steps_per_sample>, false},
    {"AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "integer",
     "Settings that are tried before the best of them is compared with the "
     "default.",
     IntegerField<&Options::autotune_max_samples, 2, 1000>,
     ShowInteger<&Options::autotune_max_samples>, false},
    {"LOG_LEVEL", "level",
     "Least severe lines that are logged: debug, info, warning, error, off.",
     ParseLogLevel,
     [](const Options& options) {
       return std::string(kLevelNames[static_cast<int>(options.log_level)]);
     },
     false},
};

// The ring sums in an order that depends on where in a bucket an element lies.
Status CheckDeterministic(const Options& options) {
  if (!options.deterministic) return OkStatus();
  constexpr int kMaxWithoutRing = 32;
  const char* variable = nullptr;
  if (options.reducescatter == "ring") variable = "REDUCESCATTER";
  if (options.allreduce == "ring") variable = "ALLREDUCE";
  if (options.collective == "ring" && options.size > kMaxWithoutRing) {
    variable = "COLLECTIVE";
  }
  if (variable == nullptr) return OkStatus();
  return InvalidArgumentError(
      std::string("KERAS_RING_DETERMINISTIC is 1, but ") + kPrefix + variable +
      " is 'ring', by which the bits of a sum depend on the bucket that a "
      "tensor is in; unset one of them");
}

// `given`: the variables that are set, without their common prefix. If only
// some of a rank's variables are set, the process must not become a job of one
// rank that trains alone.
Status CheckTogether(const Options& options,
                     const std::set<std::string>& given) {
  const bool has_size = given.count("SIZE") > 0;
  for (const char* variable : {"RENDEZVOUS", "JOB_KEY"}) {
    if (!has_size && given.count(variable) > 0) {
      return InvalidArgumentError(
          std::string(kPrefix) + variable +
          " is set, but KERAS_RING_SIZE is not: set it to the number of ranks, "
          "or to 1 if this process is a job of its own");
    }
  }
  if (options.size > 1 && given.count("RANK") == 0) {
    return InvalidArgumentError(
        "KERAS_RING_SIZE is " + std::to_string(options.size) +
        ", but KERAS_RING_RANK is not set; ranks are numbered from 0 to size - "
        "1");
  }
  if (options.rank >= options.size) {
    return InvalidArgumentError(
        "KERAS_RING_RANK is " + std::to_string(options.rank) +
        ", but KERAS_RING_SIZE is " + std::to_string(options.size) +
        "; ranks are numbered from 0 to size - 1");
  }
  KR_RETURN_IF_ERROR(CheckDeterministic(options));
  if (options.size == 1) return OkStatus();
  for (auto [variable, missing] :
       {std::pair<const char*, bool>{"RENDEZVOUS",
                                     options.rendezvous_host.empty()},
        {"JOB_KEY", options.job_key.empty()}}) {
    if (missing) {
      return InvalidArgumentError(
          std::string("KERAS_RING_SIZE is ") + std::to_string(options.size) +
          ", but " + kPrefix + variable +
          " is not set; start the job with `keras-ring run`");
    }
  }
  return OkStatus();
}

}  // namespace

Result<Options> Options::Parse(const Lookup& lookup) {
  Options options;
  std::set<std::string> given;
  for (const Row& row : kRows) {
    const std::string variable = std::string(kPrefix) + row.variable;
    std::optional<std::string> text = lookup(variable);
    if (!text || text->empty()) continue;
    given.insert(row.variable);
    const char* expected = row.parse(*text, options);
    if (expected == nullptr) continue;
    const bool secret = row.variable == std::string("JOB_KEY");
    return InvalidArgumentError(variable +
                                (secret ? "" : " is '" + *text + "'") +
                                ": expected " + expected);
  }
  KR_RETURN_IF_ERROR(CheckTogether(options, given));
  if (given.count("START_TIMEOUT") == 0) {
    options.start_timeout += options.size / kRanksPerSecond;
  }
  return options;
}

Result<Options> Options::FromEnvironment(
    const std::map<std::string, std::string>& settings) {
  return Parse([&](const std::string& name) -> std::optional<std::string> {
    const auto setting = settings.find(name);
    if (setting != settings.end()) return setting->second;
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  });
}

std::vector<std::string> Options::Fingerprint() const {
  std::vector<std::string> values;
  for (const Row& row : kRows) {
    if (!row.must_be_equal) continue;
    values.push_back(std::string(kPrefix) + row.variable + "=" +
                     row.show(*this));
  }
  return values;
}

Result<std::string> Options::Show(const std::string& variable) const {
  for (const Row& row : kRows) {
    if (variable == std::string(kPrefix) + row.variable) return row.show(*this);
  }
  return InvalidArgumentError("there is no option '" + variable + "'");
}

std::vector<OptionDescription> DescribeOptions() {
  const Options defaults;
  std::vector<OptionDescription> descriptions;
  for (const Row& row : kRows) {
    descriptions.push_back({std::string(kPrefix) + row.variable, row.type,
                            row.show(defaults), row.meaning});
  }
  return descriptions;
}

}  // namespace keras_ring
