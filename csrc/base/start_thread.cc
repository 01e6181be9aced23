#include "csrc/base/start_thread.h"

#include <system_error>
#include <utility>

namespace keras_ring {

Result<std::thread> StartThread(const std::string& name,
                                std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return ResourceExhaustedError(
        "the thread " + name +
        " could not be started: " + error.code().message() +
        "; there may be too many processes and threads (`ulimit -u`, or "
        "pids.max of the container), or too little memory");
  }
}

}  // namespace keras_ring
