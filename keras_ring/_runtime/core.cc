// keras_ring._core: the runtime's API for Python. An adapter, nothing else.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/cpu_features.h"
#include "csrc/base/dtype.h"
#include "csrc/base/logging.h"
#include "csrc/base/options.h"
#include "csrc/base/status.h"
#include "csrc/runtime/diagnostics/log_queue.h"
#include "csrc/runtime/process_arena.h"
#include "csrc/runtime/process_runtime.h"
#include "csrc/runtime/runtime.h"
#include "csrc/runtime/runtime_factory.h"

namespace keras_ring {
namespace {

namespace py = ::pybind11;

// Becomes _core.StatusError(code, message) in Python.
struct StatusError {
  Status status;
};

void ThrowIfError(const Status& status) {
  if (!status.ok()) throw StatusError{status};
}

Topology CurrentTopology() {
  std::shared_ptr<Runtime> runtime = ProcessRuntime();
  if (runtime == nullptr) {
    throw StatusError{FailedPreconditionError("not initialized")};
  }
  return runtime->topology();
}

void Init(const std::vector<std::string>& versions) {
  Result<Options> options = Options::FromEnvironment();
  ThrowIfError(options.status());
  SetLogLevel(options->log_level);
  SetLogRank(options->size > 1 ? options->rank : -1);
  Status status;
  {
    py::gil_scoped_release release;
    Result<std::shared_ptr<ProcessSets>> job =
        CreateJob(*options, versions, ProcessArena());
    status = job.ok() ? InstallProcessSets(*job) : job.status();
  }
  ThrowIfError(status);
  if (options->size > 1) AnswerDumpSignal();
}

void Shutdown(const std::string& reason) {
  py::gil_scoped_release release;
  std::shared_ptr<ProcessSets> sets = TakeProcessSets();
  if (sets != nullptr) sets->Shutdown(reason);
}

// The process sets of the job. The calls that change them wait for all ranks.
std::shared_ptr<ProcessSets> Sets() {
  ThrowIfError(CheckNotForked());
  std::shared_ptr<ProcessSets> sets = CurrentProcessSets();
  if (sets == nullptr) {
    throw StatusError{FailedPreconditionError("not initialized")};
  }
  return sets;
}

uint32_t AddProcessSet(const std::vector<int32_t>& ranks) {
  std::shared_ptr<ProcessSets> sets = Sets();
  Result<uint32_t> number = InternalError("not tried");
  {
    py::gil_scoped_release release;
    number = sets->Add(ranks);
    sets.reset();
  }
  ThrowIfError(number.status());
  return *number;
}

void RemoveProcessSet(int64_t number) {
  std::shared_ptr<ProcessSets> sets = Sets();
  Status status;
  {
    py::gil_scoped_release release;
    status = sets->Remove(number);
    sets.reset();
  }
  ThrowIfError(status);
}

// Why collectives cannot run any more; empty while they can.
std::string JobError() {
  std::shared_ptr<Runtime> runtime = ProcessRuntime();
  return runtime == nullptr ? "" : runtime->status().message();
}

py::dict Metrics() {
  std::shared_ptr<Runtime> runtime = ProcessRuntime();
  if (runtime == nullptr) {
    throw StatusError{FailedPreconditionError("not initialized")};
  }
  const Counters& counters = runtime->counters();
  py::dict metrics;
  for (const CounterDescription& row : DescribeCounters()) {
    metrics[row.name] = (counters.*row.count).load();
  }
  const std::shared_ptr<Arena> arena = ProcessArena();
  const Arena::Stats stats = arena ? arena->stats() : Arena::Stats();
  for (const Arena::StatDescription& row : Arena::DescribeStats()) {
    metrics[row.name] = stats.*row.value;
  }
  return metrics;
}

py::list DescribeMetrics() {
  py::list rows;
  for (const CounterDescription& row : DescribeCounters()) {
    rows.append(py::make_tuple(row.name, row.unit, row.meaning));
  }
  for (const Arena::StatDescription& row : Arena::DescribeStats()) {
    rows.append(py::make_tuple(row.name, "bytes", row.meaning));
  }
  return rows;
}

py::list Describe() {
  py::list rows;
  for (const OptionDescription& option : DescribeOptions()) {
    rows.append(py::make_tuple(option.variable, option.type,
                               option.default_value, option.meaning));
  }
  return rows;
}

// The element types that collectives carry: name, and whether it is reduced.
py::list DTypes() {
  py::list rows;
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    rows.append(py::make_tuple(DTypeName(dtype), IsReducible(dtype)));
  }
  return rows;
}

// Raises StatusError if the environment does not parse.
void CheckEnvironment() { ThrowIfError(Options::FromEnvironment().status()); }

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
      py::tuple arguments = py::make_tuple(StatusCodeName(error.status.code()),
                                           error.status.message());
      PyErr_SetObject(status_error.ptr(), arguments.ptr());
    }
  });

  module.def("init", &Init, py::arg("versions"));
  module.def("shutdown", &Shutdown, py::arg("reason"));
  module.def("add_process_set", &AddProcessSet, py::arg("ranks"));
  module.def("remove_process_set", &RemoveProcessSet, py::arg("number"));
  module.def("is_initialized", [] { return ProcessRuntime() != nullptr; });
  module.def("job_error", &JobError);
  module.def("metrics", &Metrics);
  module.def("zero_copy_ranks", &ZeroCopyRanks);
  module.def("describe_options", &Describe);
  module.def("describe_metrics", &DescribeMetrics);
  module.def("dtypes", &DTypes);
  module.def("check_environment", &CheckEnvironment);
  module.attr("compiler") = __VERSION__;
  module.attr("cpu_level") = CpuLevelName(DetectCpuLevel());

  py::class_<Topology>(module, "Topology")
      .def_readonly("rank", &Topology::rank)
      .def_readonly("size", &Topology::size)
      .def_readonly("local_rank", &Topology::local_rank)
      .def_readonly("local_size", &Topology::local_size)
      .def_readonly("cross_rank", &Topology::cross_rank)
      .def_readonly("cross_size", &Topology::cross_size)
      .def_readonly("homogeneous", &Topology::homogeneous);
  module.def("topology", &CurrentTopology);

  py::class_<LogQueue, std::shared_ptr<LogQueue>>(module, "LogQueue")
      .def(py::init([] {
        auto queue = std::make_shared<LogQueue>();
        SetLogSink(queue);
        return queue;
      }))
      .def("take",
           [](LogQueue& queue) {
             std::vector<LogQueue::Line> lines;
             {
               py::gil_scoped_release release;
               lines = queue.Take();
             }
             py::list result;
             for (auto& [level, line] : lines) {
               result.append(py::make_tuple(static_cast<int>(level), line));
             }
             return result;
           })
      .def("close", [](LogQueue& queue) {
        SetLogSink(nullptr);
        queue.Close();
      });
}
