// SPDX-License-Identifier: Apache-2.0
// CIFAR-10, binary version: records of one label and 32 x 32 pixels, first all red values, then
// green, then blue (https://www.cs.toronto.edu/~kriz/cifar.html).
#include <fmt/format.h>

#include <array>

#include "base/errors.h"
#include "ddp_runtime/data/positioned_file.h"
#include "ddp_runtime/data/readers.h"

namespace ddp::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kImagePixels = kChannels * kSide * kSide;
constexpr std::int64_t kRecord = 1 + kImagePixels;
constexpr std::int64_t kClasses = 10;

// Mean and standard deviation of the training images, per channel, with values from 0 to 1.
constexpr std::array<float, kChannels> kMean = {0.4914F, 0.4822F, 0.4465F};
constexpr std::array<float, kChannels> kSpread = {0.2470F, 0.2435F, 0.2616F};

struct Part {
  std::unique_ptr<PositionedFile> file;
  std::int64_t first = 0;  // index of its first image
  std::int64_t images = 0;
};

class Cifar10 final : public Dataset {
 public:
  explicit Cifar10(std::vector<Part> parts) : parts_(std::move(parts)) {}

  std::int64_t size() const override { return parts_.back().first + parts_.back().images; }
  SampleShape shape() const override { return {{kChannels, kSide, kSide}, kClasses, false}; }

  Batch get(std::span<const std::int64_t> indices) const override {
    const auto n = static_cast<std::int64_t>(indices.size());
    Batch batch{torch::empty({n, kChannels, kSide, kSide}),
                torch::empty({n}, torch::TensorOptions(torch::kInt64))};
    float* pixels = batch.inputs.data_ptr<float>();
    std::int64_t* labels = batch.targets.data_ptr<std::int64_t>();
    std::array<unsigned char, kRecord> record{};
    for (const std::int64_t index : indices) {
      const Part& part = part_of(index);
      part.file->read(record, (index - part.first) * kRecord);
      *labels++ = record[0];
      pixels = append(record, pixels);
    }
    return batch;
  }

 private:
  const Part& part_of(std::int64_t index) const {
    std::size_t part = parts_.size() - 1;
    while (parts_[part].first > index) --part;
    return parts_[part];
  }

  static float* append(std::span<const unsigned char> record, float* pixels) {
    const unsigned char* from = record.data() + 1;
    for (std::size_t channel = 0; channel < kChannels; ++channel) {
      const float scale = 1 / (255 * kSpread[channel]);
      const float shift = -kMean[channel] / kSpread[channel];
      for (std::int64_t i = 0; i < kSide * kSide; ++i) {
        *pixels++ = static_cast<float>(*from++) * scale + shift;
      }
    }
    return pixels;
  }

  std::vector<Part> parts_;
};

// Without this check, a label out of range would be noticed hours later, or crash a kernel.
void require_labels(const PositionedFile& file, std::int64_t images) {
  for (std::int64_t i = 0; i < images; ++i) {
    unsigned char label = 0;
    file.read({&label, 1}, i * kRecord);
    if (label < kClasses) continue;
    throw RuntimeError(fmt::format(
        "{} holds the label {} (image {}); labels range from 0 to 9, so this is not the "
        "binary version of CIFAR-10, or it is damaged; download it again",
        file.path().string(), label, i));
  }
}

Part open_part(const fs::path& path, std::int64_t first) {
  if (!fs::exists(path)) {
    throw UsageError(
        fmt::format("no {} in {}; the directory must hold the binary version of CIFAR-10 "
                    "(data_batch_1.bin to data_batch_5.bin and test_batch.bin)",
                    path.filename().string(), path.parent_path().string()));
  }
  Part part{std::make_unique<PositionedFile>(path), first, 0};
  const std::int64_t bytes = part.file->size();
  part.images = bytes / kRecord;
  if (bytes == 0 || bytes % kRecord != 0) {
    throw RuntimeError(
        fmt::format("{} has {} bytes, which is not a whole number of images of {} bytes; it is "
                    "truncated or not the binary version of CIFAR-10; download it again",
                    path.string(), bytes, kRecord));
  }
  require_labels(*part.file, part.images);
  return part;
}

}  // namespace

DataPair read_cifar10(const fs::path& directory) {
  if (!fs::is_directory(directory)) {
    throw UsageError(
        fmt::format("{} is not a directory; give the directory with the CIFAR-10 files, as in "
                    "--data cifar10:DIR",
                    directory.string()));
  }
  std::vector<Part> train;
  std::int64_t first = 0;
  for (int i = 1; i <= 5; ++i) {
    train.push_back(open_part(directory / fmt::format("data_batch_{}.bin", i), first));
    first += train.back().images;
  }
  std::vector<Part> test;
  test.push_back(open_part(directory / "test_batch.bin", 0));
  return {"cifar10:" + directory.string(), std::make_shared<Cifar10>(std::move(train)),
          std::make_shared<Cifar10>(std::move(test))};
}

}  // namespace ddp::data
