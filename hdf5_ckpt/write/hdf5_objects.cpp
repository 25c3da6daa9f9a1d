// SPDX-License-Identifier: Apache-2.0
// Thin wrappers of libhdf5 calls.

#include "hdf5_ckpt/write/hdf5_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/io/aligned_buffer.h"
#include "hdf5_ckpt/write/hdf5_types.h"

namespace ddp::ckpt {

Hdf5Properties private_file_access(std::uint64_t metadata) {
  const char* const action = "set the layout of a file";
  Hdf5Properties access(H5Pcreate(H5P_FILE_ACCESS), action);
  // The format of 1.10 has checksums in its headers, and all later versions of HDF5 read it.
  hdf5_check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), action);
  hdf5_check(H5Pset_alignment(access.get(), kAlignedArrayBytes, kAlignment), action);
  hdf5_check(H5Pset_meta_block_size(access.get(), metadata), action);
  // No other process uses the file, and locks do not work everywhere.
  hdf5_check(H5Pset_file_locking(access.get(), false, true), action);
  return access;
}

Hdf5Properties timeless(hid_t kind) {
  const char* const action = "set the properties of an object";
  Hdf5Properties properties(H5Pcreate(kind), action);
  hdf5_check(H5Pset_obj_track_times(properties.get(), false), action);
  return properties;
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

Hdf5Type text_type(std::size_t length) {
  const char* const action = "describe a string";
  Hdf5Type type(H5Tcopy(H5T_C_S1), action);
  hdf5_check(H5Tset_size(type.get(), std::max<std::size_t>(length, 1)), action);
  hdf5_check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), action);
  hdf5_check(H5Tset_cset(type.get(), H5T_CSET_UTF8), action);
  return type;
}

void put_text(hid_t object, const std::string& name, std::string_view text) {
  const std::string terminated(text);
  put_attribute(object, name, text_type(text.size()).get(), space_of({}).get(), terminated.c_str());
}

void put_json(hid_t object, const std::string& name, const nlohmann::json& value) {
  const auto put = [&](hid_t type, const auto& number) {
    put_attribute(object, name, type, space_of({}).get(), &number);
  };
  if (value.is_string())
    put_text(object, name, value.get_ref<const std::string&>());
  else if (value.is_boolean())
    put(hdf5_type(DType::boolean).get(), static_cast<std::int8_t>(value.get<bool>()));
  else if (value.is_number_float())
    put(H5T_IEEE_F64LE, value.get<double>());
  else if (value.is_number_unsigned())
    put(H5T_STD_U64LE, value.get<std::uint64_t>());
  else if (value.is_number_integer())
    put(H5T_STD_I64LE, value.get<std::int64_t>());
  else
    throw Error(fmt::format("attribute '{}' must be a string, a number or a boolean", name));
}

}  // namespace ddp::ckpt
