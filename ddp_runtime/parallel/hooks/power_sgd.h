// Gradients as products of two thin matrices.
//
// PowerSGD (Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression for
// Distributed Optimization", 2019). A gradient of n rows and m columns, M, travels as P (n x r) and
// Q (m x r), one step of subspace iteration:
//
//   P = sum over ranks of M Q;  P is made orthonormal;  Q = sum over ranks of M^T P;  M' = P Q^T
//
// What M' lacks of M stays behind as this rank's error and is added to the next gradient (error
// feedback), and Q is where the next iteration begins (warm start). Vectors, and matrices that
// would hardly become smaller, are sent as they are.
//
// Note [What the error must not take in]
// The error lives as long as the run, so one bad step must not get into it. P and Q are sums over
// all ranks, so all ranks see in them whether any gradient was not finite: then M' is not a number
// (the step is left out, or ends the run) and error and Q stay what they were. The same where
// nobody used the parameter: its M' would be thrown away, and with it what the error gave to it.
// And the error is kept without the loss scale, which may be another one in the next step.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "ddp_runtime/parallel/comm_hook.h"

namespace ddp::hooks {

struct PowerSgdOptions {
  int rank = 4;  // r
  // The first gradients say little of later ones and are sent in full, this many times.
  std::int64_t full_passes = 10;
  // A matrix is compressed if that makes it this many times smaller.
  double least_compression = 2;
  std::uint64_t seed = 1;  // the same on all ranks
};

// The memory of one model on one rank: as much again as its gradients. It is not part of a
// checkpoint: a resumed run begins with full_passes passes and no error.
class PowerSgd {
 public:
  explicit PowerSgd(const PowerSgdOptions& options) : options_(options) {}

  // The hook; this must outlive what it returns.
  HookTask reduce(GradientBucket& bucket);

 private:
  // By parameter, so that buckets may be filled anew.
  struct Memory {
    torch::Tensor error;  // [n, m], divided by the loss scale
    torch::Tensor q;      // [m, r]
  };
  struct Matrix {
    torch::Tensor gradient;  // the bucket's, in the parameter's shape: M until it becomes M'
    torch::Tensor m;         // [n, m], the same values
    Memory* memory = nullptr;
    torch::Tensor p;     // [n, r], in the memory that is sent
    torch::Tensor q;     // [m, r], likewise
    torch::Tensor used;  // one element, likewise: by how many ranks
    bool used_here = true;
    bool finite = true;
  };
  // What is sent of a bucket.
  struct Parcel {
    std::vector<Matrix> matrices;
    std::vector<torch::Tensor> rest;  // of the bucket, sent as they are
    torch::Tensor ps, qs, flat_rest;  // ps with `used` of all matrices
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
