// SPDX-License-Identifier: Apache-2.0
// A communication hook replaces the full-precision sum of a bucket's gradients with your own code:
// a coroutine that starts when the bucket is full and resumes when the collective that it awaits
// has completed.
//
//   ddp::HookTask in_bf16(ddp::GradientBucket& bucket) {
//     auto half = bucket.tensor().to(torch::kBFloat16);
//     co_await bucket.all_reduce(half);
//     bucket.tensor().copy_(half);
//   }
//
//   ddp::DistributedDataParallel replica(*net, group, {.hook = in_bf16});
//
// When the hook starts, the bucket holds this rank's gradients, already divided by the number of
// ranks (and micro-batches). When it ends, the bucket must hold the gradients that all ranks will
// use: with a plain all_reduce, the average. All ranks must run the same hook, and for the same
// bucket it must await the same number of collectives on all of them, because the hooks of several
// buckets are resumed in turns.
#pragma once

#include <torch/torch.h>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/profile/interval.h"

namespace ddp {

// The awaitable that a collective of GradientBucket returns. Its collective has already started, so
// several can be in flight.
class Sent {
 public:
  explicit Sent(comm::Work work) : work_(std::move(work)) {}
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> hook) const {
    hook.promise().awaited = work_;
  }
  void await_resume() const noexcept {}

 private:
  comm::Work work_;
};

// A gradient in a bucket: the index of its parameter among those that require gradients, the same
// in every step; its slice of the bucket, in the parameter's shape, with a last dimension of two
// real numbers if the parameter is complex; and whether this rank used the parameter in this step
// (see DataParallelOptions::allow_unused). The gradient of an unused parameter is zero.
struct BucketMember {
  std::size_t parameter;
  torch::Tensor gradient;
  bool used = true;
};

class GradientBucket {
 public:
  GradientBucket(comm::Group& group, std::string name, std::int64_t pass, torch::Tensor tensor,
                 std::vector<BucketMember> members, double loss_scale = 1)
      : group_(group),
        name_(std::move(name)),
        pass_(pass),
        tensor_(std::move(tensor)),
        members_(std::move(members)),
        loss_scale_(loss_scale) {}

  comm::Group& group() const noexcept { return group_; }
  // "bucket 3: fc2.weight to fc2.bias".
  const std::string& name() const noexcept { return name_; }
  // The number of earlier passes over the buckets: 0 in the first step.
  std::int64_t pass() const noexcept { return pass_; }
  // All gradients, one after another: [elements], contiguous.
  const torch::Tensor& tensor() const noexcept { return tensor_; }
  std::span<const BucketMember> members() const noexcept { return members_; }
  // The factor by which the loss, and therefore every gradient, was multiplied. It changes from
  // step to step: a hook that carries part of a gradient over to a later step must divide it by
  // this factor. See DistributedDataParallel::set_loss_scale().
  double loss_scale() const noexcept { return loss_scale_; }

  // Starts summing `data` over the ranks, in place. `data` must be contiguous and have the same
  // size on all ranks.
  Sent all_reduce(const torch::Tensor& data);
  // Starts sending part r of `input` to rank r, and receiving part r of `output` from it: the parts
  // have the same size. `output` and `input` must be contiguous and must not overlap.
  Sent all_to_all(const torch::Tensor& output, const torch::Tensor& input);
  // Starts collecting the ranks' inputs in `output`, in rank order. Both must be contiguous.
  Sent all_gather(const torch::Tensor& output, const torch::Tensor& input);

  // Number of bytes reduced so far. all_to_all and all_gather count half of their larger tensor,
  // because an all_reduce of it would send twice as much.
  std::size_t bytes() const noexcept { return bytes_; }
  // The time from the start of the first collective to the end of the last one that is done.
  profile::Interval communication() const;

 private:
  Sent note(comm::Work work, std::size_t bytes);

  comm::Group& group_;
  std::string name_;
  std::int64_t pass_;
  torch::Tensor tensor_;
  std::vector<BucketMember> members_;
  double loss_scale_;
  std::size_t bytes_ = 0;
  std::vector<comm::Work> works_;
};

// The return type of a hook. Move-only; owns the coroutine.
class HookTask {
 public:
  struct promise_type {
    comm::Work awaited;
    std::exception_ptr error;

    HookTask get_return_object() { return HookTask(Handle::from_promise(*this)); }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() noexcept { error = std::current_exception(); }
  };

  HookTask(HookTask&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  HookTask& operator=(HookTask&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~HookTask() {
    if (handle_) handle_.destroy();
  }

  bool done() const noexcept { return handle_.done(); }
  // Waits for the hook's collective and resumes the hook until its next co_await or its end.
  void advance() {
    handle_.promise().awaited.wait();
    handle_.resume();
  }
  // Rethrows an exception that the hook has thrown so far.
  void check() const {
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
  }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit HookTask(Handle handle) : handle_(handle) {}
  Handle handle_;
};

using CommHook = std::function<HookTask(GradientBucket&)>;

}  // namespace ddp
