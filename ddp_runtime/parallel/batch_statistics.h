// Mean and variance of a batch that lies in parts on several ranks. Pure: tensors in, tensors out.
//
// Note [Statistics of a batch in parts]
// A sum and a sum of squares could simply be added up, but their difference loses all digits when
// the mean is large beside the spread. So every part gives its mean and its squared deviations from
// that mean, and parts are combined by moving the deviations to the common mean (Chan, Golub and
// LeVeque, 1979). Doubles, because there are only two per channel.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace ddp {

struct BatchStatistics {
  torch::Tensor mean;        // [channels], double
  torch::Tensor deviations;  // [channels], double: sum of (x - mean)^2
  double count = 0;          // values per channel

  torch::Tensor variance() const {
    return deviations / count;
  }  // biased, what batches are divided by
  torch::Tensor unbiased_variance() const { return deviations / (count - 1); }
};

// All dimensions of a batch [samples, channels, ...] but that of the channels.
std::vector<std::int64_t> dimensions_within_channel(const torch::Tensor& batch);
// [channels] as what can be combined with a batch: [1, channels, 1, ...], of the batch's type.
torch::Tensor per_channel(const torch::Tensor& values, const torch::Tensor& batch);
// The type in which a batch is summed: its own, or float if that is a half.
torch::ScalarType summation_type(const torch::Tensor& batch);

// Of the part of this rank, which may have no samples: [2 * channels + 1] doubles, on the CPU.
torch::Tensor pack_statistics(const torch::Tensor& part);
// Of all parts, given what pack_statistics() made of each: [parts, 2 * channels + 1]. The same bits
// on every rank that has the same rows.
BatchStatistics combine_statistics(const torch::Tensor& packed);

}  // namespace ddp
