// SPDX-License-Identifier: Apache-2.0
// libhdf5 creates the skeleton in an in-memory file that is unlinked as soon as it is open. The
// settings here determine the file's layout and make equal inputs give equal bytes.

#include "hdf5_ckpt/write/skeleton.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <set>
#include <string>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/io/posix_read.h"
#include "hdf5_ckpt/io/scratch_directory.h"
#include "hdf5_ckpt/write/hdf5_objects.h"
#include "hdf5_ckpt/write/hdf5_types.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

using ArrayList = std::span<const ArrayView* const>;

// Returns all groups in the names, parents before children.
std::set<std::string> groups_of(ArrayList arrays) {
  std::set<std::string> groups;
  for (const ArrayView* array : arrays)
    for (auto slash = array->name.find('/'); slash != std::string::npos;
         slash = array->name.find('/', slash + 1))
      groups.insert(array->name.substr(0, slash));
  return groups;
}

// Estimates the space for all of HDF5's own structures, which should be contiguous before the
// arrays. With HDF5 1.10 a dataset with its attributes takes about 450 bytes. If the estimate is
// too small, the file is still valid, but some of the structures are between arrays.
std::uint64_t metadata_bytes(ArrayList arrays, const nlohmann::json& attributes) {
  std::uint64_t bytes = kAlignedArrayBytes;
  for (const ArrayView* array : arrays) bytes += 1024 + 2 * array->name.size();
  for (const std::string& group : groups_of(arrays)) bytes += 1024 + 2 * group.size();
  for (const auto& [key, value] : attributes.items())
    bytes +=
        1024 + 2 * key.size() +
        (value.is_string() ? value.get_ref<const std::string&>().size() : sizeof(std::uint64_t));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Hdf5Properties contiguous() {
  const char* const action = "set the layout of arrays";
  Hdf5Properties layout = timeless(H5P_DATASET_CREATE);
  hdf5_check(H5Pset_layout(layout.get(), H5D_CONTIGUOUS), action);
  hdf5_check(H5Pset_fill_time(layout.get(), H5D_FILL_TIME_NEVER), action);
  hdf5_check(H5Pset_alloc_time(layout.get(), H5D_ALLOC_TIME_EARLY), action);
  return layout;
}

}  // namespace

std::uint64_t file_size_bound(ArrayList arrays, const nlohmann::json& attributes) {
  // libhdf5 allocates metadata in whole blocks. The factor 2 allows for a second block if the first
  // one is too small.
  std::uint64_t bytes = 2 * metadata_bytes(arrays, attributes);
  for (const ArrayView* array : arrays) bytes += array->bytes.size() + kAlignment;
  return bytes;
}

// Objects shared by all datasets. Creating them for each of many small arrays would take longer
// than writing the arrays.
struct Skeleton::Shared {
  Hdf5Properties link = utf8_link();
  Hdf5Properties layout = contiguous();
  Hdf5Space scalar = space_of({});
  std::map<DType, Hdf5Type> types;
  std::map<std::size_t, Hdf5Type> texts;   // by length
  std::map<std::size_t, Hdf5Space> lists;  // by length

  // Returns the object for `key`, created on first use.
  template <typename Key, typename Handle, typename Make>
  static hid_t get(std::map<Key, Handle>& made, Key key, const Make& make) {
    auto found = made.find(key);
    if (found == made.end()) found = made.emplace(key, make()).first;
    return found->second.get();
  }

  hid_t type(DType dtype) {
    return get(types, dtype, [&] { return hdf5_type(dtype); });
  }

  void put_name(hid_t dataset, DType dtype) {
    const std::string name(dtype_name(dtype));
    put_attribute(dataset, "dtype", get(texts, name.size(), [&] { return text_type(name.size()); }),
                  scalar.get(), name.c_str());
  }

  void put_list(hid_t dataset, const char* name, const Shape& shape) {
    put_attribute(dataset, name, H5T_STD_U64LE,
                  get(lists, shape.size(), [&] { return space_of({shape.size()}); }),
                  shape.empty() ? nullptr : shape.data());
  }
};

