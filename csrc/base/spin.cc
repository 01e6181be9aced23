#include "csrc/base/spin.h"

#include <sched.h>

namespace keras_ring {

void YieldCpu() { sched_yield(); }

}  // namespace keras_ring
