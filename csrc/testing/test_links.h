// Links on which tests meet all algorithms with small tensors.
#ifndef KERAS_RING_TESTING_TEST_LINKS_H_
#define KERAS_RING_TESTING_TEST_LINKS_H_

#include "csrc/collective/net/cost_model.h"

namespace keras_ring {

// Another hop costs as much as some hundred bytes.
inline LinkModel TestLinks() {
  LinkModel links;
  links.latency = 200;
  links.message = 0;
  links.byte = 1;
  return links;
}

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_TEST_LINKS_H_
