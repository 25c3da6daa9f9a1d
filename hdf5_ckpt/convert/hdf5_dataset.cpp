// SPDX-License-Identifier: Apache-2.0
// Everything in a dataset that changes its values is honored or named: its type and byte order, its
// layout, filters and fill value, and the attributes with which programs change the meaning.

#include "hdf5_ckpt/convert/hdf5_dataset.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "hdf5_ckpt/convert/file_kind.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/write/hdf5_types.h"

namespace ddp::ckpt {
namespace {

// Of pieces that are read at once; a chunk may be larger.
constexpr std::uint64_t kPieceBytes = 32ULL << 20;

constexpr const char* kRemedy =
    "write it again with h5py: NEW_FILE[NAME] = OLD_FILE[NAME][...], or leave it out";

// Filters that are part of the HDF5 library. Others are plugins, which are not loaded.
constexpr std::array kFilters = {H5Z_FILTER_DEFLATE, H5Z_FILTER_SHUFFLE, H5Z_FILTER_FLETCHER32,
                                 H5Z_FILTER_NBIT, H5Z_FILTER_SCALEOFFSET};

// Attributes of netCDF and MATLAB that give the values another meaning.
constexpr std::array kChangingAttributes = {"scale_factor", "add_offset", "_Unsigned",
                                            "MATLAB_empty"};

bool has(hid_t object, const char* attribute) {
  return H5Aexists(object, attribute) > 0;
}

std::string text_attribute(hid_t object, const char* name) {
  const Hdf5Attribute attribute(H5Aopen(object, name, H5P_DEFAULT), "open an attribute");
  const Hdf5Type type(H5Aget_type(attribute.get()), "read an attribute");
  constexpr std::size_t kMaxText = 64;
  const std::size_t size = H5Tget_size(type.get());
  const bool fixed = H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0;
  if (!fixed || size == 0 || size > kMaxText || H5Aget_storage_size(attribute.get()) != size)
    return "";
  std::string text(size, '\0');
  hdf5_check(H5Aread(attribute.get(), type.get(), text.data()), "read an attribute");
  return text.substr(0, text.find('\0'));
}

Shape shape_attribute(hid_t object, const char* name) {
  const Hdf5Attribute attribute(H5Aopen(object, name, H5P_DEFAULT), "open an attribute");
  const Hdf5Space space(H5Aget_space(attribute.get()), "read an attribute");
  const auto extent = H5Sget_simple_extent_npoints(space.get());
  if (extent < 0 || extent > H5S_MAX_RANK) return {};
  Shape shape(static_cast<std::size_t>(extent));
  if (!shape.empty())
    hdf5_check(H5Aread(attribute.get(), H5T_NATIVE_UINT64, shape.data()), "read an attribute");
  return shape;
}

// The type with little-endian numbers.
Hdf5Type little(hid_t type) {
  const char* const action = "inspect an element type";
  const H5T_class_t kind = H5Tget_class(type);
  if (kind == H5T_COMPOUND && H5Tget_nmembers(type) == 2) {
    Hdf5Type made(H5Tcreate(H5T_COMPOUND, H5Tget_size(type)), action);
    for (unsigned i = 0; i < 2; ++i) {
      const Hdf5Type member(H5Tget_member_type(type, i), action);
      char* const name = H5Tget_member_name(type, i);
      const herr_t done =
          H5Tinsert(made.get(), name, H5Tget_member_offset(type, i), little(member.get()).get());
      H5free_memory(name);
      hdf5_check(done, action);
    }
    return made;
  }
  Hdf5Type copy(H5Tcopy(type), action);
  if (kind == H5T_INTEGER || kind == H5T_FLOAT)
    hdf5_check(H5Tset_order(copy.get(), H5T_ORDER_LE), action);
  return copy;
}

std::optional<DType> dtype_of(hid_t type) {
  for (const DType dtype : kAllDTypes)
    if (H5Tequal(type, hdf5_type(dtype).get()) > 0) return dtype;
  return std::nullopt;
}

// Sets the type, or the reason why there is none.
void set_type(DatasetForm& form, hid_t dataset, bool ours) {
  const Hdf5Type type(H5Dget_type(dataset), "read an element type");
  auto dtype = dtype_of(type.get());
  if (!dtype) {
    dtype = dtype_of(little(type.get()).get());
    form.encoded = dtype.has_value();
  }
  if (!dtype) {
    const H5T_class_t kind = H5Tget_class(type.get());
    const bool numbers = kind == H5T_INTEGER || kind == H5T_FLOAT || kind == H5T_ENUM;
    if (numbers)
      form.unreadable = fmt::format("it has numbers of {} bit that a checkpoint cannot hold",
                                    8 * H5Tget_size(type.get()));
    else if (kind == H5T_ARRAY && (H5Tdetect_class(type.get(), H5T_FLOAT) > 0 ||
                                   H5Tdetect_class(type.get(), H5T_INTEGER) > 0))
      form.unreadable = fmt::format("its elements are arrays themselves; {}", kRemedy);
    else
      form.left_out = kind == H5T_STRING     ? "texts"
                      : kind == H5T_COMPOUND ? "records of several fields"
                                             : "elements that are not numbers";
    return;
  }
  form.dtype = *dtype;
  if (!ours || !has(dataset, "dtype")) return;
  // HDF5 1.10 cannot describe all of our types.
  const auto named = dtype_from_name(text_attribute(dataset, "dtype"));
  if (!named || H5Tequal(hdf5_type(*named).get(), type.get()) <= 0)
    form.unreadable = "its attribute 'dtype' contradicts the type of its elements";
  else
    form.dtype = *named;
}

std::string filter_problem(hid_t how) {
  const int filters = H5Pget_nfilters(how);
  for (int i = 0; i < filters; ++i) {
    std::array<char, 64> name{};
    std::size_t values = 0;
    unsigned flags = 0;
    const H5Z_filter_t id = H5Pget_filter2(how, static_cast<unsigned>(i), &flags, &values, nullptr,
                                           name.size() - 1, name.data(), nullptr);
    if (std::find(kFilters.begin(), kFilters.end(), id) != kFilters.end() &&
        H5Zfilter_avail(id) > 0)
      continue;
    return fmt::format("it is compressed with '{}' (filter {}), which the HDF5 library lacks; {}",
                       name.data(), id, kRemedy);
  }
  return "";
}

std::vector<hsize_t> chunk_of(hid_t how, std::size_t rank) {
  std::vector<hsize_t> chunk(rank, 1);
  if (H5Pget_layout(how) == H5D_CHUNKED)
    hdf5_check(H5Pget_chunk(how, static_cast<int>(rank), chunk.data()), "read chunks");
  return chunk;
}

// Whether elements were never written, so that they have no place in the file.
bool has_gaps(hid_t dataset, hid_t how, const Shape& shape) {
  if (H5Pget_layout(how) != H5D_CHUNKED) return H5Dget_storage_size(dataset) == 0;
  const auto chunk = chunk_of(how, shape.size());
  std::uint64_t chunks = 1;
  for (std::size_t d = 0; d < shape.size(); ++d)
    chunks *= shape[d] / chunk[d] + (shape[d] % chunk[d] != 0 ? 1 : 0);
  const Hdf5Space all(H5Dget_space(dataset), "read a shape");
  hsize_t written = 0;
  hdf5_check(H5Dget_num_chunks(dataset, all.get(), &written), "count chunks");
  return written < chunks;
}

// The reason why libhdf5 would leave elements as they are in the memory that it reads into; empty
// if it would not.
std::string fill_problem(hid_t dataset, hid_t how, const Shape& shape) {
  H5D_fill_value_t fill = H5D_FILL_VALUE_ERROR;
  hdf5_check(H5Pfill_value_defined(how, &fill), "read a fill value");
  H5D_fill_time_t time = H5D_FILL_TIME_ERROR;
  hdf5_check(H5Pget_fill_time(how, &time), "read a fill value");
  const bool fills = fill != H5D_FILL_VALUE_UNDEFINED && time != H5D_FILL_TIME_NEVER;
  if (fills || !has_gaps(dataset, how, shape)) return "";
  return "parts of it were never written and have no fill value";
}

void set_storage(DatasetForm& form, hid_t dataset) {
  const Hdf5Properties how(H5Dget_create_plist(dataset), "read how a dataset is stored");
  const H5D_layout_t layout = H5Pget_layout(how.get());
  if (H5Pget_external_count(how.get()) != 0)
    form.unreadable = fmt::format("its bytes are in another file; {}", kRemedy);
  else if (layout == H5D_VIRTUAL)
    form.unreadable = fmt::format("it is virtual: its values are in other files; {}", kRemedy);
  else if (std::string problem = filter_problem(how.get()); !problem.empty())
    form.unreadable = std::move(problem);
  if (!form.unreadable.empty()) return;
  if (std::find(form.shape.begin(), form.shape.end(), 0U) != form.shape.end()) {
    form.encoded = false;
    return;
  }
  form.unreadable = fill_problem(dataset, how.get(), form.shape);
  // H5Dget_offset() adds the size of a user block even to the address of a dataset that has none.
  if (layout != H5D_CONTIGUOUS || H5Dget_storage_size(dataset) == 0)
    form.encoded = true;
  else
    form.offset = H5Dget_offset(dataset);
}

// A part alone would be an array of another shape.
void require_whole(hid_t dataset, const Shape& shape) {
  const bool part =
      has(dataset, "part_offset") ||
      (has(dataset, "global_shape") && shape_attribute(dataset, "global_shape") != shape);
  if (part)
    throw UnsupportedError(
        "it has parts of arrays, because it is one of several files of a checkpoint; name the "
        "directory of the checkpoint, step-NUMBER");
}

// The memory of rows of `inner` elements that are read at once, in whole chunks where possible.
std::uint64_t rows_at_once(std::uint64_t row_bytes, std::uint64_t chunk_rows) {
  const std::uint64_t rows = std::max<std::uint64_t>(kPieceBytes / row_bytes, 1);
  return rows > chunk_rows ? rows / chunk_rows * chunk_rows : rows;
}

void write_all(int to, const std::vector<char>& bytes, std::size_t size, std::uint64_t offset) {
  for (std::size_t at = 0; at < size;) {
    const ssize_t wrote =
        ::pwrite(to, bytes.data() + at, size - at, static_cast<off_t>(offset + at));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0)
      throw IoError("write", "a temporary file beside the output", wrote < 0 ? errno : EIO);
    at += static_cast<std::size_t>(wrote);
  }
}

// A scalar is read as one row.
std::vector<hsize_t> rows_of(const Shape& shape) {
  if (shape.empty()) return {1};
  return {shape.begin(), shape.end()};
}

// The dimension along which the dataset is read in pieces: those behind it are read as a whole.
std::size_t split_dimension(const std::vector<hsize_t>& shape, std::uint64_t item) {
  std::uint64_t inner = item;
  for (std::size_t d = shape.size(); d-- > 1;) {
    if (inner * shape[d] > kPieceBytes) return d;
    inner *= shape[d];
  }
  return 0;
}

// Moves to the next piece; false after the last one.
bool advance(std::vector<hsize_t>& start, const std::vector<hsize_t>& shape, std::size_t split,
             std::uint64_t rows) {
  start[split] += rows;
  for (std::size_t d = split; start[d] >= shape[d]; --d) {
    if (d == 0) return false;
    start[d] = 0;
    ++start[d - 1];
  }
  return true;
}

}  // namespace

