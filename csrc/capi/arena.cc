#include "csrc/comm/host/arena.h"

#include "csrc/capi/handles.h"
#include "csrc/runtime/process_arena.h"

int32_t KrZeroCopyRanks(int32_t job_size) {
  return keras_ring::ZeroCopyRanks(job_size);
}

KrStatus* KrArenaCreate(int32_t job_size, KrArena** arena) {
  const keras_ring::Status status = keras_ring::CreateProcessArena(job_size);
  if (!status.ok()) return keras_ring::ToC(status);
  // Never freed, like the arena.
  static KrArena* const of_process = new KrArena{keras_ring::ProcessArena()};
  *arena = of_process;
  return nullptr;
}

void* KrArenaAllocate(KrArena* arena, size_t bytes) {
  return arena->arena->Allocate(bytes);
}

bool KrArenaContains(const KrArena* arena, const void* memory) {
  return arena->arena->Contains(memory);
}

void KrArenaRelease(KrArena* arena, void* memory) {
  arena->arena->Free(memory);
}
