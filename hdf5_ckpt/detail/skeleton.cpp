// libhdf5 makes the skeleton in a file in memory that has lost its name as soon as it is open. What
// is set here decides how the file is laid out and that equal input gives equal bytes.

#include "hdf5_ckpt/detail/skeleton.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <set>
#include <string>

#include "hdf5_ckpt/detail/hdf5_types.h"
#include "hdf5_ckpt/detail/posix_read.h"
#include "hdf5_ckpt/error.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

using ArrayList = std::span<const ArrayView* const>;

// All groups that the names imply, parents before children.
std::set<std::string> groups_of(ArrayList arrays) {
  std::set<std::string> groups;
  for (const ArrayView* array : arrays)
    for (auto slash = array->name.find('/'); slash != std::string::npos;
         slash = array->name.find('/', slash + 1))
      groups.insert(array->name.substr(0, slash));
  return groups;
}

// Room for all of HDF5's own structures, so that they lie together in front of the arrays. With
// HDF5 1.10 a dataset with its attributes takes about 450 bytes. If this were too little the
// file would still be right: the rest would lie between arrays.
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

constexpr const char* kScratchFile = "skeleton.h5";
constexpr std::string_view kScratchPrefix = "ddp-ckpt-";
constexpr std::int64_t kStaleSeconds = 3600;

// A scratch folder lives for less than a millisecond, so one of ours that is an hour old belongs to
// a process that was killed in just that time.
void remove_stale_scratch(const fs::path& place) {
  std::error_code error;
  for (fs::directory_iterator entry(place, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat status = {};
    if (!entry->path().filename().string().starts_with(kScratchPrefix) ||
        ::lstat(entry->path().c_str(), &status) != 0 || status.st_uid != ::geteuid() ||
        !S_ISDIR(status.st_mode) || status.st_mtime > std::time(nullptr) - kStaleSeconds)
      continue;
    ::unlink((entry->path() / kScratchFile).c_str());
    ::rmdir(entry->path().c_str());
  }
}

// A new folder in which libhdf5 creates its file; gone when the object is.
class ScratchFolder {
 public:
  ScratchFolder(const fs::path& preferred, std::uint64_t bytes) {
    std::string reasons;
    for (const fs::path& place : places(preferred)) {
      const std::string reason = make_in(place, bytes);
      if (reason.empty()) return;
      reasons += fmt::format("; {}: {}", place.string(), reason);
    }
    throw Error(fmt::format(
        "no place for the {} bytes of metadata of a checkpoint file while it is made{}; give "
        "another folder as scratch_dir or TMPDIR",
        bytes, reasons));
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    ::unlink(file().c_str());
    ::rmdir(path_.c_str());
  }

  fs::path file() const { return path_ / kScratchFile; }

 private:
  static std::vector<fs::path> places(const fs::path& preferred) {
    if (!preferred.empty()) return {preferred};
    std::error_code ignored;
    std::vector<fs::path> result = {"/dev/shm"};
    if (const fs::path tmp = fs::temp_directory_path(ignored); !tmp.empty()) result.push_back(tmp);
    return result;
  }

  // libhdf5 1.10 can crash the process after a failed write: so look for room first, twice over.
  std::string make_in(const fs::path& place, std::uint64_t bytes) {
    struct statvfs vfs = {};
    if (::statvfs(place.c_str(), &vfs) != 0) return std::generic_category().message(errno);
    if (vfs.f_blocks != 0 && vfs.f_bavail < 2 * bytes / vfs.f_frsize)
      return "too little free space";
    remove_stale_scratch(place);
    std::string name = place / fmt::format("{}XXXXXX", kScratchPrefix);
    if (::mkdtemp(name.data()) == nullptr) return std::generic_category().message(errno);
    path_ = name;
    return "";
  }

  fs::path path_;
};

Hdf5Properties file_access(std::uint64_t metadata) {
  const char* const action = "set how a file is laid out";
  Hdf5Properties access(H5Pcreate(H5P_FILE_ACCESS), action);
  // 1.10's format has checksums in its headers, and every HDF5 since reads it.
  hdf5_check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), action);
  hdf5_check(H5Pset_alignment(access.get(), kAlignedArrayBytes, kAlignment), action);
  hdf5_check(H5Pset_meta_block_size(access.get(), metadata), action);
  // Nobody else knows the file, and locks do not work everywhere.
  hdf5_check(H5Pset_file_locking(access.get(), false, true), action);
  return access;
}

