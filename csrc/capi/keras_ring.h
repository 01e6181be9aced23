/* The C interface of libkeras_ring: everything that the library exports, and
 * everything that an adapter for a framework needs. It is in C because a
 * library that shows no C++ type fits every framework, whatever flags that
 * framework was compiled with.
 *
 * Names are KrSomething. An object that ...Create returns, or that is passed
 * out through a pointer, belongs to the caller, who must free it with the
 * ...Free of its type. Texts are UTF-8. Everything may be called from any
 * thread. */
#ifndef KERAS_RING_CAPI_KERAS_RING_H_
#define KERAS_RING_CAPI_KERAS_RING_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Status ---
 *
 * A function that can fail returns one, which belongs to the caller: null for
 * success. */

typedef struct KrStatus KrStatus;

/* A number of absl::StatusCode; 0 for null. */
int32_t KrStatusCode(const KrStatus* status);
/* "UNAVAILABLE", ...; "OK" for null. */
const char* KrStatusCodeName(const KrStatus* status);
/* Lives as long as `status`; "" for null. */
const char* KrStatusMessage(const KrStatus* status);
/* Creates a status, for the caller's own errors. A code that is not that of an
 * error becomes INTERNAL. */
KrStatus* KrStatusCreate(int32_t code, const char* message);
void KrStatusFree(KrStatus* status);

/* --- Element types --- */

/* Indexed by its number, which is its row in csrc/base/dtype_table.h. */
typedef struct KrDType {
  const char* name; /* NumPy's: "float32" */
  size_t bytes;
  bool reducible; /* bool and complex numbers can only be moved */
} KrDType;

/* Returns the number of rows. The rows live as long as the process. */
size_t KrDTypes(const KrDType** rows);

/* --- Requests: what to communicate, and how --- */

typedef enum KrKind {
  KR_ALLREDUCE = 0,
  KR_ALLGATHER,
  KR_BROADCAST,
  KR_BARRIER,
  KR_REDUCESCATTER,
  KR_ALLTOALL,
  KR_JOIN,
} KrKind;

typedef enum KrReduceOp {
  KR_AVERAGE = 0,
  KR_SUM,
  KR_MIN,
  KR_MAX,
  KR_PRODUCT,
  KR_ADASUM,
} KrReduceOp;

typedef enum KrCompression {
  KR_COMPRESSION_NONE = 0,
  KR_COMPRESSION_FP16,
  KR_COMPRESSION_BF16,
} KrCompression;

typedef enum KrDeviceKind {
  KR_DEVICE_HOST = 0,
  KR_DEVICE_CUDA,
} KrDeviceKind;

typedef struct KrTensorSpec {
  int32_t dtype;
  int32_t num_dimensions;
  const int64_t* dimensions;
} KrTensorSpec;

/* A zeroed spec is a sum of nothing with factors of 0: see
 * KrRequestSpecInit. */
typedef struct KrRequestSpec {
  /* Ranks match by name. Not null-terminated: `name_bytes` long. */
  const char* name;
  size_t name_bytes;
  int32_t kind;        /* KrKind */
  int32_t reduce_op;   /* KrReduceOp; for reductions */
  int32_t compression; /* KrCompression; for reductions */
  int32_t device;      /* KrDeviceKind: where the tensors are */
  int32_t root;        /* for a broadcast: a rank of the job */
  /* For a broadcast of an elastic job: the generation (see KrTopology) in which
   * the root has that rank; -1: the one in which it is submitted. The root
   * stays the same process when ranks are counted anew. If the job has lost it,
   * the broadcast ends with ABORTED. */
  int64_t generation;
  double prescale;  /* for reductions: the factor before */
  double postscale; /* and after the reduction */
  /* For an alltoall: the rows for each rank; none: equal shares. */
  const int64_t* splits;
  size_t num_splits;
  /* Several tensors are agreed on, executed and ended together. */
  const KrTensorSpec* tensors;
  size_t num_tensors;
  /* The commit group of whose steps the operation is: see KrCommit. None: of
   * no step. */
  const char* commit_group;
  size_t commit_group_bytes;
} KrRequestSpec;

