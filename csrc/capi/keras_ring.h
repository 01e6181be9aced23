/* The C interface of libkeras_ring: all that the library exports, and all that
 * an adapter for a framework needs. In C, for a library that shows no C++ type
 * fits every framework, whatever flags that one was compiled with.
 *
 * Names are KrSomething. What ...Create returns, or passes through a pointer,
 * is the caller's, who ends it by the ...Free of its type. Texts are UTF-8.
 * Everything may be called from any thread. */
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
 * A function that can fail returns one, which is the caller's: null for
 * success. */

typedef struct KrStatus KrStatus;

/* A number of absl::StatusCode; 0 of null. */
int32_t KrStatusCode(const KrStatus* status);
/* "UNAVAILABLE", ...; "OK" of null. */
const char* KrStatusCodeName(const KrStatus* status);
/* Lives as long as `status`; "" of null. */
const char* KrStatusMessage(const KrStatus* status);
/* One of the caller's own, for what it answers itself. Of a code that is none
 * of an error: INTERNAL. */
KrStatus* KrStatusCreate(int32_t code, const char* message);
void KrStatusFree(KrStatus* status);

/* --- Element types --- */

/* By its number, which is its row in csrc/base/dtype_table.h. */
typedef struct KrDType {
  const char* name; /* NumPy's: "float32" */
  size_t bytes;
  bool reducible; /* bool and complex numbers are moved only */
} KrDType;

/* Returns how many there are. The rows live for ever. */
size_t KrDTypes(const KrDType** rows);

/* --- Requests: what is to be communicated, and how --- */

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

/* Zeroed, it is a sum of nothing by factors of 0: see KrRequestSpecInit. */
typedef struct KrRequestSpec {
  /* Ranks match by name. Not terminated: `name_bytes` long. */
  const char* name;
  size_t name_bytes;
  int32_t kind;        /* KrKind */
  int32_t reduce_op;   /* KrReduceOp; of reductions */
  int32_t compression; /* KrCompression; of reductions */
  int32_t device;      /* KrDeviceKind: where the tensors are */
  int32_t root;        /* of a broadcast: a rank of the job */
  double prescale;     /* of reductions: what is multiplied before */
  double postscale;    /* and after */
  /* Of an alltoall: the rows for each rank; none: as many for each. */
  const int64_t* splits;
  size_t num_splits;
  /* Several are agreed on, executed and ended together. */
  const KrTensorSpec* tensors;
  size_t num_tensors;
} KrRequestSpec;

typedef struct KrRequest KrRequest;

/* A sum over host memory, without a name and without tensors. */
void KrRequestSpecInit(KrRequestSpec* spec);
/* INVALID_ARGUMENT: there is no such number of a kind, a type, ...; or no
 * collective can have this name or these dimensions. What the ranks must agree
 * on is checked when they do. */
KrStatus* KrRequestCreate(const KrRequestSpec* spec, KrRequest** request);
/* "allreduce 'dense/kernel'", as messages call it. Lives as long as it. */
const char* KrRequestLabel(const KrRequest* request);
void KrRequestFree(const KrRequest* request);

/* INVALID_ARGUMENT: no collective can have this name. */
KrStatus* KrCheckName(const char* name, size_t bytes);
/* INVALID_ARGUMENT: there is no such kind, operation or compression. */
KrStatus* KrCheckReduction(int32_t kind, int32_t reduce_op,
                           int32_t compression);

/* --- Operations: a request with this rank's memory --- */

/* The way of one caller, such as an op, to the runtime of one process set: it
 * is looked up once, and again when that runtime is over. */
typedef struct KrRuntimeLookup KrRuntimeLookup;

/* 0 is the set of all ranks. It need not be there yet. */
KrRuntimeLookup* KrRuntimeLookupCreate(int64_t process_set);
void KrRuntimeLookupFree(KrRuntimeLookup* lookup);