DatasetForm form_of(hid_t dataset, bool ours) {
  DatasetForm form;
  const Hdf5Space space(H5Dget_space(dataset), "read a shape");
  const int rank = hdf5_check(H5Sget_simple_extent_ndims(space.get()), "read a shape");
  form.shape.resize(static_cast<std::size_t>(rank));
  if (H5Sget_simple_extent_type(space.get()) == H5S_NULL) {
    form.left_out = "it has no elements and no shape";
    return form;
  }
  static_assert(sizeof(hsize_t) == sizeof(Shape::value_type));
  std::vector<hsize_t> extents(form.shape.size());
  if (rank > 0)
    hdf5_check(H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr), "read a shape");
  form.shape.assign(extents.begin(), extents.end());
  if (ours) require_whole(dataset, form.shape);
  set_type(form, dataset, ours);
  if (!form.unreadable.empty() || !form.left_out.empty()) return form;
  for (const char* attribute : kChangingAttributes)
    if (has(dataset, attribute))
      form.unreadable = fmt::format("its attribute '{}' changes the meaning of its values; {}",
                                    attribute, kRemedy);
  if (form.unreadable.empty()) set_storage(form, dataset);
  if (ours && has(dataset, "crc32c") && form.unreadable.empty()) {
    const Hdf5Attribute attribute(H5Aopen(dataset, "crc32c", H5P_DEFAULT), "open an attribute");
    std::uint32_t crc = 0;
    if (H5Aget_storage_size(attribute.get()) == sizeof crc &&
        H5Aread(attribute.get(), H5T_NATIVE_UINT32, &crc) >= 0)
      form.crc32c = crc;
  }
  return form;
}

