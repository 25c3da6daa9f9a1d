// SPDX-License-Identifier: Apache-2.0
// Creates a view from links, external storage and virtual datasets. Note [Views that fail loudly]
// in the header gives the reasons.

#include "hdf5_ckpt/read/view.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "hdf5_ckpt/core/crc32c.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"
#include "hdf5_ckpt/io/directories.h"
#include "hdf5_ckpt/io/scratch_directory.h"
#include "hdf5_ckpt/write/hdf5_objects.h"
#include "hdf5_ckpt/write/hdf5_types.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kInternal = ".view";

// "rank-0.h5" becomes ".view-1a2b3c4d.rank-0.h5".
std::string link_prefix(const Manifest& manifest) {
  const std::string text = serialize_manifest(manifest);
  return fmt::format("{}-{}.", kInternal, checksum_text(crc32c(std::as_bytes(std::span(text)))));
}

void check_names(const Checkpoint& checkpoint) {
  for (const FileInfo& file : checkpoint.manifest().files)
    if (file.name == kViewName)
      throw Error(
          fmt::format("'{}' already has its own file '{}'", checkpoint.path().string(), kViewName));
  for (const StoredArray& array : checkpoint.arrays())
    if (array.name == kInternal || array.name.starts_with(fmt::format("{}/", kInternal)))
      throw Error(fmt::format("the array '{}' has a name that is reserved for views", array.name));
}

// Creates a symbolic link beside each file, under a name that no other checkpoint has.
void make_links(const fs::path& directory, const Manifest& manifest, const std::string& prefix) {
  for (const FileInfo& file : manifest.files) {
    const fs::path link = directory / (prefix + file.name);
    std::error_code error;
    if (fs::read_symlink(link, error) == file.name) continue;
    fs::remove(link, error);
    fs::create_symlink(file.name, link, error);
    if (error) throw IoError("create the link", link, error.value());
  }
}

std::vector<const ArrayInfo*> solid_parts(const StoredArray& array) {
  std::vector<const ArrayInfo*> solid;
  for (const ArrayInfo& info : array.parts)
    if (info.length != 0) solid.push_back(&info);
  return solid;
}

// The view of one checkpoint, as a file in memory.
class View {
 public:
  View(const Checkpoint& checkpoint, fs::path directory, std::string prefix, const fs::path& file)
      : directory_(std::move(directory)), prefix_(std::move(prefix)), link_(utf8_link()) {
    const char* const action = "set the properties of links";
    hdf5_check(H5Pset_create_intermediate_group(link_.get(), 1), action);
    const Hdf5Properties create = timeless(H5P_FILE_CREATE);
    file_ = Hdf5File(
        H5Fcreate(file.c_str(), H5F_ACC_EXCL, create.get(), private_file_access(4096).get()),
        "create a view");
    put_text(file_.get(), "format", "hdf5_ckpt_view");
    put_json(file_.get(), "step", checkpoint.manifest().step);
    put_text(file_.get(), "made_in", directory_.string());
    for (const FileInfo& info : checkpoint.manifest().files)
      link_to(info.name, "/", fmt::format("{}/files/{}", kInternal, info.name));
    for (const StoredArray& array : checkpoint.arrays()) add(array);
  }

  void close() { file_.close("close a view"); }

 private:
  void link_to(const std::string& file, const std::string& object, const std::string& name) {
    hdf5_check(H5Lcreate_external((prefix_ + file).c_str(), object.c_str(), file_.get(),
                                  name.c_str(), link_.get(), H5P_DEFAULT),
               fmt::format("link to '{}'", name));
  }

  Hdf5Dataset create(const std::string& name, DType dtype, const Shape& shape,
                     const Hdf5Properties& how) {
    return {H5Dcreate2(file_.get(), name.c_str(), hdf5_type(dtype).get(), space_of(shape).get(),
                       link_.get(), how.get(), H5P_DEFAULT),
            fmt::format("create '{}'", name)};
  }

