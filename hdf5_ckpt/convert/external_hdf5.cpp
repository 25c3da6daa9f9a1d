// SPDX-License-Identifier: Apache-2.0
// The child follows only hard links, one at a time.

#include "hdf5_ckpt/convert/external_hdf5.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>

#include "hdf5_ckpt/convert/hdf5_dataset.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"
#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/core/names.h"

namespace ddp::ckpt {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxGroupDepth = 32;
// What a small file may expand to: the ratio that gzip can reach, and an array of fill values.
constexpr std::uint64_t kMaxExpansion = 1100;
constexpr std::uint64_t kMaxFilled = 256ULL << 20;
constexpr std::uint64_t kSlowestDecoding = 5000000;  // bytes per second

// ---- in the child ----------------------------------------------------------------------------

// The address of an object, by which two names of it are recognized.
std::string address_of(hid_t group, const char* name, H5O_type_t& type) {
#if H5_VERSION_GE(1, 12, 0)
  H5O_info2_t info = {};
  hdf5_check(H5Oget_info_by_name3(group, name, &info, H5O_INFO_BASIC, H5P_DEFAULT),
             "inspect an object");
  type = info.type;
  return {reinterpret_cast<const char*>(&info.token), sizeof info.token};
#else
  H5O_info_t info = {};
  hdf5_check(H5Oget_info_by_name1(group, name, &info, H5P_DEFAULT), "inspect an object");
  type = info.type;
  return {reinterpret_cast<const char*>(&info.addr), sizeof info.addr};
#endif
}

class GroupWalk {
 public:
  json run(const std::filesystem::path& path) {
    const Hdf5Session session;
    const Hdf5File file = open_foreign(path.string());
    const Hdf5Group root(H5Gopen2(file.get(), "/", H5P_DEFAULT), "open its root");
    ours_ = H5Aexists(root.get(), "min_reader") > 0 && H5Aexists(root.get(), "format") > 0;
    walk(root.get(), "");
    return {{"arrays", std::move(arrays_)}, {"omitted", std::move(omitted_)}};
  }

 private:
  void walk(hid_t group, const std::string& prefix) {
    for (const std::string& name : names_in(group)) visit(group, name.c_str(), prefix + name);
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

  void visit(hid_t group, const char* name, const std::string& path) {
    if (++objects_ > kMaxArrays) throw DamagedError("it holds too many objects");
    H5L_info_t link = {};
    hdf5_check(H5Lget_info(group, name, &link, H5P_DEFAULT), "inspect a link");
    if (link.type != H5L_TYPE_HARD) return omit(path, "a link to another place", false);
    H5O_type_t type = H5O_TYPE_UNKNOWN;
    std::string address = address_of(group, name, type);
    if (type == H5O_TYPE_GROUP) return visit_group(group, name, path, std::move(address));
    if (type != H5O_TYPE_DATASET) return omit(path, "an element type", false);
    const Hdf5Dataset dataset(H5Dopen2(group, name, H5P_DEFAULT), "open a dataset");
    add(form_of(dataset.get(), ours_), path);
  }

  void visit_group(hid_t group, const char* name, const std::string& path, std::string address) {
    if (std::find(within_.begin(), within_.end(), address) != within_.end())
      return omit(path, "a group that contains itself", false);
    if (within_.size() == kMaxGroupDepth) throw DamagedError("its groups are nested too deep");
    within_.push_back(std::move(address));
    const Hdf5Group child(H5Gopen2(group, name, H5P_DEFAULT), "open a group");
    walk(child.get(), path + "/");
    within_.pop_back();
  }

  void add(const DatasetForm& form, const std::string& path) {
    if (!form.left_out.empty()) return omit(path, form.left_out, false);
    if (!form.unreadable.empty()) return omit(path, form.unreadable, true);
    if (const std::string problem = array_name_problem(path); !problem.empty())
      return omit(path, "its name " + problem, true);
    arrays_.push_back({{"name", path},
                       {"dtype", dtype_name(form.dtype)},
                       {"shape", form.shape},
                       {"offset", form.offset},
                       {"encoded", form.encoded}});
    if (form.crc32c) arrays_.back()["crc32c"] = *form.crc32c;
  }

  void omit(const std::string& path, const std::string& reason, bool array) {
    omitted_.push_back({{"name", path}, {"reason", reason}, {"array", array}});
  }

  json arrays_ = json::array();
  json omitted_ = json::array();
  bool ours_ = false;
  std::vector<std::string> within_;  // addresses of the groups that lead to the current object
  std::size_t objects_ = 0;
};

// ---- in the parent ---------------------------------------------------------------------------

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
  array.encoded = fields.at("encoded") == true;
  if (fields.has("crc32c"))
    array.crc32c = static_cast<std::uint32_t>(fields.number("crc32c", 0xFFFFFFFF));
  array.offset = fields.number("offset", file_bytes);
  const auto bytes = byte_count(array.dtype, array.shape);
  if (!bytes || (!array.encoded && *bytes > file_bytes - array.offset))
    throw DamagedError(fmt::format("dataset '{}' reaches beyond the end of the file", array.name));
  return array;
}

// Encoded arrays can claim any size.
void require_plausible(const std::vector<ExternalArray>& arrays, std::uint64_t file_bytes) {
  const std::uint64_t most = kMaxFilled + kMaxExpansion * file_bytes;
  std::uint64_t total = 0;
  for (const ExternalArray& array : arrays) {
    if (!array.encoded) continue;
    const std::uint64_t bytes = byte_count(array.dtype, array.shape).value();
    if (bytes > most - total)
      throw DamagedError(fmt::format(
          "dataset '{}' claims far more bytes than the file has, perhaps because it was never "
          "written",
          array.name));
    total += bytes;
  }
}

}  // namespace

FileContents parse_hdf5(const std::filesystem::path& path, std::uint64_t file_bytes,
                        const ChildLimits& limits) {
  const json report = in_child(path, limits, [&] { return GroupWalk().run(path); });
  FileContents contents;
  for (const json& entry : report.at("arrays"))
    contents.arrays.push_back(checked(entry, file_bytes));
  for (const json& entry : report.at("omitted")) {
    const JsonFields fields(entry, "object");
    if (fields.at("array") == true)
      contents.unreadable.push_back({fields.text("name"), fields.text("reason")});
    else
      contents.left_out.add(fields.text("name"), fields.text("reason"));
  }
  require_plausible(contents.arrays, file_bytes);
  std::sort(contents.arrays.begin(), contents.arrays.end(),
            [](const ExternalArray& a, const ExternalArray& b) { return a.name < b.name; });
  return contents;
}

void decode_hdf5(const std::filesystem::path& path, std::span<const Decoding> arrays, int to) {
  std::vector<Extraction> extractions;
  ChildLimits limits;
  for (const Decoding& one : arrays) {
    const ExternalArray& array = *one.array;
    const std::uint64_t bytes = byte_count(array.dtype, array.shape).value();
    limits.written_bytes = std::max(limits.written_bytes, one.offset + bytes);
    limits.cpu_seconds += bytes / kSlowestDecoding;
    extractions.push_back({array.name, array.dtype, array.shape, one.offset});
  }
  in_child(path, limits, [&] {
    const Hdf5Session session;
    const Hdf5File file = open_foreign(path.string());
    for (const Extraction& one : extractions) extract(file.get(), one, to);
    return json(true);
  });
}

}  // namespace ddp::ckpt