typedef struct KrRequest KrRequest;

/* Initializes a sum over host memory, without a name and without tensors. */
void KrRequestSpecInit(KrRequestSpec* spec);
/* INVALID_ARGUMENT: there is no such number of a kind, a type, ...; or no
 * collective can have this name or these dimensions. Properties on which the
 * ranks must agree are checked when they do. */
KrStatus* KrRequestCreate(const KrRequestSpec* spec, KrRequest** request);
/* "allreduce 'dense/kernel'", as in messages. Lives as long as `request`. */
const char* KrRequestLabel(const KrRequest* request);
void KrRequestFree(const KrRequest* request);

/* INVALID_ARGUMENT: no collective can have this name. */
KrStatus* KrCheckName(const char* name, size_t bytes);
/* INVALID_ARGUMENT: there is no such kind, operation or compression. */
KrStatus* KrCheckReduction(int32_t kind, int32_t reduce_op,
                           int32_t compression);

/* --- Operations: a request with this rank's memory --- */

/* The access of one caller, such as an op, to the runtime of one process set:
 * it looks the runtime up once, and again when that runtime is over. */
typedef struct KrRuntimeLookup KrRuntimeLookup;

/* 0 is the set of all ranks. The set need not exist yet. */
KrRuntimeLookup* KrRuntimeLookupCreate(int64_t process_set);
void KrRuntimeLookupFree(KrRuntimeLookup* lookup);

typedef struct KrOperation {
  /* One per tensor of the request, valid until `done` is called. */
  const void* const* inputs;
  /* Like inputs; an output may equal its input. Null if the size of a result
   * differs from that of its tensor (allgather, alltoall, reducescatter). */
  void* const* outputs;
  /* Passed to `done`, `allocate` and `wait_until_ready`. */
  void* context;
  /* Ends the operation, with success or an error; called once, by a thread of
   * the runtime, which it must not block. `status` does not belong to the
   * callee. */
  void (*done)(void* context, const KrStatus* status);
  /* Used if there are no outputs: sets `*memory` to memory for a result of
   * `rows` rows. Called once for each result, in order; in an elastic job maybe
   * again, and then the memory of the calls before is not used any more. There
   * is one result per tensor; an alltoall has one more: int64, the rows that
   * came from each rank, always in host memory. Memory of a device is written
   * once all is done that `stream` was given before this returns; unless there
   * is `wait_until_ready`. */
  KrStatus* (*allocate)(void* context, int32_t result, int64_t rows,
                        void** memory);
  /* The ordinal of a device of the kind in the request. */
  int32_t device_ordinal;
  /* Blocks until the inputs are written and the outputs may be. Called by a
   * thread of the runtime, before `done`. Null: in host memory this is so
   * already; in that of a device, once all is done that `stream` was given
   * before this call. */
  void (*wait_until_ready)(void* context);
  /* For tensors of a device: the stream (CUstream) that the caller works on;
   * null: the default stream. */
  void* stream;
} KrOperation;

/* Submits an operation; does not block. After success `done` is called exactly
 * once; after an error it is never called. The error says that there is no job
 * in this process (FAILED_PRECONDITION), no such set (the same), that this rank
 * is not a member or that no collective of the job serves the device of the
 * tensors (INVALID_ARGUMENT), that an operation of this name is in flight (the
 * same), that this rank has joined (FAILED_PRECONDITION), or why the job has
 * ended. `operation` and its arrays may be freed when this returns; the memory
 * of the tensors and `context` must stay valid until `done` is called. */
KrStatus* KrEnqueue(KrRuntimeLookup* lookup, const KrRequest* request,
                    const KrOperation* operation);

/* --- Steps of elastic jobs ---
 *
 * An elastic job goes on without the ranks that it loses. A loss may leave the
 * results of an operation complete on some ranks and not on others. So the
 * operations whose results change what all ranks keep alike, such as gradients,
 * form a step that all ranks commit, or all discard. */

