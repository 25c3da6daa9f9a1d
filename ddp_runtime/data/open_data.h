// From a --data specification to samples.
#pragma once

#include <cstdint>
#include <string>

#include "ddp_runtime/data/dataset.h"

namespace ddp::data {

struct SyntheticShape {
  std::vector<std::int64_t> input{1, 28, 28};
  std::int64_t classes = 10;
  std::int64_t samples = 10000;
};

// digits | mnist:DIR | synthetic. Throws UsageError naming what is wrong and what there is.
DataPair open_data(const std::string& specification, const SyntheticShape& synthetic,
                   std::uint64_t seed);

}  // namespace ddp::data
