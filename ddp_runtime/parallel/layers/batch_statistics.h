// SPDX-License-Identifier: Apache-2.0
// Mean and variance of a batch that is split over several ranks. No communication: tensors in,
// tensors out.
//
// Note [Statistics of a split batch]
// A sum and a sum of squares could simply be added up, but their difference loses all digits if the
// mean is large compared with the spread. So every part contributes its mean and its squared
// deviations from that mean, and parts are combined by shifting the deviations to the common mean
// (Chan, Golub and LeVeque, 1979). The values are doubles, because there are only two per channel.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace ddp {

struct BatchStatistics {
  torch::Tensor mean;        // [channels], double
  torch::Tensor deviations;  // [channels], double: sum of (x - mean)^2
  torch::Tensor count;       // scalar, double: values per channel

  torch::Tensor variance() const {
    return deviations / count;
  }  // biased, as used to normalize the batch
  torch::Tensor unbiased_variance() const { return deviations / (count - 1); }
};

// All dimensions of a batch [samples, channels, ...] except the channels.
std::vector<std::int64_t> dimensions_within_channel(const torch::Tensor& batch);
// Reshapes [channels] so that it broadcasts over a batch: [1, channels, 1, ...], of the batch's
// type.
torch::Tensor per_channel(const torch::Tensor& values, const torch::Tensor& batch);
// The type in which a batch is summed: its own, or float if its own is a half-precision type.
torch::ScalarType summation_type(const torch::Tensor& batch);

// Statistics of this rank's part, which may have no samples: [2 * channels + 1] doubles, on the
// device of the part.
torch::Tensor pack_statistics(const torch::Tensor& part);
// Statistics of all parts, given the result of pack_statistics() for each: [parts, 2 * channels +
// 1]. Bitwise the same on every rank that has the same rows.
BatchStatistics combine_statistics(const torch::Tensor& packed);

}  // namespace ddp
