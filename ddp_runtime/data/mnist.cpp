// SPDX-License-Identifier: Apache-2.0
// IDX files: a magic number (two zero bytes, the element type, the number of dimensions), the
// dimensions as big-endian 32-bit numbers, then the elements.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/data/gzip_file.h"
#include "ddp_runtime/data/readers.h"
#include "ddp_runtime/data/tensor_dataset.h"

namespace ddp::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxBytes = std::size_t{4} << 30U;
constexpr unsigned char kUnsignedByte = 8;

struct Idx {
  std::vector<std::int64_t> dimensions;
  std::vector<unsigned char> bytes;  // the whole file
  std::size_t data = 0;              // where the elements begin
};

Idx parse_idx(const fs::path& file, std::size_t dimensions) {
  Idx idx;
  idx.bytes = read_maybe_gzipped(file, kMaxBytes);
  idx.data = 4 + 4 * dimensions;
  const auto& b = idx.bytes;
  if (b.size() < idx.data) {
    throw RuntimeError(fmt::format("{} is truncated: its {} bytes are less than a header",
                                   file.string(), b.size()));
  }
  if (b[0] != 0 || b[1] != 0 || b[2] != kUnsignedByte || b[3] != dimensions) {
    throw RuntimeError(
        fmt::format("{} is not an IDX file of bytes with {}: its magic number is "
                    "{:02x}{:02x}{:02x}{:02x}",
                    file.string(), counted(dimensions, "dimension"), b[0], b[1], b[2], b[3]));
  }
  const std::uint64_t held = b.size() - idx.data;
  std::uint64_t elements = 1;
  bool fits = true;  // the elements announced so far, in the file
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::uint32_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) size = (size << 8U) | b[4 + 4 * d + i];
    idx.dimensions.push_back(size);
    if (size == 0) {
      throw RuntimeError(
          fmt::format("{} is damaged: dimension {} of its {} has the size 0; "
                      "download it again",
                      file.string(), d + 1, dimensions));
    }
    fits = fits && size <= held / elements;
    if (fits) elements *= size;
  }
  if (!fits || elements != held) {
    throw RuntimeError(fmt::format(
        "{} is damaged, truncated or too long: its header announces {} elements, but it holds "
        "{}; download it again",
        file.string(), fmt::join(idx.dimensions, " x "), held));
  }
  return idx;
}

// Returns the file of this part and kind, under any of its usual spellings.
fs::path find(const fs::path& directory, const std::string& stem, const std::string& idx) {
  for (const char* separator : {"-", "."}) {
    for (const char* suffix : {"", ".gz"}) {
      const auto file = directory / (stem + separator + idx + suffix);
      if (fs::exists(file)) return file;
    }
  }
  throw UsageError(
      fmt::format("no {}-{} (or .gz) in {}; the directory must hold the four MNIST files", stem,
                  idx, directory.string()));
}

std::shared_ptr<TensorDataset> read_part(const fs::path& directory, const std::string& part) {
  const auto image_file = find(directory, part + "-images", "idx3-ubyte");
  const auto label_file = find(directory, part + "-labels", "idx1-ubyte");
  Idx images = parse_idx(image_file, 3);
  Idx labels = parse_idx(label_file, 1);
  if (images.dimensions[0] != labels.dimensions[0]) {
    throw RuntimeError(fmt::format("{} holds {} images but {} holds {} labels", image_file.string(),
                                   images.dimensions[0], label_file.string(),
                                   labels.dimensions[0]));
  }
  const auto n = labels.dimensions[0];
  const auto bytes =
      torch::from_blob(images.bytes.data() + images.data,
                       {n, 1, images.dimensions[1], images.dimensions[2]}, torch::kUInt8);
  const auto targets =
      torch::from_blob(labels.bytes.data() + labels.data, {n}, torch::kUInt8).to(torch::kInt64);
  const auto largest = targets.max().item<std::int64_t>();
  if (largest > 9) {
    throw RuntimeError(fmt::format("{} holds the label {}; labels range from 0 to 9",
                                   label_file.string(), largest));
  }
  return std::make_shared<TensorDataset>(bytes.to(torch::kFloat32).div(255), targets, 10);
}

// `input`: channels, rows, columns.
std::string pixels(const std::vector<std::int64_t>& input) {
  return fmt::format("{} x {}", input[1], input[2]);
}

}  // namespace

DataPair read_mnist(const fs::path& directory) {
  if (!fs::is_directory(directory)) {
    throw UsageError(
        fmt::format("{} is not a directory; give the directory with the MNIST files, as in "
                    "--data mnist:DIR",
                    directory.string()));
  }
  DataPair data{"mnist:" + directory.string(), read_part(directory, "train"),
                read_part(directory, "t10k")};
  const auto train = data.train->shape().input;
  const auto evaluation = data.evaluation->shape().input;
  if (train != evaluation) {
    throw RuntimeError(fmt::format(
        "the images in {} have {} pixels in the train files and {} in the t10k files; use files "
        "from the same data set",
        directory.string(), pixels(train), pixels(evaluation)));
  }
  return data;
}

}  // namespace ddp::data
