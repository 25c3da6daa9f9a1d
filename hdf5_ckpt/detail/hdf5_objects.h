#pragma once
// What the makers of HDF5 files share: properties that give equal bytes for equal contents, shapes
// and attributes. Call while holding an Hdf5Session; all throw Error.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "hdf5_ckpt/array.h"
#include "hdf5_ckpt/hdf5_handle.h"

namespace ddp::ckpt {

// Arrays of at least kAlignedArrayBytes start at a multiple of kAlignment in the file.
inline constexpr std::uint64_t kAlignedArrayBytes = 65536;

// For a file that nobody else knows yet and whose own structures take about `metadata` bytes.
Hdf5Properties private_file_access(std::uint64_t metadata);

// Properties of a kind (H5P_FILE_CREATE, ...) for an object that records no times.
Hdf5Properties timeless(hid_t kind);

// Names of links are UTF-8.
Hdf5Properties utf8_link();

Hdf5Space space_of(const Shape& shape);

// UTF-8 of so many bytes.
Hdf5Type text_type(std::size_t length);

// Attributes of an open object.
void put_attribute(hid_t object, const std::string& name, hid_t type, hid_t space,
                   const void* value);  // null: an attribute without elements
void put_shape(hid_t object, const std::string& name, const Shape& shape);
void put_text(hid_t object, const std::string& name, std::string_view text);
void put_json(hid_t object, const std::string& name, const nlohmann::json& value);  // no lists

}  // namespace ddp::ckpt
