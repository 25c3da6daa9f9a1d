// SPDX-License-Identifier: Apache-2.0
// Samples in an HDF5 file: the dataset x [n, ...] holds the inputs, y [n] the classes. Rows are
// read on demand, so the file may be larger than memory.
#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/data/positioned_file.h"
#include "ddp_runtime/data/readers.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/hdf5_handle.h"

namespace ddp::data {
namespace {

using ckpt::Hdf5Dataset;
using ckpt::Hdf5File;
using ckpt::Hdf5Properties;
using ckpt::Hdf5Session;
using ckpt::Hdf5Space;
using ckpt::Hdf5Type;

constexpr std::int64_t kHoldOut = 10;  // every tenth sample is for evaluation
constexpr std::int64_t kMaxClasses = 1 << 20;
constexpr std::int64_t kMaxValues = std::int64_t{1} << 28;  // values per sample
constexpr std::size_t kChunkCache = std::size_t{64} << 20;  // bytes, per dataset

struct Column {
  Hdf5Dataset dataset;
  std::vector<hsize_t> dimensions;
  bool bytes = false;  // unsigned 8-bit numbers: pixels from 0 to 255
};

// An untrusted file must not make this process read other files, which could contain anything.
void require_own_data(hid_t file, const std::string& name, const std::string& path) {
  if (H5Lexists(file, name.c_str(), H5P_DEFAULT) <= 0) {
    throw UsageError(
        fmt::format("{} has no dataset '{}'; it must hold x [n, ...] with the inputs and y [n] "
                    "with the classes",
                    path, name));
  }
  H5L_info_t link;
  ckpt::hdf5_check(H5Lget_info(file, name.c_str(), &link, H5P_DEFAULT),
                   "inspect a link in " + path);
  if (link.type != H5L_TYPE_HARD) {
    throw UsageError(
        fmt::format("'{}' in {} is a link, and links are not followed; copy the data into the file",
                    name, path));
  }
}

void require_own_storage(const Hdf5Dataset& dataset, const std::string& name,
                         const std::string& path) {
  const Hdf5Properties creation(H5Dget_create_plist(dataset.get()), "look at " + path);
  if (H5Pget_external_count(creation.get()) == 0 && H5Pget_layout(creation.get()) != H5D_VIRTUAL) {
    return;
  }
  throw UsageError(fmt::format(
      "'{}' in {} keeps its data in other files, which are not read; copy the data into the file",
      name, path));
}

Column open_column(const Hdf5File& file, const std::string& name, const std::string& path) {
  require_own_data(file.get(), name, path);
  const Hdf5Properties access(H5Pcreate(H5P_DATASET_ACCESS), "set up reading");
  ckpt::hdf5_check(H5Pset_chunk_cache(access.get(), H5D_CHUNK_CACHE_NSLOTS_DEFAULT, kChunkCache,
                                      H5D_CHUNK_CACHE_W0_DEFAULT),
                   "set up reading");
  Column column;
  column.dataset = Hdf5Dataset(H5Dopen2(file.get(), name.c_str(), access.get()),
                               fmt::format("open the dataset '{}' in {}", name, path));
  require_own_storage(column.dataset, name, path);
  const Hdf5Space space(H5Dget_space(column.dataset.get()), "look at " + path);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank > 0) {
    column.dimensions.resize(static_cast<std::size_t>(rank));
    H5Sget_simple_extent_dims(space.get(), column.dimensions.data(), nullptr);
  }
  return column;
}

struct TypeFacts {
  H5T_class_t kind;
  std::size_t size;
  bool is_signed;
};

TypeFacts type_of(const Column& column) {
  const Hdf5Type type(H5Dget_type(column.dataset.get()), "inspect a type");
  return {H5Tget_class(type.get()), H5Tget_size(type.get()), H5Tget_sign(type.get()) == H5T_SGN_2};
}

Column open_inputs(const Hdf5File& file, const std::string& path) {
  Column x = open_column(file, "x", path);
  const TypeFacts type = type_of(x);
  x.bytes = type.kind == H5T_INTEGER && type.size == 1 && !type.is_signed;
  if (type.kind != H5T_FLOAT && !x.bytes) {
    throw UsageError(fmt::format(
        "x in {} holds neither floating-point numbers nor unsigned bytes; convert it to float32",
        path));
  }
  const auto& d = x.dimensions;
  if (d.size() < 2 || d.size() > 4) {
    throw UsageError(
        fmt::format("x in {} has {}; it must be [n, features], [n, height, width] or "
                    "[n, channels, height, width]",
                    path, counted(d.size(), "dimension")));
  }
  std::int64_t values = 1;
  for (std::size_t i = 1; i < d.size(); ++i) {
    if (d[i] == 0 || d[i] > static_cast<hsize_t>(kMaxValues / values)) {
      throw UsageError(fmt::format("x in {} has samples of an impossible size: {} in dimension {}",
                                   path, d[i], i));
    }
    values *= static_cast<std::int64_t>(d[i]);
  }
  return x;
}

Column open_classes(const Hdf5File& file, const Column& x, const std::string& path) {
  Column y = open_column(file, "y", path);
  if (type_of(y).kind != H5T_INTEGER) {
    throw UsageError(
        fmt::format("y in {} does not hold integers; it must hold classes, 0, 1, 2, ...", path));
  }
  if (y.dimensions.size() != 1) {
    throw UsageError(fmt::format("y in {} has {} dimensions; it must be [n], one class per sample",
                                 path, y.dimensions.size()));
  }
  if (y.dimensions[0] != x.dimensions[0]) {
    throw UsageError(fmt::format("x in {} holds {} samples but y holds {} classes", path,
                                 x.dimensions[0], y.dimensions[0]));
  }
  if (y.dimensions[0] < static_cast<hsize_t>(kHoldOut)) {
    throw UsageError(fmt::format("{} holds {} samples; it needs {}, one of which is held out", path,
                                 y.dimensions[0], kHoldOut));
  }
  return y;
}

// Rows [first, first + count) of a column, in memory of HDF5's type `type`.
void read_rows(const Column& column, hsize_t first, hsize_t count, hid_t type, void* to,
               const std::string& path) {
  const std::string action = fmt::format("read row {} of {}", first, path);
  const Hdf5Space from(H5Dget_space(column.dataset.get()), action);
  std::vector<hsize_t> start(column.dimensions.size(), 0);
  std::vector<hsize_t> block = column.dimensions;
  start[0] = first;
  block[0] = count;
  ckpt::hdf5_check(
      H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, start.data(), nullptr, block.data(), nullptr),
      action);
  const Hdf5Space into(H5Screate_simple(static_cast<int>(block.size()), block.data(), nullptr),
                       action);
  ckpt::hdf5_check(H5Dread(column.dataset.get(), type, into.get(), from.get(), H5P_DEFAULT, to),
                   action);
}

