// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/augmented_images.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/errors.h"
#include "ddp_runtime/data/mix.h"

namespace ddp::data {
namespace {

// Moves a plane [height, width] by the placement, one whole row at a time, possibly reversed.
void move_plane(const float* from, float* to, std::int64_t height, std::int64_t width,
                const Placement& place) {
  std::fill(to, to + height * width, 0.0F);
  const std::int64_t shift = place.right;
  const std::int64_t first = std::max<std::int64_t>(0, shift);  // columns of the result
  const std::int64_t last = std::min(width, width + shift);
  for (std::int64_t y = 0; y < height; ++y) {
    const std::int64_t source = y - place.down;
    if (source < 0 || source >= height) continue;
    const float* const row = from + source * width;
    float* const result = to + y * width;
    if (place.flipped) {
      // The image is flipped first: its column x is column width - 1 - x of the original.
      std::reverse_copy(row + width - (last - shift), row + width - (first - shift),
                        result + first);
    } else {
      std::copy(row + first - shift, row + last - shift, result + first);
    }
  }
}

}  // namespace

Augmentation parse_augmentation(const std::string& name) {
  constexpr std::int64_t kPadding = 4;
  if (name == "none") return {};
  if (name == "crop") return {kPadding, false};
  if (name == "flip") return {0, true};
  if (name == "crop+flip") return {kPadding, true};
  throw UsageError(
      fmt::format("unknown augmentation '{}'; use none, crop, flip or crop+flip", name));
}

Placement placement_of(const Augmentation& augmentation, std::uint64_t seed, std::int64_t epoch,
                       std::int64_t index) {
  const std::uint64_t random =
      mix(mix(mix(seed) ^ static_cast<std::uint64_t>(epoch)) ^ static_cast<std::uint64_t>(index));
  const auto places = static_cast<std::uint64_t>(2 * augmentation.padding + 1);
  // Three independent pieces of one 64-bit number; 20 bits make the remainder's bias negligible.
  const auto shift = [&](std::uint64_t bits) {
    return static_cast<std::int64_t>((bits & 0xfffffU) % places) - augmentation.padding;
  };
  return {shift(random), shift(random >> 20U), augmentation.flip && (random >> 63U) != 0};
}

AugmentedImages::AugmentedImages(std::shared_ptr<const Dataset> images,
                                 const Augmentation& augmentation, std::uint64_t seed)
    : images_(std::move(images)), augmentation_(augmentation), seed_(seed) {
  const auto shape = images_->shape();
  if (shape.input.size() != 3) {
    throw UsageError(fmt::format(
        "only images can be cropped and flipped, but the data has samples of shape [{}]; use "
        "--augment none",
        fmt::join(shape.input, ", ")));
  }
  if (std::min(shape.input[1], shape.input[2]) <= augmentation.padding) {
    throw UsageError(fmt::format(
        "images of {} x {} pixels are too small to be shifted by {}; use --augment none or flip",
        shape.input[1], shape.input[2], augmentation.padding));
  }
}

Batch AugmentedImages::draw(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  const Batch plain = images_->get(indices);
  Batch batch{torch::empty_like(plain.inputs), plain.targets};
  const std::int64_t channels = plain.inputs.size(1);
  const std::int64_t height = plain.inputs.size(2);
  const std::int64_t width = plain.inputs.size(3);
  const float* from = plain.inputs.data_ptr<float>();
  float* to = batch.inputs.data_ptr<float>();
  for (const std::int64_t index : indices) {
    const Placement place = placement_of(augmentation_, seed_, epoch, index);
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      move_plane(from, to, height, width, place);
      from += height * width;
      to += height * width;
    }
  }
  return batch;
}

}  // namespace ddp::data
