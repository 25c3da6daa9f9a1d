// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <numeric>

#include "ddp_runtime/data/readers.h"
#include "ddp_runtime/data/tensor_dataset.h"

namespace ddp::data {

DataPair make_synthetic(const std::vector<std::int64_t>& input_shape, std::int64_t classes,
                        std::int64_t samples, std::uint64_t seed) {
  // A separate generator: creating data must not advance the one that initializes the model.
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(seed);
  auto sizes = input_shape;
  sizes.insert(sizes.begin(), samples);
  const auto features =
      std::accumulate(input_shape.begin(), input_shape.end(), std::int64_t{1}, std::multiplies<>());
  const auto inputs = torch::randn(sizes, generator);
  const auto rule = torch::randn({features, classes}, generator);
  const auto targets = inputs.view({samples, features}).matmul(rule).argmax(1);
  const auto split = hold_out_a_tenth(inputs, targets, classes);
  return {"synthetic", split.train, split.evaluation};
}

}  // namespace ddp::data
