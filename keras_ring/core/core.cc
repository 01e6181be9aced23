// keras_ring._core: the runtime's API for Python. An adapter, nothing else.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/capi/keras_ring.h"
#include "keras_ring/core/operation.h"
#include "keras_ring/core/status_error.h"

namespace keras_ring {
namespace {

namespace py = ::pybind11;

// What may wait for other ranks, or for a disk.
template <typename Call>
auto WithoutGil(const Call& call) {
  py::gil_scoped_release release;
  return call();
}

// They point into `settings`.
std::vector<KrSetting> SettingsOf(
    const std::map<std::string, std::string>& settings) {
  std::vector<KrSetting> given;
  for (const auto& [variable, value] : settings) {
    given.push_back({variable.c_str(), value.c_str()});
  }
  return given;
}

void Init(const std::vector<std::string>& versions,
          const std::map<std::string, std::string>& settings) {
  std::vector<const char*> lines;
  for (const std::string& version : versions) lines.push_back(version.c_str());
  const std::vector<KrSetting> given = SettingsOf(settings);
  ThrowIfError(WithoutGil([&] {
    return KrInit(lines.data(), lines.size(), given.data(), given.size());
  }));
}

void InitChild(const std::map<std::string, int32_t>& parent,
               int64_t parent_pid) {
  KrTopology topology = {};
  topology.rank = parent.at("rank");
  topology.size = parent.at("size");
  topology.local_rank = parent.at("local_rank");
  topology.local_size = parent.at("local_size");
  topology.cross_rank = parent.at("cross_rank");
  topology.cross_size = parent.at("cross_size");
  topology.homogeneous = parent.at("homogeneous") != 0;
  ThrowIfError(KrInitChild(&topology, parent_pid));
}

void Shutdown(const std::string& reason) {
  WithoutGil([&] { KrShutdown(reason.c_str()); });
}

KrTopology Topology() {
  KrTopology topology;
  ThrowIfError(KrGetTopology(&topology));
  return topology;
}

std::vector<uint32_t> AddProcessSets(
    const std::vector<std::vector<int32_t>>& lists) {
  std::vector<int32_t> ranks;
  std::vector<size_t> num_ranks;
  for (const std::vector<int32_t>& list : lists) {
    ranks.insert(ranks.end(), list.begin(), list.end());
    num_ranks.push_back(list.size());
  }
  std::vector<uint32_t> numbers(lists.size());
  ThrowIfError(WithoutGil([&] {
    return KrAddProcessSets(ranks.data(), num_ranks.data(), lists.size(),
                            numbers.data());
  }));
  return numbers;
}

void RemoveProcessSet(int64_t number) {
  ThrowIfError(WithoutGil([&] { return KrRemoveProcessSet(number); }));
}

// Why collectives cannot run any more; empty while they can.
std::string JobError() {
  KrStatus* const status = KrJobStatus();
  std::string message = KrStatusMessage(status);
  KrStatusFree(status);
  return message;
}

py::dict Metrics() {
  const KrMetric* rows;
  std::vector<uint64_t> values(KrMetrics(&rows));
  ThrowIfError(KrReadMetrics(values.data()));
  py::dict metrics;
  for (uint64_t value : values) metrics[rows++->name] = value;
  return metrics;
}

py::list DescribeMetrics() {
  const KrMetric* row;
  py::list rows;
  for (size_t left = KrMetrics(&row); left > 0; --left, ++row) {
    rows.append(py::make_tuple(row->name, row->unit, row->meaning));
  }
  return rows;
}

py::list DescribeOptions() {
  const KrOption* row;
  py::list rows;
  for (size_t left = KrOptions(&row); left > 0; --left, ++row) {
    rows.append(py::make_tuple(row->variable, row->type, row->default_value,
                               row->meaning));
  }
  return rows;
}

// The element types that collectives carry: name, and whether it is reduced.
py::list DTypes() {
  const KrDType* row;
  py::list rows;
  for (size_t left = KrDTypes(&row); left > 0; --left, ++row) {
    rows.append(py::make_tuple(row->name, row->reducible));
  }
  return rows;
}

// How collectives are done, and why: of tensors in host memory, or of GPUs.
std::string Explain(bool gpus) {
  std::string all;
  ThrowIfError(KrExplain(
      gpus ? KR_DEVICE_CUDA : KR_DEVICE_HOST,
      [](void* context, const char* text) {
        static_cast<std::string*>(context)->append(text);
      },
      &all));
  return all;
}

// The GPUs of this process: ordinal, name, uuid, bus, bytes, and the compute
// capability.
py::list Gpus() {
  py::list rows;
  ThrowIfError(KrGpus(
      [](void* context, const KrGpu* gpu) {
        static_cast<py::list*>(context)->append(
            py::make_tuple(gpu->ordinal, gpu->name, gpu->uuid, gpu->bus,
                           gpu->bytes, py::make_tuple(gpu->major, gpu->minor)));
      },
      &rows));
  return rows;
}

// The versions of CUDA and of NCCL.
std::pair<int32_t, int32_t> GpuVersions() {
  int32_t driver = 0, nccl = 0;
  ThrowIfError(KrGpuVersions(&driver, &nccl));
  return {driver, nccl};
}

// What a variable has set in this job.
std::string Option(const std::string& variable) {
  std::string value;
  ThrowIfError(KrReadOption(
      variable.c_str(),
      [](void* context, const char* text) {
        *static_cast<std::string*>(context) = text;
      },
      &value));
  return value;
}

// What can be tuned: name, unit, value now, and the bounds of it.
py::list Tunables() {
  py::list rows;
  ThrowIfError(KrTunables(
      [](void* context, const KrTunable* row) {
        static_cast<py::list*>(context)->append(py::make_tuple(
            row->name, row->unit, row->value, row->low, row->high));
      },
      &rows));
  return rows;
}

void Tune(const std::string& name, int64_t value) {
  ThrowIfError(KrTune(name.c_str(), value));
}

void StartTimeline(const std::string& path, bool mark_cycles) {
  ThrowIfError(
      WithoutGil([&] { return KrStartTimeline(path.c_str(), mark_cycles); }));
}

void TraceSlice(int32_t phase, const std::string& name, int64_t begin_ns,
                int64_t end_ns, int64_t value) {
  ThrowIfError(KrTraceSlice(phase, name.c_str(), begin_ns, end_ns, value));
}

py::tuple Steps() {
  const KrSteps steps = KrGetSteps();
  return py::make_tuple(steps.committed, steps.discarded, steps.generation);
}

constexpr double kSecondsBetweenSignals = 0.1;

void Admit() {
  bool done = false;
  while (!done) {
    // Signals are handled in between.
    ThrowIfError(
        WithoutGil([&done] { return KrAdmit(kSecondsBetweenSignals, &done); }));
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

void Tell(const std::string& key, const std::string& text, int64_t generation) {
  ThrowIfError(KrTell(key.c_str(), text.data(), text.size(), generation));
}

// (generation, members, texts) of each.
py::list Told(const std::string& key, int64_t after) {
  py::list all;
  KrReadTold(key.c_str(), after, &all, [](void* list, const KrTold* told) {
    py::list members, texts;
    for (size_t i = 0; i < told->num_members; ++i) {
      members.append(told->members[i]);
      texts.append(py::bytes(told->texts[i], told->text_bytes[i]));
    }
    static_cast<py::list*>(list)->append(
        py::make_tuple(told->generation, members, texts));
  });
  return all;
}

void Count(const std::string& metric, int64_t amount) {
  ThrowIfError(KrCount(metric.c_str(), amount));
}

void SetMetric(const std::string& metric, uint64_t value) {
  ThrowIfError(KrSetMetric(metric.c_str(), value));
}

std::unique_ptr<Operation> MakeOperation(
    int64_t process_set, std::string name, int32_t kind,
    const std::vector<std::pair<int32_t, std::vector<int64_t>>>& tensors,
    int32_t reduce_op, int32_t compression, int32_t device, int32_t root,
    int64_t generation, double prescale, double postscale,
    std::vector<int64_t> splits) {
  Operation::Call call;
  call.name = std::move(name);
  call.kind = kind;
  call.reduce_op = reduce_op;
  call.compression = compression;
  call.device = device;
  call.root = root;
  call.generation = generation;
  call.prescale = prescale;
  call.postscale = postscale;
  call.splits = std::move(splits);
  std::vector<Operation::Tensor> specs;
  for (const auto& [dtype, shape] : tensors) specs.push_back({dtype, shape});
  return std::make_unique<Operation>(process_set, call, specs);
}

void StartOperation(Operation& self, std::vector<uintptr_t> inputs,
                    std::vector<uintptr_t> outputs, py::object owner,
                    int32_t device_ordinal, uintptr_t stream) {
  self.Start({std::move(inputs), std::move(outputs), std::move(owner),
              device_ordinal, stream});
}

// Raises StatusError if one of them does not parse.
void CheckSettings(const std::map<std::string, std::string>& settings) {
  const std::vector<KrSetting> given = SettingsOf(settings);
  ThrowIfError(KrCheckSettings(given.data(), given.size()));
}

// Log lines, for a thread of Python's that takes them.
class LogQueue {
 public:
  LogQueue() : queue_(KrLogQueueCreate()) {}
  ~LogQueue() { KrLogQueueFree(queue_); }
  LogQueue(const LogQueue&) = delete;
  LogQueue& operator=(const LogQueue&) = delete;

  // Waits for lines: (level, line). None once closed and empty.
  std::vector<std::pair<int32_t, std::string>> Take() {
    std::vector<std::pair<int32_t, std::string>> lines;
    WithoutGil([&] {
      KrLogQueueTake(
          queue_,
          [](void* taken, int32_t level, const char* line) {
            static_cast<decltype(lines)*>(taken)->emplace_back(level, line);
          },
          &lines);
    });
    return lines;
  }
  void Close() { KrLogQueueClose(queue_); }

 private:
  KrLogQueue* const queue_;
};

}  // namespace
}  // namespace keras_ring

PYBIND11_MODULE(_core, module) {
  using namespace keras_ring;  // NOLINT: the module's own scope

  static py::handle status_error = PyErr_NewException(
      "keras_ring._core.StatusError", PyExc_RuntimeError, nullptr);
  module.attr("StatusError") = status_error;
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const StatusError& error) {
      py::tuple arguments = py::make_tuple(error.code, error.message);
      PyErr_SetObject(status_error.ptr(), arguments.ptr());
    }
  });

  module.def("init", &Init, py::arg("versions"),
             py::arg("settings") = std::map<std::string, std::string>());
  module.def("init_child", &InitChild, py::arg("parent"),
             py::arg("parent_pid"));
  module.def("shutdown", &Shutdown, py::arg("reason"));
  module.def("add_process_sets", &AddProcessSets, py::arg("lists"));
  module.def("remove_process_set", &RemoveProcessSet, py::arg("number"));
  module.def("is_initialized", &KrIsInitialized);
  module.def("job_error", &JobError);
  module.def("metrics", &Metrics);
  module.def("explain", &Explain, py::arg("gpus") = false);
  module.def("gpus", &Gpus);
  module.def("gpu_versions", &GpuVersions);
  module.def("option", &Option, py::arg("variable"));
  module.def("tunables", &Tunables);
  module.def("tune", &Tune, py::arg("name"), py::arg("value"));
  module.def("is_tracing", &KrIsTracing);
  module.def("start_timeline", &StartTimeline, py::arg("path"),
             py::arg("mark_cycles") = false);
  module.def("stop_timeline", [] { WithoutGil([] { KrStopTimeline(); }); });
  module.def("trace_span", &TraceSlice, py::arg("phase"), py::arg("name"),
             py::arg("begin_ns"), py::arg("end_ns"), py::arg("value") = 0);
  module.def("count", &Count, py::arg("metric"), py::arg("amount"));
  module.def("set_gauge", &SetMetric, py::arg("metric"), py::arg("value"));
  module.def("enter_activity", &KrEnterActivity, py::arg("activity"),
             py::arg("at_ns"));
  module.def("begin_input_wait", &KrBeginInputWait, py::arg("at_ns"));
  module.def("end_input_wait", &KrEndInputWait, py::arg("began_ns"),
             py::arg("before"), py::arg("ended_ns"), py::arg("samples"));
  module.def("zero_copy_ranks", &KrZeroCopyRanks);
  module.def("describe_options", &DescribeOptions);
  module.def("describe_metrics", &DescribeMetrics);
  module.def("dtypes", &DTypes);
  module.def("check_settings", &CheckSettings, py::arg("settings"));
  module.attr("compiler") = KrCompiler();
  module.attr("cpu_level") = KrCpuLevel();

  py::class_<KrTopology>(module, "Topology")
      .def_readonly("rank", &KrTopology::rank)
      .def_readonly("size", &KrTopology::size)
      .def_readonly("local_rank", &KrTopology::local_rank)
      .def_readonly("local_size", &KrTopology::local_size)
      .def_readonly("cross_rank", &KrTopology::cross_rank)
      .def_readonly("cross_size", &KrTopology::cross_size)
      .def_readonly("homogeneous", &KrTopology::homogeneous)
      .def_readonly("generation", &KrTopology::generation);
  module.def("topology", &Topology);
  module.def("is_elastic", &KrIsElastic);
  module.def("steps", &Steps);
  module.def("is_waiting", &KrIsWaiting);
  module.def("num_waiting", &KrNumWaiting);
  module.def("admit", &Admit);
  module.def("tell", &Tell, py::arg("key"), py::arg("text"),
             py::arg("generation"));
  module.def("told", &Told, py::arg("key"), py::arg("after"));

  py::class_<Memory>(module, "Memory", py::buffer_protocol())
      .def_readonly("rows", &Memory::rows)
      .def_buffer([](Memory& memory) {
        return py::buffer_info(static_cast<uint8_t*>(memory.data.get()),
                               static_cast<py::ssize_t>(memory.bytes));
      });
  py::class_<Operation>(module, "Operation")
      .def(py::init(&MakeOperation), py::arg("process_set"), py::arg("name"),
           py::arg("kind"), py::arg("tensors"), py::kw_only(),
           py::arg("reduce_op") = int32_t{KR_SUM},
           py::arg("compression") = int32_t{KR_COMPRESSION_NONE},
           py::arg("device") = int32_t{KR_DEVICE_HOST}, py::arg("root") = 0,
           py::arg("generation") = -1, py::arg("prescale") = 1.0,
           py::arg("postscale") = 1.0,
           py::arg("splits") = std::vector<int64_t>())
      .def("start", &StartOperation, py::arg("inputs"), py::arg("outputs"),
           py::arg("owner"), py::arg("device_ordinal") = 0,
           py::arg("stream") = 0)
      .def("is_done", &Operation::IsDone)
      .def("wait", &Operation::Wait, py::arg("seconds") = py::none())
      .def("take_results", &Operation::TakeResults);

  py::class_<LogQueue>(module, "LogQueue")
      .def(py::init())
      .def("take", &LogQueue::Take)
      .def("close", &LogQueue::Close);
}
