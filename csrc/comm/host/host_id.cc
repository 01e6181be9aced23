#include "csrc/comm/host/host_id.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace keras_ring {

std::string OwnHostId(const std::string& proc) {
  std::string boot;
  std::ifstream(proc + "/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) {
    char name[256] = "";
    (void)gethostname(name, sizeof(name) - 1);
    return name;
  }
  struct stat facts = {};
  const bool known = stat((proc + "/self/ns/net").c_str(), &facts) == 0;
  return boot + "/" + std::to_string(known ? facts.st_ino : 0);
}

}  // namespace keras_ring