/* Asks whether the step of `group` that this rank is in is to be committed,
 * once all of its operations have ended; the next step of the group begins.
 * `done` is called once after success, maybe before this returns: with true if
 * all ranks have the results; with false if they have none, on all ranks alike;
 * or with an error. In a job that is not elastic the answer is true, and nobody
 * is asked. INVALID_ARGUMENT: no group can have this name, or its commit is
 * asked for already. Other errors are those of KrEnqueue. */
KrStatus* KrCommit(const char* group, size_t group_bytes, void* context,
                   void (*done)(void* context, const KrStatus* status,
                                bool committed));
/* Whether the job of this process is elastic. */
bool KrIsElastic(void);

/* How the steps of an elastic job have ended on this rank, of all groups. */
typedef struct KrSteps {
  uint64_t committed;
  uint64_t discarded;
  /* Of the last that was committed: the generation whose shares it has. */
  int64_t generation;
} KrSteps;
/* Zeros, if the job is not elastic. */
KrSteps KrGetSteps(void);

/* Whether this process joins an elastic job that runs, and the ranks have not
 * let it in. Until then its job is one of its own. */
bool KrIsWaiting(void);
/* How many processes wait for that, as far as this rank has heard; others may
 * not have heard of it. */
uint64_t KrNumWaiting(void);
/* Lets in who waits. All ranks must call this between the same two steps, with
 * no operation of theirs pending; a rank that waits, to be let in. Blocks until
 * all have, and sets `*done`: then the topology is another one. After `seconds`
 * it returns with `*done` false, and must be called again. */
KrStatus* KrAdmit(double seconds, bool* done);

/* Sets the text about `key` that this rank gives the others when the job goes
 * on without one of them. `generation`: that of the topology that the caller
 * has read; ABORTED if it is over. Does nothing if the job is not elastic. */
KrStatus* KrTell(const char* key, const char* text, size_t text_bytes,
                 int64_t generation);
/* What the ranks of a generation told each other when it began. */
typedef struct KrTold {
  int64_t generation;
  /* By rank: the rank at the start of the job, and the text. */
  size_t num_members;
  const int32_t* members;
  const char* const* texts;
  const size_t* text_bytes;
} KrTold;
/* Visits what was told about `key` in the generations after one, in order. */
void KrReadTold(const char* key, int64_t after, void* context,
                void (*visit)(void* context, const KrTold* told));

/* --- The job of this process --- */

typedef struct KrTopology {
  int32_t rank;
  int32_t size;
  int32_t local_rank; /* among the ranks of this host */
  int32_t local_size;
  int32_t cross_rank; /* index of this host among those with local_rank */
  int32_t cross_size;
  bool homogeneous; /* every host has the same number of ranks */
  /* Of an elastic job: grows whenever its ranks are counted anew. */
  int64_t generation;
} KrTopology;

/* Replaces a variable of the environment. */
typedef struct KrSetting {
  const char* variable; /* one of those of KrOptions */
  const char* value;
} KrSetting;

/* Meets the other ranks and starts. Options come from `settings`, and from the
 * environment if they are not set there. `versions`: "name=value" lines that
 * must be equal on all ranks. Blocks. */
KrStatus* KrInit(const char* const* versions, size_t num_versions,
                 const KrSetting* settings, size_t num_settings);
/* Replaces KrInit in a process that a rank has started as a program of its own:
 * this process is no rank, but knows the topology of that rank. Collectives are
 * errors (FAILED_PRECONDITION) that say so, metrics are zeros, and KrShutdown
 * forgets the rank. */
KrStatus* KrInitChild(const KrTopology* parent, int64_t parent_pid);
/* Ends the job in agreement with the other ranks, which are told the reason; ""
 * for a program that finished normally. Blocks. Does nothing without a job. */
void KrShutdown(const char* reason);
bool KrIsInitialized(void);
/* INVALID_ARGUMENT: one of the settings is not valid for a rank. Ignores the
 * environment of this process. */
