// SPDX-License-Identifier: Apache-2.0
// Opens the data that a --data specification names.
#pragma once

#include <cstdint>
#include <string>

#include "ddp_runtime/data/augmented_images.h"
#include "ddp_runtime/data/dataset.h"

namespace ddp::data {

struct SyntheticShape {
  std::vector<std::int64_t> input{1, 28, 28};
  std::int64_t classes = 10;
  std::int64_t samples = 10000;
};

struct DataOptions {
  std::uint64_t seed = 1;      // for synthetic data and augmentation
  std::int64_t context = 128;  // bytes per sample of a text
  Augmentation augmentation;   // for training images
  SyntheticShape synthetic;
};

// digits | mnist:DIR | cifar10:DIR | text:FILE | hdf5:FILE | synthetic. Throws a UsageError that
// describes the error and lists the valid choices, or a RuntimeError for damaged files.
DataPair open_data(const std::string& specification, const DataOptions& options = {});

}  // namespace ddp::data
