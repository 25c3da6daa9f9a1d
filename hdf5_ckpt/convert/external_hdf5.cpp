// SPDX-License-Identifier: Apache-2.0
// The child follows only hard links, one at a time, and writes its report as JSON to a pipe.

#include "hdf5_ckpt/convert/external_hdf5.h"

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
#include <new>
#include <nlohmann/json.hpp>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/detail/hdf5_types.h"
#include "hdf5_ckpt/detail/json_fields.h"
#include "hdf5_ckpt/detail/names.h"
#include "hdf5_ckpt/error.h"
#include "hdf5_ckpt/hdf5_handle.h"
#include "hdf5_ckpt/manifest.h"

namespace ddp::ckpt {
namespace {

using nlohmann::json;

constexpr int kMaxGroupDepth = 32;
constexpr std::size_t kMaxReport = 256ULL << 20;

// ---- in the child ----------------------------------------------------------------------------

class Walk {
 public:
  json run(const std::filesystem::path& path) {
    const Hdf5Session session;
    hdf5_check(H5PLset_loading_state(0), "refuse plugins");
    hdf5_check(H5Lunregister(H5L_TYPE_EXTERNAL), "refuse external links");
    const Hdf5Properties access(H5Pcreate(H5P_FILE_ACCESS), "prepare to open a file");
    hdf5_check(H5Pset_file_locking(access.get(), false, true), "disable file locks");
    const Hdf5File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), "open the file");
    const Hdf5Group root(H5Gopen2(file.get(), "/", H5P_DEFAULT), "open its root");
    walk(root.get(), "", 0);
    return std::move(arrays_);
  }

 private:
  void walk(hid_t group, const std::string& prefix, int depth) {
    if (depth > kMaxGroupDepth) throw DamagedError("its groups are nested too deep");
    for (const std::string& name : names_in(group))
      visit(group, name.c_str(), prefix + name, depth);
  }

  // Lists the names in one pass, because fetching a name by its index searches all names every
  // time.
  std::vector<std::string> names_in(hid_t group) {
    Names names;
    names.most = kMaxArrays - std::min(kMaxArrays, objects_) + 1;
    hdf5_check(H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, take_name, &names),
               "read the names in a group");
    if (!names.problem.empty()) throw DamagedError(names.problem);
    return std::move(names.found);
  }

  struct Names {
    std::vector<std::string> found;
    std::size_t most = 0;
    std::string problem;
  };

  // A callback of libhdf5, through which no exception may pass.
  static herr_t take_name(hid_t /*group*/, const char* name, const H5L_info_t* /*info*/,
                          void* to) noexcept {
    constexpr herr_t kGoOn = 0;
    constexpr herr_t kStop = 1;
    auto& names = *static_cast<Names*>(to);
    try {
      if (names.found.size() == names.most) {
        names.problem = "it holds too many objects";
        return kStop;
      }
      if (std::strlen(name) > kMaxNameBytes) {
        names.problem = fmt::format("a name in it has more than {} bytes", kMaxNameBytes);
        return kStop;
      }
      names.found.emplace_back(name);
      return kGoOn;
    } catch (const std::bad_alloc&) {
      return -1;
    }
  }

  void visit(hid_t group, const char* name, const std::string& path, int depth) {
    if (++objects_ > kMaxArrays) throw DamagedError("it holds too many objects");
    H5L_info_t link = {};
    hdf5_check(H5Lget_info(group, name, &link, H5P_DEFAULT), "inspect a link");
    if (link.type != H5L_TYPE_HARD)
      throw DamagedError(fmt::format("'{}' is a link to another place", path));
#if H5_VERSION_GE(1, 12, 0)
    H5O_info2_t info = {};
    hdf5_check(H5Oget_info_by_name3(group, name, &info, H5O_INFO_BASIC, H5P_DEFAULT),
               "inspect an object");
#else
    H5O_info_t info = {};
    hdf5_check(H5Oget_info_by_name1(group, name, &info, H5P_DEFAULT), "inspect an object");
#endif
    if (info.rc != 1) throw DamagedError(fmt::format("'{}' has several names", path));
    if (info.type == H5O_TYPE_GROUP) {
      const Hdf5Group child(H5Gopen2(group, name, H5P_DEFAULT), "open a group");
      walk(child.get(), path + "/", depth + 1);
    } else if (info.type == H5O_TYPE_DATASET) {
      const Hdf5Dataset dataset(H5Dopen2(group, name, H5P_DEFAULT), "open a dataset");
      add(dataset.get(), path);
    } else {
      throw DamagedError(fmt::format("'{}' is neither a group nor a dataset", path));
    }
  }

  void add(hid_t dataset, const std::string& path) {
    const Hdf5Properties how(H5Dget_create_plist(dataset), "read how a dataset is stored");
    if (H5Pget_external_count(how.get()) != 0)
      throw DamagedError(fmt::format("the bytes of '{}' are in another file", path));
    if (H5Pget_layout(how.get()) != H5D_CONTIGUOUS || H5Pget_nfilters(how.get()) != 0)
      throw DamagedError(fmt::format("'{}' is chunked, compressed or virtual, not plain", path));
    const Hdf5Space space(H5Dget_space(dataset), "read a shape");
    const int rank = hdf5_check(H5Sget_simple_extent_ndims(space.get()), "read a shape");
    std::vector<hsize_t> shape(static_cast<std::size_t>(rank));
    if (H5Sget_simple_extent_type(space.get()) == H5S_NULL)
      throw DamagedError(fmt::format("'{}' has no elements and no shape", path));
    if (rank > 0)
      hdf5_check(H5Sget_simple_extent_dims(space.get(), shape.data(), nullptr), "read a shape");
    const haddr_t offset = H5Dget_offset(dataset);
    const bool absent = offset == HADDR_UNDEF;
    if (absent && std::find(shape.begin(), shape.end(), 0U) == shape.end())
      throw DamagedError(fmt::format("'{}' was never written", path));
    arrays_.push_back({{"name", path},
                       {"dtype", dtype_name(dtype_of(dataset, path))},
                       {"shape", shape},
                       {"offset", absent ? 0 : offset}});
  }

  static DType dtype_of(hid_t dataset, const std::string& path) {
    const Hdf5Type type(H5Dget_type(dataset), "read an element type");
    for (const DType dtype : kAllDTypes)
      if (H5Tequal(type.get(), hdf5_type(dtype).get()) > 0) return dtype;
    throw DamagedError(fmt::format("'{}' has elements that a checkpoint cannot hold", path));
  }

  json arrays_ = json::array();
  std::size_t objects_ = 0;
};

