/* The C interface as a program in C sees it: its header alone, and the library
 * as it is installed. One rank, a job from beginning to end. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/capi/keras_ring.h"

static void fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void expect(bool condition, const char* what) {
  if (!condition) fail(what, "not so");
}

static void check(KrStatus* status, const char* what) {
  if (status != NULL) fail(what, KrStatusMessage(status));
}

static int32_t float32(void) {
  const KrDType* rows;
  const size_t count = KrDTypes(&rows);
  for (size_t i = 0; i < count; ++i) {
    if (strcmp(rows[i].name, "float32") == 0) return (int32_t)i;
  }
  return -1;
}

/* An operation that somebody waits for. */
struct call {
  pthread_mutex_t mutex;
  pthread_cond_t ended;
  bool over;
  int32_t code;
  float gathered[8];
};

static void done(void* context, const KrStatus* status) {
  struct call* const call = context;
  pthread_mutex_lock(&call->mutex);
  call->over = true;
  call->code = KrStatusCode(status);
  pthread_cond_signal(&call->ended);
  pthread_mutex_unlock(&call->mutex);
}

static KrStatus* allocate(void* context, int32_t result, int64_t rows,
                          void** memory) {
  struct call* const call = context;
  if (result != 0 || rows != 2) return KrStatusCreate(13, "another result");
  *memory = call->gathered;
  return NULL;
}

static void run(const KrRequestSpec* spec, const float* input, float* output,
                struct call* call) {
  KrRuntimeLookup* const lookup = KrRuntimeLookupCreate(0);
  KrRequest* request = NULL;
  check(KrRequestCreate(spec, &request), "the request");
  const void* inputs[1];
  inputs[0] = input;
  void* outputs[1];
  outputs[0] = output;
  KrOperation operation;
  memset(&operation, 0, sizeof(operation));
  operation.inputs = inputs;
  operation.outputs = output != NULL ? outputs : NULL;
  operation.allocate = allocate;
  operation.done = done;
  operation.context = call;
  call->over = false;
  check(KrEnqueue(lookup, request, &operation), KrRequestLabel(request));
  pthread_mutex_lock(&call->mutex);
  while (!call->over) pthread_cond_wait(&call->ended, &call->mutex);
  pthread_mutex_unlock(&call->mutex);
  expect(call->code == 0, KrRequestLabel(request));
  KrRequestFree(request);
  KrRuntimeLookupFree(lookup);
}

int main(void) {
  expect(!KrIsInitialized(), "nothing is there at first");
  check(KrInit(NULL, 0, NULL, 0), "init");
  expect(KrIsInitialized(), "there is a job");
  KrTopology topology;
  check(KrGetTopology(&topology), "the topology");
  expect(topology.rank == 0 && topology.size == 1, "one rank");

  const int64_t shape[] = {2, 4};
  const KrTensorSpec tensor = {float32(), 2, shape};
  KrRequestSpec spec;
  KrRequestSpecInit(&spec);
  spec.name = "a";
  spec.name_bytes = 1;
  spec.kind = KR_ALLREDUCE;
  spec.prescale = 3.0;
  spec.tensors = &tensor;
  spec.num_tensors = 1;
  const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  float output[8] = {0};
  struct call call;
  memset(&call, 0, sizeof(call));
  pthread_mutex_init(&call.mutex, NULL);
  pthread_cond_init(&call.ended, NULL);
  run(&spec, ones, output, &call);
  expect(output[0] == 3.0f && output[7] == 3.0f, "the sum by a factor");

  spec.kind = KR_ALLGATHER;
  spec.prescale = 1.0;
  run(&spec, ones, NULL, &call);
  expect(memcmp(call.gathered, ones, sizeof(ones)) == 0, "what is gathered");

  check(KrJobStatus(), "the job");
  KrShutdown("");
  expect(!KrIsInitialized(), "nothing is left");
  puts("passed");
  return 0;
}