// Properties of an object that records no times, so that equal contents give equal bytes.
Hdf5Properties timeless(hid_t kind) {
  const char* const action = "set the properties of an object";
  Hdf5Properties properties(H5Pcreate(kind), action);
  hdf5_check(H5Pset_obj_track_times(properties.get(), false), action);
  return properties;
}

Hdf5Properties contiguous() {
  const char* const action = "set how arrays are laid out";
  Hdf5Properties layout = timeless(H5P_DATASET_CREATE);
  hdf5_check(H5Pset_layout(layout.get(), H5D_CONTIGUOUS), action);
  hdf5_check(H5Pset_fill_time(layout.get(), H5D_FILL_TIME_NEVER), action);
  hdf5_check(H5Pset_alloc_time(layout.get(), H5D_ALLOC_TIME_EARLY), action);
  return layout;
}

Hdf5Properties utf8_link() {
  const char* const action = "set the encoding of names";
  Hdf5Properties link(H5Pcreate(H5P_LINK_CREATE), action);
  hdf5_check(H5Pset_char_encoding(link.get(), H5T_CSET_UTF8), action);
  return link;
}

Hdf5Space space_of(const Shape& shape) {
  const char* const action = "describe a shape";
  if (shape.empty()) return {H5Screate(H5S_SCALAR), action};
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  return {H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), action};
}

// A null `value` is for an attribute without elements.
void put_attribute(hid_t object, const std::string& name, hid_t type, hid_t space,
                   const void* value) {
  const std::string action = fmt::format("write the attribute '{}'", name);
  const Hdf5Attribute attribute(
      H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), action);
  if (value != nullptr) hdf5_check(H5Awrite(attribute.get(), type, value), action);
}

void put_shape(hid_t object, const std::string& name, const Shape& shape) {
  put_attribute(object, name, H5T_STD_U64LE, space_of({shape.size()}).get(),
                shape.empty() ? nullptr : shape.data());
}

void put_text(hid_t object, const std::string& name, std::string_view text) {
  const char* const action = "describe a text";
  const Hdf5Type type(H5Tcopy(H5T_C_S1), action);
  hdf5_check(H5Tset_size(type.get(), std::max<std::size_t>(text.size(), 1)), action);
  hdf5_check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), action);
  hdf5_check(H5Tset_cset(type.get(), H5T_CSET_UTF8), action);
  const std::string terminated(text);
  put_attribute(object, name, type.get(), space_of({}).get(), terminated.c_str());
}

void put_json(hid_t object, const std::string& name, const nlohmann::json& value) {
  const auto put = [&](hid_t type, const auto& number) {
    put_attribute(object, name, type, space_of({}).get(), &number);
  };
  if (value.is_string())
    put_text(object, name, value.get_ref<const std::string&>());
  else if (value.is_boolean())
    put(hdf5_type(DType::kBool).get(), static_cast<std::int8_t>(value.get<bool>()));
  else if (value.is_number_float())
    put(H5T_IEEE_F64LE, value.get<double>());
  else if (value.is_number_unsigned())
    put(H5T_STD_U64LE, value.get<std::uint64_t>());
  else if (value.is_number_integer())
    put(H5T_STD_I64LE, value.get<std::int64_t>());
  else
    throw Error(fmt::format("attribute '{}' must be a string, a number or a boolean", name));
}

}  // namespace

std::uint64_t file_size_bound(ArrayList arrays, const nlohmann::json& attributes) {
  // libhdf5 takes metadata by whole blocks; the second is for what may not fit the first.
  std::uint64_t bytes = 2 * metadata_bytes(arrays, attributes);
  for (const ArrayView* array : arrays) bytes += array->bytes.size() + kAlignment;
  return bytes;
}