// The largest class plus one. Reads all classes, block by block.
std::int64_t count_classes(const Column& y, const std::string& path) {
  constexpr hsize_t kPiece = 1 << 16;
  std::vector<std::int64_t> piece(kPiece);
  std::int64_t largest = 0;
  for (hsize_t first = 0; first < y.dimensions[0]; first += kPiece) {
    const hsize_t count = std::min(kPiece, y.dimensions[0] - first);
    read_rows(y, first, count, H5T_NATIVE_INT64, piece.data(), path);
    const auto end = piece.begin() + static_cast<std::ptrdiff_t>(count);
    const auto bad =
        std::find_if(piece.begin(), end, [](std::int64_t c) { return c < 0 || c >= kMaxClasses; });
    if (bad != end) {
      throw UsageError(
          fmt::format("y in {} holds the class {} in row {}; classes range from 0 to {}", path,
                      *bad, first + static_cast<hsize_t>(bad - piece.begin()), kMaxClasses - 1));
    }
    largest = std::max(largest, *std::max_element(piece.begin(), end));
  }
  if (largest == 0) {
    throw UsageError(fmt::format(
        "y in {} holds only class 0, so there is nothing to learn; give data with several classes",
        path));
  }
  return largest + 1;
}

class Hdf5Rows final : public Dataset {
 public:
  explicit Hdf5Rows(const std::string& path) : path_(path) {
    const Hdf5Session session;
    // Reading needs no lock, and some network file systems do not support locks.
    const Hdf5Properties access(H5Pcreate(H5P_FILE_ACCESS), "set up reading");
    ckpt::hdf5_check(H5Pset_file_locking(access.get(), false, true), "set up reading");
    file_ = Hdf5File(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), "open " + path);
    x_ = open_inputs(file_, path);
    y_ = open_classes(file_, x_, path);
    for (std::size_t i = 1; i < x_.dimensions.size(); ++i) {
      shape_.input.push_back(static_cast<std::int64_t>(x_.dimensions[i]));
    }
    // Grayscale images have one channel.
    if (shape_.input.size() == 2) shape_.input.insert(shape_.input.begin(), 1);
    shape_.classes = count_classes(y_, path);
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(x_.dimensions[0]); }
  SampleShape shape() const override { return shape_; }

  Batch get(std::span<const std::int64_t> indices) const override {
    auto sizes = shape_.input;
    sizes.insert(sizes.begin(), static_cast<std::int64_t>(indices.size()));
    Batch batch{torch::empty(sizes), torch::empty({sizes[0]}, torch::TensorOptions(torch::kInt64))};
    const std::int64_t values = batch.inputs.numel() / std::max<std::int64_t>(sizes[0], 1);
    float* inputs = batch.inputs.data_ptr<float>();
    std::int64_t* classes = batch.targets.data_ptr<std::int64_t>();
    const Hdf5Session session;
    for (const std::int64_t index : indices) {
      const auto row = static_cast<hsize_t>(index);
      read_rows(x_, row, 1, H5T_NATIVE_FLOAT, inputs, path_);
      read_rows(y_, row, 1, H5T_NATIVE_INT64, classes, path_);
      if (x_.bytes) std::for_each(inputs, inputs + values, [](float& v) { v /= 255; });
      inputs += values;
      ++classes;
    }
    return batch;
  }

 private:
  std::string path_;
  Hdf5File file_;
  Column x_;
  Column y_;
  SampleShape shape_;
};

