// The levels of x86-64, for processors that are not.
#include "csrc/collective/kernels/kernel_table.h"

namespace keras_ring {

const KernelTable* const kAvx2Kernels = nullptr;
const KernelTable* const kAvx512Kernels = nullptr;

}  // namespace keras_ring
