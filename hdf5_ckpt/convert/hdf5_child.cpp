// SPDX-License-Identifier: Apache-2.0
// The child writes its report as JSON to a pipe.

#include "hdf5_ckpt/convert/hdf5_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/convert/file_kind.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"

namespace ddp::ckpt {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxReport = 256ULL << 20;

void limit(int what, std::uint64_t most) {
  struct rlimit value = {};
  ::getrlimit(static_cast<__rlimit_resource>(what), &value);
  value.rlim_cur = value.rlim_max = std::min<rlim_t>(value.rlim_max, most);
  ::setrlimit(static_cast<__rlimit_resource>(what), &value);
}

std::string report_of(const std::function<json()>& work) {
  json report;
  try {
    report["result"] = work();
  } catch (const std::exception& error) {
    report["error"] = error.what();
    report["unsupported"] = dynamic_cast<const UnsupportedError*>(&error) != nullptr;
    report["of_output"] = dynamic_cast<const IoError*>(&error) != nullptr;
  }
  return report.dump(-1, ' ', true, json::error_handler_t::replace);
}

[[noreturn]] void run_child(int to, const ChildLimits& limits, const std::function<json()>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, limits.written_bytes);
  // Not RLIMIT_AS, because the mapped file also counts toward it and may be larger than any limit.
  limit(RLIMIT_DATA, limits.memory_bytes);
  limit(RLIMIT_CPU, limits.cpu_seconds);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  const std::string text = report_of(work);
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t wrote = ::write(to, text.data() + at, text.size() - at);
    if (wrote <= 0) break;
    at += static_cast<std::size_t>(wrote);
  }
  ::_exit(0);  // the parent's buffers must not be flushed twice
}

std::string read_report(int from) {
  std::string text;
  std::array<char, 65536> piece{};
  while (text.size() < kMaxReport) {
    const ssize_t got = ::read(from, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

json in_child(const std::filesystem::path& file, const ChildLimits& limits,
              const std::function<json()>& work) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw IoError("make a pipe to read", file, errno);
  FileDescriptor from(ends[0]);
  FileDescriptor to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) throw IoError("start a process to read", file, errno);
  if (child == 0) run_child(to.get(), limits, work);
  to = FileDescriptor();
  const std::string text = read_report(from.get());
  from = FileDescriptor();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status))
    throw DamagedError(
        fmt::format("libhdf5 crashed while reading it ({})", sigdescr_np(WTERMSIG(status))));
  if (text.empty()) throw DamagedError("libhdf5 ended without an answer while reading it");
  const json report = parse_json(text);
  if (!report.contains("error")) return report.at("result");
  const auto problem = report.at("error").get<std::string>();
  if (report.at("unsupported") == true) throw UnsupportedError(problem);
  if (report.at("of_output") == true) throw Error(problem);  // the child writes, libhdf5 reads
  const bool cut_off = problem.find("truncated file") != std::string::npos;
  throw DamagedError(problem + (cut_off ? "; copy or download it again" : ""));
}

}  // namespace ddp::ckpt