// Every tenth sample (9, 19, 29, ...) of a data set, or all other samples.
class PartOfRows final : public Dataset {
 public:
  PartOfRows(std::shared_ptr<const Dataset> all, bool held_out)
      : all_(std::move(all)), held_out_(held_out) {}

  std::int64_t size() const override {
    const std::int64_t held_out = all_->size() / kHoldOut;
    return held_out_ ? held_out : all_->size() - held_out;
  }
  SampleShape shape() const override { return all_->shape(); }
  Batch get(std::span<const std::int64_t> indices) const override {
    std::vector<std::int64_t> rows(indices.begin(), indices.end());
    for (auto& row : rows) {
      row = held_out_ ? row * kHoldOut + kHoldOut - 1 : row + row / (kHoldOut - 1);
    }
    return all_->get(rows);
  }

 private:
  std::shared_ptr<const Dataset> all_;
  bool held_out_;
};

}  // namespace

DataPair read_hdf5(const std::filesystem::path& path) {
  const PositionedFile exists(path);  // its errors are easier to read than HDF5's
  try {
    auto rows = std::make_shared<const Hdf5Rows>(path.string());
    return {"hdf5:" + path.string(), std::make_shared<const PartOfRows>(rows, false),
            std::make_shared<const PartOfRows>(rows, true)};
  } catch (const ckpt::Error& e) {
    throw RuntimeError(
        fmt::format("{} is not a valid HDF5 file: {}; write it again", path.string(), e.what()));
  }
}

}  // namespace ddp::data