Skeleton::Skeleton(ArrayList arrays, std::span<const std::optional<std::uint32_t>> known_crcs,
                   const nlohmann::json& attributes, const fs::path& scratch_dir) {
  const Hdf5Session session;
  create_file(scratch_dir, metadata_bytes(arrays, attributes));
  for (const auto& [key, value] : attributes.items()) put_json(file_.get(), key, value);
  Shared shared;
  const Hdf5Properties group = timeless(H5P_GROUP_CREATE);
  for (const std::string& name : groups_of(arrays))
    const Hdf5Group created(
        H5Gcreate2(file_.get(), name.c_str(), shared.link.get(), group.get(), H5P_DEFAULT),
        fmt::format("create the group '{}'", name));
  for (std::size_t i = 0; i < arrays.size(); ++i) create_array(*arrays[i], known_crcs[i], shared);
  hdf5_check(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL), "flush a file's skeleton");
  haddr_t end = 0;
  hdf5_check(H5Fget_eoa(file_.get(), &end), "get a file's size");
  size_ = end;
}

void Skeleton::create_file(const fs::path& scratch_dir, std::uint64_t metadata) {
  const Hdf5Properties create = timeless(H5P_FILE_CREATE);
  const Hdf5Properties access = private_file_access(metadata);
  {
    const ScratchDirectory directory(scratch_dir, metadata);
    const std::string name = directory.file();
    file_ = Hdf5File(H5Fcreate(name.c_str(), H5F_ACC_EXCL, create.get(), access.get()),
                     fmt::format("create '{}'", name));
    fd_ = FileDescriptor(::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!fd_) throw IoError("open", name, errno);
  }
  // From here on the file has no name, so it disappears with this process. Its memory is allocated
  // now, so that libhdf5's own writes cannot fail.
  if (::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(metadata)) != 0 &&
      errno != EOPNOTSUPP)
    throw IoError("reserve memory for", "the file's skeleton", errno);
}

void Skeleton::create_array(const ArrayView& array, std::optional<std::uint32_t> crc,
                            Shared& shared) {
  const std::string action = fmt::format("create the array '{}'", array.name);
  const Hdf5Dataset dataset(
      H5Dcreate2(file_.get(), array.name.c_str(), shared.type(array.dtype),
                 space_of(array.shape).get(), shared.link.get(), shared.layout.get(), H5P_DEFAULT),
      action);
  shared.put_name(dataset.get(), array.dtype);
  const std::uint32_t now = crc.value_or(0);
  put_attribute(dataset.get(), "crc32c", H5T_STD_U32LE, shared.scalar.get(), &now);
  shared.put_list(dataset.get(), "global_shape",
                  array.part ? array.part->global_shape : array.shape);
  if (array.part) shared.put_list(dataset.get(), "part_offset", array.part->start);
  const haddr_t offset = array.bytes.empty() ? 0 : H5Dget_offset(dataset.get());
  if (offset == HADDR_UNDEF) throw_hdf5_error(fmt::format("get the offset of '{}'", array.name));
  names_.push_back(array.name);
  needs_crc_.push_back(!crc);
  offsets_.push_back(offset);
}

void Skeleton::finish(std::span<const std::uint32_t> crcs) {
  const Hdf5Session session;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (!needs_crc_[i]) continue;
    const std::string action = fmt::format("write the checksum of '{}'", names_[i]);
    // Keep the dataset open, because otherwise HDF5 1.10 does not find the attribute again.
    const Hdf5Dataset dataset(H5Dopen2(file_.get(), names_[i].c_str(), H5P_DEFAULT), action);
    const Hdf5Attribute attribute(H5Aopen(dataset.get(), "crc32c", H5P_DEFAULT), action);
    hdf5_check(H5Awrite(attribute.get(), H5T_STD_U32LE, &crcs[i]), action);
  }
  file_.close("close a file's skeleton");
  struct stat status = {};
  if (::fstat(fd_.get(), &status) != 0) throw IoError("inspect", "the file's skeleton", errno);
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void Skeleton::read(std::span<std::byte> bytes, std::uint64_t offset) const {
  const ReadResult result = read_fully(fd_.get(), bytes, offset);
  if (result.bytes != bytes.size())
    throw IoError("read", "the file's skeleton", result.code != 0 ? result.code : EIO);
}

}  // namespace ddp::ckpt