Hdf5File open_foreign(const std::string& path) {
  hdf5_check(H5PLset_loading_state(0), "refuse plugins");
  hdf5_check(H5Lunregister(H5L_TYPE_EXTERNAL), "refuse external links");
  const Hdf5Properties access(H5Pcreate(H5P_FILE_ACCESS), "prepare to open a file");
  hdf5_check(H5Pset_file_locking(access.get(), false, true), "disable file locks");
  return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), "open the file"};
}

void extract(hid_t file, const Extraction& what, int to) {
  const std::string action = fmt::format("read dataset '{:.100}'", what.name);
  const Hdf5Dataset dataset(H5Dopen2(file, what.name.c_str(), H5P_DEFAULT), action);
  const Hdf5Type type = hdf5_type(what.dtype);
  const std::size_t item = itemsize(what.dtype);
  const std::vector<hsize_t> shape = rows_of(what.shape);
  const std::size_t split = split_dimension(shape, item);
  std::uint64_t row_bytes = item;
  for (std::size_t d = split + 1; d < shape.size(); ++d) row_bytes *= shape[d];
  const Hdf5Properties how(H5Dget_create_plist(dataset.get()), action);
  const auto chunk = chunk_of(how.get(), what.shape.size());
  const std::uint64_t rows = rows_at_once(row_bytes, chunk.empty() ? 1 : chunk[split]);
  std::vector<char> piece(std::min<std::uint64_t>(rows, shape[split]) * row_bytes);
  std::vector<hsize_t> start(shape.size(), 0);
  std::uint64_t offset = what.offset;
  do {
    std::vector<hsize_t> count(shape.size(), 1);
    count[split] = std::min<hsize_t>(rows, shape[split] - start[split]);
    for (std::size_t d = split + 1; d < shape.size(); ++d) count[d] = shape[d];
    const std::size_t bytes = count[split] * row_bytes;
    const Hdf5Space memory(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr),
                           action);
    const Hdf5Space space(H5Dget_space(dataset.get()), action);
    if (!what.shape.empty())
      hdf5_check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr,
                                     count.data(), nullptr),
                 action);
    hdf5_check(
        H5Dread(dataset.get(), type.get(), memory.get(), space.get(), H5P_DEFAULT, piece.data()),
        action);
    write_all(to, piece, bytes, offset);
    offset += bytes;
  } while (advance(start, shape, split, rows));
}

}  // namespace ddp::ckpt