  void add(const StoredArray& array) {
    const auto solid = solid_parts(array);
    if (!array.parts.front().part) {
      link_to(array.parts.front().file, "/" + array.name, array.name);
      return;
    }
    if (solid.size() == 1) {  // one part is the whole array, as for every scalar
      link_to(solid.front()->file, "/" + array.name, array.name);
      return;
    }
    const Hdf5Properties how = timeless(H5P_DATASET_CREATE);
    for (const ArrayInfo* part : solid) map_part(array, *part, how);
    const Hdf5Dataset dataset = create(array.name, array.dtype, array.shape, how);
    put_text(dataset.get(), "dtype", dtype_name(array.dtype));
  }

  // Creates a dataset for the bytes of one part and maps it to its place in the whole array.
  void map_part(const StoredArray& array, const ArrayInfo& part, const Hdf5Properties& how) {
    const std::string name = fmt::format("{}/parts/{}", kInternal, parts_++);
    const std::string action = fmt::format("map a part of '{}'", array.name);
    const Hdf5Properties storage = timeless(H5P_DATASET_CREATE);
    hdf5_check(H5Pset_external(storage.get(), (directory_ / (prefix_ + part.file)).c_str(),
                               static_cast<off_t>(part.offset), part.length),
               action);
    create(name, part.dtype, part.shape, storage);
    const Hdf5Space whole = space_of(array.shape);
    const std::vector<hsize_t> start(part.part->start.begin(), part.part->start.end());
    const std::vector<hsize_t> count(part.shape.begin(), part.shape.end());
    hdf5_check(H5Sselect_hyperslab(whole.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(),
                                   nullptr),
               action);
    hdf5_check(H5Pset_virtual(how.get(), whole.get(), ".", ("/" + name).c_str(),
                              space_of(part.shape).get()),
               action);
  }

  fs::path directory_;
  std::string prefix_;
  Hdf5Properties link_;
  Hdf5File file_;
  std::size_t parts_ = 0;
};

// Returns an upper bound for the size of HDF5's own structures in a view.
std::uint64_t size_bound(const Checkpoint& checkpoint) {
  std::uint64_t bytes = 1U << 20;
  for (const ArrayInfo& info : checkpoint.manifest().arrays)
    bytes += 4096 + 4 * info.name.size() + 64 * info.shape.size();
  return bytes + 4096 * checkpoint.manifest().files.size();
}

// libhdf5 may crash on a disk error, so it creates the file in memory.
std::string bytes_of_view(const Checkpoint& checkpoint, const fs::path& directory,
                          const std::string& prefix) {
  const Hdf5Session session;
  const ScratchDirectory scratch({}, size_bound(checkpoint));
  View view(checkpoint, directory, prefix, scratch.file());
  view.close();
  std::ifstream file(scratch.file(), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw IoError("read", scratch.file(), EIO);
  return bytes;
}

}  // namespace

fs::path make_view(const Checkpoint& checkpoint) {
  check_names(checkpoint);
  std::error_code error;
  const fs::path directory = fs::canonical(checkpoint.path(), error);
  if (error) throw IoError("find", checkpoint.path(), error.value());
  const std::string prefix = link_prefix(checkpoint.manifest());
  const std::string bytes = bytes_of_view(checkpoint, directory, prefix);
  make_links(directory, checkpoint.manifest(), prefix);
  FileOps& ops = system_file_ops();
  const fs::path draft = directory / fmt::format(".{}.{}", kViewName, ::getpid());
  fs::remove(draft, error);
  write_durable_file(ops, draft, bytes);
  if (ops.rename(draft.c_str(), (directory / kViewName).c_str(), 0) != 0) {
    const int code = errno;
    ops.unlink(draft.c_str());
    throw IoError("replace", directory / kViewName, code);
  }
  sync_directory(ops, directory);
  return directory / kViewName;
}

}  // namespace ddp::ckpt
