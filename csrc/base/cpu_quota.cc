#include "csrc/base/cpu_quota.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>

namespace keras_ring {
namespace {

// Returns the quota of one control group in cores; 0 if it has none, or there
// is no such group.
double QuotaOf(const std::string& directory) {
  std::string quota;
  double period = 0.0;
  std::ifstream version_2(directory + "/cpu.max");
  if (!(version_2 >> quota >> period)) {
    std::ifstream(directory + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(directory + "/cpu.cfs_period_us") >> period;
  }
  double time = 0.0;
  // Not "max", nor -1.
  if (!(std::istringstream(quota) >> time) || time <= 0.0 || period <= 0.0) {
    return 0.0;
  }
  return time / period;
}

uint64_t IdentityOf(const std::string& directory) {
  struct stat facts = {};
  return stat(directory.c_str(), &facts) == 0 ? facts.st_ino : 0;
}

// A group may use no more than each of the groups that contain it. In a
// container the path may be the host's, which does not exist there: then the
// mounted directory is the group itself.
void TakeTightest(const std::string& mount, std::string path,
                  std::optional<CpuQuota>* tightest) {
  while (true) {
    const double cores = QuotaOf(mount + path);
    if (cores > 0.0 && (!*tightest || cores < (*tightest)->cores)) {
      *tightest = {cores, IdentityOf(mount + path)};
    }
    if (path.empty()) return;
    path.erase(path.rfind('/'));
  }
}

bool HasCpu(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

}  // namespace

std::optional<CpuQuota> ReadCpuQuota(const std::string& root) {
  std::optional<CpuQuota> tightest;
  const std::string mounts = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  // "number:controllers:path"; of version 2, "0::path".
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    if (path == "/") path.clear();
    if (controllers.empty()) {
      TakeTightest(mounts, path, &tightest);
    } else if (HasCpu(controllers)) {
      TakeTightest(mounts + "/" + controllers, path, &tightest);
      TakeTightest(mounts + "/cpu", path, &tightest);
    }
  }
  return tightest;
}

}  // namespace keras_ring
