// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/gpu/nccl.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace ddp::nccl {
namespace {

constexpr std::array<const char*, 1> kNames = {kLibrary};

// Before the other functions are looked up, because an old library does not have them, and the
// version explains why.
int version_of(const gpu::SharedLibrary& library) {
  int (*const get_version)(int*) = library["ncclGetVersion"];
  const std::string file = library.file_of("ncclGetVersion");
  int version = 0;
  if (get_version(&version) != kSuccess) {
    throw UsageError(fmt::format("NCCL in {} does not report its version", file));
  }
  if (version >= kMinVersion) return version;
  throw UsageError(fmt::format(
      "NCCL {} in {} is older than {}, the oldest that this program can use; install a newer NCCL, "
      "or use --device cpu",
      release_of(version), file, release_of(kMinVersion)));
}

}  // namespace

std::string release_of(int version) {
  constexpr int kNewScheme = 10'000;  // versions before 2.9 are numbers such as 2803
  const int major = version < kNewScheme ? version / 1000 : version / 10'000;
  const int rest = version < kNewScheme ? version % 1000 : version % 10'000;
  return fmt::format("{}.{}.{}", major, rest / 100, rest % 100);
}

Functions load(const std::string& path) {
  const gpu::SharedLibrary library("NCCL", kNames, path);
  const int version = version_of(library);
  Functions functions{{library}};
  functions.version = version;
  return functions;
}

}  // namespace ddp::nccl