KrStatus* KrCheckSettings(const KrSetting* settings, size_t num_settings);

/* FAILED_PRECONDITION: there is no job. */
KrStatus* KrGetTopology(KrTopology* topology);
/* Reads one number of the topology, as an op needs it: "local_rank",
 * "local_size"; for a process set "rank", and, also on ranks that are not
 * members, "size" and "included" (0 or 1). Errors are those of KrEnqueue. */
KrStatus* KrReadTopology(const char* what, int64_t process_set, int32_t* value);
/* Returns why collectives cannot run any more; null while they can, and without
 * a job. */
KrStatus* KrJobStatus(void);

/* Describes how collectives are done whose tensors are on a kind of device
 * (KrDeviceKind), and why: lines for people, passed to `visit` before this
 * returns. FAILED_PRECONDITION: there is no job, or no such device, for which
 * its driver is opened. */
KrStatus* KrExplain(int32_t device,
                    void (*visit)(void* context, const char* text),
                    void* context);

/* Reads the value of a variable of KrOptions in this job, as text; "" if it is
 * secret. Passed to `visit` before this returns. FAILED_PRECONDITION: there is
 * no job. INVALID_ARGUMENT: there is no such variable. */
KrStatus* KrReadOption(const char* variable,
                       void (*visit)(void* context, const char* text),
                       void* context);

/* A number by which the job can be tuned while it runs. */
typedef struct KrTunable {
  const char* name;
  const char* unit; /* "" for a choice */
  int64_t value;    /* now */
  int64_t low;
  int64_t high;
} KrTunable;
/* Passes each tunable to `visit` before this returns; names and units live as
 * long as the process. FAILED_PRECONDITION: there is no job. */
KrStatus* KrTunables(void (*visit)(void* context, const KrTunable* tunable),
                     void* context);
/* Sets a tunable on all ranks between the same two operations; does not wait
 * for that. FAILED_PRECONDITION: there is no job, or this is not rank 0.
 * INVALID_ARGUMENT: there is no such tunable in this job, or it cannot have
 * this value. Otherwise the error says why the job has ended. */
KrStatus* KrTune(const char* name, int64_t value);

/* Creates sets of ranks: `ranks` has the `num_ranks[i]` ranks of each set, one
 * set after the other. Either all are created, and their numbers are written to
 * `process_sets`, or none. All ranks must make the same calls in the same
 * order. Both functions wait for all ranks of the job. */
KrStatus* KrAddProcessSets(const int32_t* ranks, const size_t* num_ranks,
                           size_t num_sets, uint32_t* process_sets);
KrStatus* KrRemoveProcessSet(int64_t process_set);

/* --- The arena: memory of this process that the host's ranks can read ---
 *
 * For a framework's allocator of tensors. There is one per process, which
 * exists until the process ends, since tensors may outlive every job. */

typedef struct KrArena KrArena;

/* Returns the number of ranks whose tensors should be in arenas, according to
 * the environment; 0 for none. `job_size`: the number of ranks as told by the
 * program that started this process, used if the environment does not set it;
 * 0: unknown. */
int32_t KrZeroCopyRanks(int32_t job_size);
/* Creates the arena, if there is none yet. `job_size`: the number of ranks. */
KrStatus* KrArenaCreate(int32_t job_size, KrArena** arena);
/* Returns whole pages, aligned to a page. Null: the arena is full. */
void* KrArenaAllocate(KrArena* arena, size_t bytes);
bool KrArenaContains(const KrArena* arena, const void* memory);
/* `memory` must be contained in the arena. */
void KrArenaRelease(KrArena* arena, void* memory);

/* --- GPUs ---
 *
 * Both functions open NVIDIA's driver, which a process that forks without exec
 * must not do before. FAILED_PRECONDITION: there is no driver on this host, or
 * it is too old. */

typedef struct KrGpu {
  int32_t ordinal; /* as the driver shows it to this process */
  const char* name;
  const char* uuid; /* "GPU-...", the same for every process */
  const char* bus;  /* of PCI */
  uint64_t bytes;   /* all of its memory */
  int32_t major;    /* of its compute capability */
  int32_t minor;
} KrGpu;

