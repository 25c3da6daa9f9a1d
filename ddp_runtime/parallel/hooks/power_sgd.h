// SPDX-License-Identifier: Apache-2.0
// Gradients as products of two thin matrices.
//
// PowerSGD (Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression for
// Distributed Optimization", 2019). A gradient of n rows and m columns, M, is sent as P (n x r) and
// Q (m x r), one step of subspace iteration:
//
//   P = sum over ranks of M Q;  P is made orthonormal;  Q = sum over ranks of M^T P;  M' = P Q^T
//
// The difference between M and M' stays behind as this rank's error and is added to the next
// gradient (error feedback), and Q is the starting point of the next iteration (warm start).
// Vectors, and matrices that would hardly become smaller, are sent uncompressed.
//
// Note [Keeping the error clean]
// The error lives as long as the run, so one bad step must not get into it. P and Q are sums over
// all ranks, so all ranks see in them whether any gradient was not finite: then M' is NaN (the step
// is skipped, or the run fails); the error and Q stay unchanged. The same applies if no rank used
// the parameter: its M' would be discarded, together with the part of the error that it contains.
// The error is stored without the loss scale, which may be different in the next step.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "ddp_runtime/parallel/hooks/comm_hook.h"

namespace ddp::hooks {

struct PowerSgdOptions {
  int rank = 4;  // r
  // Number of passes at the start that send gradients in full, because the first gradients say
  // little about later ones.
  std::int64_t full_passes = 10;
  // A matrix is compressed if that makes it smaller by at least this factor.
  double least_compression = 2;
  std::uint64_t seed = 1;  // the same on all ranks
};

// The state for one model on one rank: as large as its gradients. It is not part of a checkpoint: a
// resumed run begins with full_passes passes and no error.
class PowerSgd {
 public:
  explicit PowerSgd(const PowerSgdOptions& options) : options_(options) {}

  // The hook; this object must outlive the task that it returns.
  HookTask reduce(GradientBucket& bucket);

 private:
  // State of one parameter, which stays valid when the buckets are rebuilt.
  struct Memory {
    torch::Tensor error;  // [n, m], divided by the loss scale
    torch::Tensor q;      // [m, r]
  };
  struct Matrix {
    torch::Tensor gradient;  // slice of the bucket in the parameter's shape: first M, then M'
    torch::Tensor m;         // [n, m], the same values
    Memory* memory = nullptr;
    torch::Tensor p;     // [n, r], in the memory that is sent
    torch::Tensor q;     // [m, r], in that memory, too
    torch::Tensor used;  // one element in that memory: the number of ranks that used the parameter
    bool used_here = true;
    bool finite = true;
  };
  // The data sent for one bucket.
  struct Parcel {
    std::vector<Matrix> matrices;
    std::vector<torch::Tensor> rest;  // other gradients of the bucket, sent uncompressed
    torch::Tensor ps, qs, flat_rest;  // ps includes `used` of all matrices
  };

  bool compresses(const torch::Tensor& gradient) const;
  Memory& memory_of(const BucketMember& member);
  Parcel pack(const GradientBucket& bucket);
  static void multiply_back(Parcel& parcel);
  static void put_gradient(const Matrix& matrix, int ranks, double loss_scale);

  PowerSgdOptions options_;
  std::map<std::size_t, Memory> memories_;
};

}  // namespace ddp::hooks