typedef struct KrOperation {
  /* One per tensor of the request, valid until `done` is called. */
  const void* const* inputs;
  /* As inputs; one may equal its input. Null where the size of a result is not
   * that of its tensor (allgather, alltoall, reducescatter). */
  void* const* outputs;
  /* What `done`, `allocate` and `wait_until_ready` get. */
  void* context;
  /* Ends the operation, for good or ill; once, from a thread of the runtime
   * that it must not block. `status` is not the callee's. */
  void (*done)(void* context, const KrStatus* status);
  /* Where there are no outputs: puts memory for a result of so many rows into
   * `memory`. Called once for each, in their order. Results are one per
   * tensor; an alltoall has one more: int64, the rows that came from each
   * rank. */
  KrStatus* (*allocate)(void* context, int32_t result, int64_t rows,
                        void** memory);
  /* Of the kind in the request. */
  int32_t device_ordinal;
  /* Blocks until the inputs are written and the outputs may be. Null: that is
   * so already. Called by a thread of the runtime, before `done`. */
  void (*wait_until_ready)(void* context);
} KrOperation;

/* Submits an operation; does not block. After success `done` is called exactly
 * once; after an error it never is, and says that there is no job in this
 * process (FAILED_PRECONDITION), no such set (the same), that this rank is no
 * member or that no collective of the job serves the device of the tensors
 * (INVALID_ARGUMENT), or why the job has ended. Everything that
 * `operation` points to may go, but for what it says of memory. */
KrStatus* KrEnqueue(KrRuntimeLookup* lookup, const KrRequest* request,
                    const KrOperation* operation);

/* --- The job of this process --- */

typedef struct KrTopology {
  int32_t rank;
  int32_t size;
  int32_t local_rank; /* among the ranks of this host */
  int32_t local_size;
  int32_t cross_rank; /* of this host among those with such a local rank */
  int32_t cross_size;
  bool homogeneous; /* every host has as many ranks */
} KrTopology;

/* What would otherwise come from the environment. */
typedef struct KrSetting {
  const char* variable; /* of those of KrOptions */
  const char* value;
} KrSetting;

/* Meets the other ranks and starts, as `settings` say, and the environment
 * where they say nothing. `versions`: "name=value" lines that must be equal on
 * all ranks. Blocks. */
KrStatus* KrInit(const char* const* versions, size_t num_versions,
                 const KrSetting* settings, size_t num_settings);
/* In place of KrInit, in a process that a rank has started as a program of its
 * own: this process is no rank, and knows where that rank stands. Collectives
 * are errors (FAILED_PRECONDITION) that say so, metrics are zeros, and
 * KrShutdown forgets the rank. */
KrStatus* KrInitChild(const KrTopology* parent, int64_t parent_pid);
/* Ends the job in agreement with the other ranks, who are told the reason;
 * "" for a program that came to its end. Blocks. Without a job: nothing. */
void KrShutdown(const char* reason);
bool KrIsInitialized(void);
/* INVALID_ARGUMENT: one of the settings cannot be that of a rank. The
 * environment of this process is not looked at. */
KrStatus* KrCheckSettings(const KrSetting* settings, size_t num_settings);

/* FAILED_PRECONDITION: there is no job. */
KrStatus* KrGetTopology(KrTopology* topology);
/* One number of it as an op asks for it: "local_rank", "local_size"; of a
 * process set "rank", and, for whoever is not a member too, "size" and
 * "included" (0 or 1). Errors are those of KrEnqueue. */
KrStatus* KrReadTopology(const char* what, int64_t process_set, int32_t* value);
/* Why collectives cannot run any more; null while they can and without a
 * job. */
KrStatus* KrJobStatus(void);

/* How collectives are done, and why: lines for people, passed to `visit`
 * before this returns. FAILED_PRECONDITION: there is no job. */
KrStatus* KrExplain(void (*visit)(void* context, const char* text),
                    void* context);

/* What a variable of KrOptions has set in this job, as text; "" of what is
 * secret. Passed to `visit` before this returns. FAILED_PRECONDITION: there is
 * no job. INVALID_ARGUMENT: there is no such variable. */
KrStatus* KrReadOption(const char* variable,
                       void (*visit)(void* context, const char* text),
                       void* context);

/* A number by which the job can be tuned while it runs. */
typedef struct KrTunable {
  const char* name;
  const char* unit; /* "" of a choice */
  int64_t value;    /* now */
  int64_t low;
  int64_t high;
} KrTunable;
/* Each is passed to `visit` before this returns; names and units live for
 * ever. FAILED_PRECONDITION: there is no job. */
KrStatus* KrTunables(void (*visit)(void* context, const KrTunable* tunable),
                     void* context);
/* Gives it another value, on all ranks between the same two operations; does
 * not wait for that. FAILED_PRECONDITION: there is no job, or this is not
 * rank 0. INVALID_ARGUMENT: there is no such number in this job, or it cannot
 * have this value. Else why the job has ended. */
