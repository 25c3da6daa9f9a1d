// From a --data specification to samples.
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
  std::uint64_t seed = 1;      // of synthetic data and of augmentation
  std::int64_t context = 128;  // bytes of one sample of a text
  Augmentation augmentation;   // of training images
  SyntheticShape synthetic;
};

// digits | mnist:DIR | cifar10:DIR | text:FILE | hdf5:FILE | synthetic. Throws UsageError naming
// what is wrong and what there is, RuntimeError for damaged files.
DataPair open_data(const std::string& specification, const DataOptions& options = {});

}  // namespace ddp::data