void limit(int what, std::uint64_t most) {
  struct rlimit value = {};
  ::getrlimit(static_cast<__rlimit_resource>(what), &value);
  value.rlim_cur = value.rlim_max = std::min<rlim_t>(value.rlim_max, most);
  ::setrlimit(static_cast<__rlimit_resource>(what), &value);
}

[[noreturn]] void run_child(const std::filesystem::path& path, int to, const ChildLimits& limits) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
  // Not RLIMIT_AS, because the mapped file also counts toward it and may be larger than any limit.
  limit(RLIMIT_DATA, limits.memory_bytes);
  limit(RLIMIT_CPU, limits.cpu_seconds);
  std::string text;
  try {
    text = json{{"arrays", Walk().run(path)}}.dump(-1, ' ', true, json::error_handler_t::replace);
  } catch (const std::exception& error) {
    text = json{{"error", error.what()}}.dump(-1, ' ', true, json::error_handler_t::replace);
  }
  std::signal(SIGPIPE, SIG_IGN);
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t wrote = ::write(to, text.data() + at, text.size() - at);
    if (wrote <= 0) break;
    at += static_cast<std::size_t>(wrote);
  }
  ::_exit(0);  // the parent's buffers must not be flushed twice
}

// ---- in the parent ---------------------------------------------------------------------------

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

std::string report_of_child(const std::filesystem::path& path, const ChildLimits& limits) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw IoError("make a pipe to read", path, errno);
  FileDescriptor from(ends[0]);
  FileDescriptor to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) throw IoError("start a process to read", path, errno);
  if (child == 0) run_child(path, to.get(), limits);
  to = FileDescriptor();
  std::string text = read_report(from.get());
  from = FileDescriptor();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status))
    throw DamagedError(
        fmt::format("libhdf5 crashed while reading it ({})", sigdescr_np(WTERMSIG(status))));
  return text;
}

ExternalArray checked(const json& entry, std::uint64_t file_bytes) {
  const JsonFields fields(entry, "array");
  ExternalArray array;
  array.name = fields.text("name");
  if (const std::string problem = array_name_problem(array.name); !problem.empty())
    throw DamagedError(fmt::format("the name of a dataset {}", problem));
  const auto dtype = dtype_from_name(fields.text("dtype"));
  if (!dtype) fields.fail("dtype", "is unknown");
  array.dtype = *dtype;
  for (const auto& extent : fields.list("shape", kMaxRank))
    array.shape.push_back(extent.get<std::uint64_t>());
  array.strides = dense_strides(array.shape);
  array.offset = fields.number("offset", file_bytes);
  const auto bytes = byte_count(array.dtype, array.shape);
  if (!bytes || *bytes > file_bytes - array.offset)
    throw DamagedError(fmt::format("dataset '{}' reaches beyond the end of the file", array.name));
  return array;
}

}  // namespace

FileContents parse_hdf5(const std::filesystem::path& path, std::uint64_t file_bytes,
                        const ChildLimits& limits) {
  const json report = parse_bounded_json(report_of_child(path, limits));
  if (report.contains("error")) throw DamagedError(report.at("error").get<std::string>());
  std::vector<ExternalArray> arrays;
  for (const json& entry : report.at("arrays")) arrays.push_back(checked(entry, file_bytes));
  std::sort(arrays.begin(), arrays.end(),
            [](const ExternalArray& a, const ExternalArray& b) { return a.name < b.name; });
  FileContents contents;
  contents.arrays = std::move(arrays);
  return contents;
}

}  // namespace ddp::ckpt
