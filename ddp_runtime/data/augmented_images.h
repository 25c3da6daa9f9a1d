// SPDX-License-Identifier: Apache-2.0
// Random crops and flips of training images.
#pragma once

#include <memory>
#include <string>

#include "ddp_runtime/data/dataset.h"

namespace ddp::data {

struct Augmentation {
  std::int64_t padding = 0;  // maximum shift in pixels, in each direction; 0: no shift
  bool flip = false;         // mirror left to right in half of the cases

  bool any() const noexcept { return padding > 0 || flip; }
};

// "none", "crop" (4 pixels, as He et al. use for CIFAR-10), "flip" or "crop+flip". Throws
// UsageError for anything else.
Augmentation parse_augmentation(const std::string& name);

// The transformation of one sample in one epoch.
struct Placement {
  std::int64_t down = 0;  // from -padding to padding
  std::int64_t right = 0;
  bool flipped = false;
};

// Depends only on its arguments: the same for any number of ranks and loader threads, and after
// resuming.
Placement placement_of(const Augmentation& augmentation, std::uint64_t seed, std::int64_t epoch,
                       std::int64_t index);

// Images [channels, height, width]. Pixels shifted in from outside are 0.
class AugmentedImages final : public Dataset {
 public:
  // Throws UsageError if the samples are not images, or smaller than the padding.
  AugmentedImages(std::shared_ptr<const Dataset> images, const Augmentation& augmentation,
                  std::uint64_t seed);

  std::int64_t size() const override { return images_->size(); }
  SampleShape shape() const override { return images_->shape(); }
  Batch get(std::span<const std::int64_t> indices) const override { return images_->get(indices); }
  Batch draw(std::span<const std::int64_t> indices, std::int64_t epoch) const override;

 private:
  std::shared_ptr<const Dataset> images_;
  Augmentation augmentation_;
  std::uint64_t seed_;
};

}  // namespace ddp::data
