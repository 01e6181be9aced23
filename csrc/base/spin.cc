#include "csrc/base/spin.h"

#include <sched.h>

namespace keras_ring {

void RelaxCpu() {
  // The portable name of the instruction, for every architecture that has one.
  __builtin_ia32_pause();
}

void YieldCpu() { sched_yield(); }

}  // namespace keras_ring
