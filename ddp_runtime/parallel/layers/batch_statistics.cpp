// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/layers/batch_statistics.h"

namespace ddp {

std::vector<std::int64_t> dimensions_within_channel(const torch::Tensor& batch) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t d = 2; d < batch.dim(); ++d) dimensions.push_back(d);
  return dimensions;
}

torch::Tensor per_channel(const torch::Tensor& values, const torch::Tensor& batch) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(batch.dim()), 1);
  shape[1] = values.numel();
  return values.to(batch.options()).view(shape);
}

torch::ScalarType summation_type(const torch::Tensor& batch) {
  return batch.element_size() < 4 ? torch::kFloat32 : batch.scalar_type();
}

torch::Tensor pack_statistics(const torch::Tensor& part) {
  const auto channels = part.size(1);
  auto packed = torch::zeros({2 * channels + 1}, part.options().dtype(torch::kFloat64));
  if (part.numel() == 0) return packed;
  const auto count = static_cast<double>(part.numel() / channels);
  const auto [variance, mean] = torch::var_mean(
      part.to(summation_type(part)), dimensions_within_channel(part), /*unbiased=*/false);
  packed.narrow(0, 0, channels).copy_(mean);
  packed.narrow(0, channels, channels).copy_(variance.to(torch::kFloat64) * count);
  packed[2 * channels].fill_(count);
  return packed;
}

BatchStatistics combine_statistics(const torch::Tensor& packed) {
  const auto channels = (packed.size(1) - 1) / 2;
  const auto means = packed.narrow(1, 0, channels);
  const auto deviations = packed.narrow(1, channels, channels);
  const auto counts = packed.narrow(1, 2 * channels, 1);
  const auto count = counts.sum();
  const auto mean = (means * counts).sum(0) / count;
  const auto moved = counts * (means - mean).square();
  return {mean, (deviations + moved).sum(0), count};
}

}  // namespace ddp