/* Passes each GPU to `visit` before this returns. */
KrStatus* KrGpus(void (*visit)(void* context, const KrGpu* gpu), void* context);
/* The version of CUDA that the driver is for, and that of NCCL, as NVIDIA
 * writes them: 12080, 22809; 0 for no NCCL. */
KrStatus* KrGpuVersions(int32_t* driver, int32_t* nccl);

/* --- Descriptions of the library ---
 *
 * Each function returns the number of rows, which live as long as the
 * process. */

typedef struct KrOption {
  const char* variable;
  const char* type; /* "bytes", "seconds", ... */
  const char* default_value;
  const char* meaning;
} KrOption;
size_t KrOptions(const KrOption** rows);

typedef struct KrMetric {
  const char* name;
  const char* unit;
  const char* meaning;
} KrMetric;
size_t KrMetrics(const KrMetric** rows);
/* Reads their values, in the same order. FAILED_PRECONDITION: there is no
 * job. */
KrStatus* KrReadMetrics(uint64_t* values);

/* The compiler of the library, and the kernels that it has chosen for this
 * processor: "baseline", "avx2", "avx512". */
const char* KrCompiler(void);
const char* KrCpuLevel(void);

/* --- What the program does, for observers of the job ---
 *
 * None of these waits for other ranks, and none has an effect without a job. */

/* Returns whether this rank's timeline is recorded now. */
bool KrIsTracing(void);
/* Records the timeline into the directory PATH.ranks; `path` must be absolute.
 * FAILED_PRECONDITION: there is no job, or it is recorded already. INTERNAL:
 * the files cannot be written. */
KrStatus* KrStartTimeline(const char* path, bool mark_cycles);
/* Writes the rest of the timeline and ends it. */
void KrStopTimeline(void);
/* Adds a slice. `phase`: a TracePhase from 16 on. Times are nanoseconds of the
 * steady clock. INVALID_ARGUMENT: there is no such phase. */
KrStatus* KrTraceSlice(int32_t phase, const char* name, int64_t begin_ns,
                       int64_t end_ns, int64_t value);
/* Adds to a metric, or sets it. INVALID_ARGUMENT: there is none of this
 * name. */
KrStatus* KrCount(const char* metric, int64_t amount);
KrStatus* KrSetMetric(const char* metric, uint64_t value);
/* The program begins `activity`: a value of the metric "activity". Returns the
 * activity before it. */
int32_t KrEnterActivity(int32_t activity, int64_t at_ns);
/* The program waits for its input pipeline. KrBeginInputWait returns the
 * activity before the wait, which is passed to KrEndInputWait as `before` and
 * resumed there. `samples`: the number of samples that have arrived; they count
 * if `before` is 0 (computing). */
int32_t KrBeginInputWait(int64_t at_ns);
void KrEndInputWait(int64_t began_ns, int32_t before, int64_t ended_ns,
                    int64_t samples);

/* --- Log lines on their way to another logging system ---
 *
 * Without a queue they go to standard error. With a queue, a thread of the
 * other system takes them, since no thread of the runtime may wait for that
 * system. */

typedef struct KrLogQueue KrLogQueue;

/* Lines go to this queue from now on. */
KrLogQueue* KrLogQueueCreate(void);
/* Waits for lines and visits them. `level`: 0 debug, 1 info, 2 warning, 3
 * error. Returns false if the queue was closed, and is empty. */
bool KrLogQueueTake(KrLogQueue* queue,
                    void (*visit)(void* context, int32_t level,
                                  const char* line),
                    void* context);
/* Lines go to standard error again; a waiting KrLogQueueTake returns. */
void KrLogQueueClose(KrLogQueue* queue);
/* To be called once it is closed and nobody waits. */
void KrLogQueueFree(KrLogQueue* queue);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KERAS_RING_CAPI_KERAS_RING_H_ */