Skeleton::Skeleton(ArrayList arrays, const nlohmann::json& attributes,
                   const fs::path& scratch_dir) {
  const Hdf5Session session;
  create_file(scratch_dir, metadata_bytes(arrays, attributes));
  for (const auto& [key, value] : attributes.items()) put_json(file_.get(), key, value);
  const Hdf5Properties link = utf8_link();
  const Hdf5Properties group = timeless(H5P_GROUP_CREATE);
  for (const std::string& name : groups_of(arrays))
    const Hdf5Group created(
        H5Gcreate2(file_.get(), name.c_str(), link.get(), group.get(), H5P_DEFAULT),
        fmt::format("create the group '{}'", name));
  const Hdf5Properties layout = contiguous();
  for (const ArrayView* array : arrays) create_array(*array, link.get(), layout.get());
  hdf5_check(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL), "flush a file's skeleton");
  haddr_t end = 0;
  hdf5_check(H5Fget_eoa(file_.get(), &end), "tell a file's size");
  size_ = end;
}

void Skeleton::create_file(const fs::path& scratch_dir, std::uint64_t metadata) {
  const Hdf5Properties create = timeless(H5P_FILE_CREATE);
  const Hdf5Properties access = file_access(metadata);
  {
    const ScratchFolder folder(scratch_dir, metadata);
    const std::string name = folder.file();
    file_ = Hdf5File(H5Fcreate(name.c_str(), H5F_ACC_EXCL, create.get(), access.get()),
                     fmt::format("create '{}'", name));
    fd_ = UniqueFd(::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!fd_) throw IoError("open", name, errno);
  }
  // From here on the file has no name: it is gone with this process. Its memory is taken now, so
  // that libhdf5's own writes cannot fail.
  if (::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(metadata)) != 0 &&
      errno != EOPNOTSUPP)
    throw IoError("reserve memory for", "the file's skeleton", errno);
}

void Skeleton::create_array(const ArrayView& array, hid_t link, hid_t layout) {
  const std::string action = fmt::format("create the array '{}'", array.name);
  const Hdf5Dataset dataset(
      H5Dcreate2(file_.get(), array.name.c_str(), hdf5_type(array.dtype).get(),
                 space_of(array.shape).get(), link, layout, H5P_DEFAULT),
      action);
  put_text(dataset.get(), "dtype", dtype_name(array.dtype));
  const std::uint32_t not_yet = 0;
  put_attribute(dataset.get(), "crc32c", H5T_STD_U32LE, space_of({}).get(), &not_yet);
  put_shape(dataset.get(), "global_shape", array.part ? array.part->global_shape : array.shape);
  if (array.part) put_shape(dataset.get(), "part_offset", array.part->start);
  const haddr_t offset = array.bytes.empty() ? 0 : H5Dget_offset(dataset.get());
  if (offset == HADDR_UNDEF) throw_hdf5_error(fmt::format("tell where '{}' lies", array.name));
  names_.push_back(array.name);
  offsets_.push_back(offset);
}

void Skeleton::finish(std::span<const std::uint32_t> crcs) {
  const Hdf5Session session;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const std::string action = fmt::format("write the checksum of '{}'", names_[i]);
    // The dataset stays open meanwhile: HDF5 1.10 does not find the attribute again otherwise.
    const Hdf5Dataset dataset(H5Dopen2(file_.get(), names_[i].c_str(), H5P_DEFAULT), action);
    const Hdf5Attribute attribute(H5Aopen(dataset.get(), "crc32c", H5P_DEFAULT), action);
    hdf5_check(H5Awrite(attribute.get(), H5T_STD_U32LE, &crcs[i]), action);
  }
  file_.close("close a file's skeleton");
  struct stat status = {};
  if (::fstat(fd_.get(), &status) != 0) throw IoError("look at", "the file's skeleton", errno);
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void Skeleton::read(std::span<std::byte> bytes, std::uint64_t offset) const {
  const ReadResult result = read_fully(fd_.get(), bytes, offset);
  if (result.bytes != bytes.size())
    throw IoError("read", "the file's skeleton", result.code != 0 ? result.code : EIO);
}

}  // namespace ddp::ckpt