KrStatus* KrTune(const char* name, int64_t value);

/* Sets of ranks: `num_ranks[i]` of `ranks` for each, one after the other; all
 * are made or none, and their numbers written to `process_sets`. All ranks make
 * the same calls in the same order. Both wait for all ranks of the job. */
KrStatus* KrAddProcessSets(const int32_t* ranks, const size_t* num_ranks,
                           size_t num_sets, uint32_t* process_sets);
KrStatus* KrRemoveProcessSet(int64_t process_set);

/* --- The arena: memory of this process that the host's ranks can read ---
 *
 * For a framework's allocator of tensors. One per process, which stays to its
 * end, for tensors may outlive every job. */

typedef struct KrArena KrArena;

/* Of how many ranks the tensors should lie in arenas, as the environment has
 * it; 0: of none. `job_size`: the number of ranks that whoever has started this
 * process tells, where the environment does not; 0: nobody does. */
int32_t KrZeroCopyRanks(int32_t job_size);
/* Makes it, if there is none yet. `job_size`: the number of ranks. */
KrStatus* KrArenaCreate(int32_t job_size, KrArena** arena);
/* Whole pages, hence aligned to one. Null: it is full. */
void* KrArenaAllocate(KrArena* arena, size_t bytes);
bool KrArenaContains(const KrArena* arena, const void* memory);
/* Of memory that it contains. */
void KrArenaRelease(KrArena* arena, void* memory);

/* --- What there is to know ---
 *
 * Each returns how many rows there are, which live for ever. */

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
/* Their values, in the same order. FAILED_PRECONDITION: there is no job. */
KrStatus* KrReadMetrics(uint64_t* values);

/* The compiler of the library, and the kernels that it has chosen for this
 * processor: "baseline", "avx2", "avx512". */
const char* KrCompiler(void);
const char* KrCpuLevel(void);

/* --- What the program does, for whoever looks at its job ---
 *
 * None of these waits for other ranks, and none does anything without a job. */

/* Whether this rank's timeline is recorded now. */
bool KrIsTracing(void);
/* Records it into the directory PATH.ranks, `path` being absolute.
 * FAILED_PRECONDITION: there is no job, or it is recorded already. INTERNAL:
 * the files cannot be written. */
KrStatus* KrStartTimeline(const char* path, bool mark_cycles);
/* Writes what is left. */
void KrStopTimeline(void);
/* Adds a slice. `phase`: a TracePhase from 16 on. Times are nanoseconds of the
 * steady clock. INVALID_ARGUMENT: there is no such phase. */
KrStatus* KrTraceSlice(int32_t phase, const char* name, int64_t begin_ns,
                       int64_t end_ns, int64_t value);
/* Adds to a metric. INVALID_ARGUMENT: there is none of this name. */
KrStatus* KrCount(const char* metric, int64_t amount);
KrStatus* KrSetMetric(const char* metric, uint64_t value);
/* From now on the program does this: a value of the metric "activity". Returns
 * what it has done before. */
int32_t KrEnterActivity(int32_t activity, int64_t at_ns);
/* The program waits for its input pipeline. Returns what it has done before,
 * which it goes on with at the end. `samples`: those that have come; they count
 * where it trains. */
int32_t KrBeginInputWait(int64_t at_ns);
void KrEndInputWait(int64_t began_ns, int32_t before, int64_t ended_ns,
                    int64_t samples);

/* --- Log lines on their way to another logging system ---
 *
 * Without a queue they go to standard error. With one a thread of the other
 * system's own takes them, for no thread of the runtime may wait for it. */

typedef struct KrLogQueue KrLogQueue;

/* Lines come here from now on. */
KrLogQueue* KrLogQueueCreate(void);
/* Waits for lines and visits them. `level`: 0 debug, 1 info, 2 warning,
 * 3 error. False: it was closed, and is empty. */
bool KrLogQueueTake(KrLogQueue* queue,
                    void (*visit)(void* context, int32_t level,
                                  const char* line),
                    void* context);
/* Lines go to standard error again; whoever waits is let go. */
void KrLogQueueClose(KrLogQueue* queue);
/* Once it is closed and nobody waits. */
void KrLogQueueFree(KrLogQueue* queue);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KERAS_RING_CAPI_KERAS_RING_H_ */
