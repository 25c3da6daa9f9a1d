// How the gradients of a bucket travel, for those who want another way than the sum in full: a
// coroutine that is started when the bucket is full, and goes on when what it waits for is there.
//
//   ddp::HookTask in_bf16(ddp::GradientBucket& bucket) {
//     auto half = bucket.tensor().to(torch::kBFloat16);
//     co_await bucket.all_reduce(half);
//     bucket.tensor().copy_(half);
//   }
//
//   ddp::DistributedDataParallel replica(*net, group, {.hook = in_bf16});
//
// The hook finds in the bucket this rank's gradients, already divided by the number of ranks (and
// micro-batches), and leaves there what all ranks shall use: with a plain all_reduce the average.
// All ranks must run the same hook and it must wait equally often on all of them for the same
// bucket: hooks of several buckets go on in turns.
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

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/profile/interval.h"

namespace ddp {

// What `co_await` waits for. The collective is under way from the beginning: several may be.
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

// A gradient of a bucket: which parameter's, counted among those that require gradients, the same
// in every step; its part of the bucket, in the parameter's shape; and whether this rank used the
// parameter in this step (see DataParallelOptions::allow_unused): if not, the gradient is zero.
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
  // How many times buckets were reduced before: 0 in the first step.
  std::int64_t pass() const noexcept { return pass_; }
  // All gradients, one after the other: [elements], contiguous.
  const torch::Tensor& tensor() const noexcept { return tensor_; }
  std::span<const BucketMember> members() const noexcept { return members_; }
  // What all gradients are multiplied by because the loss was. It changes from step to step: a hook
  // that keeps some of a gradient for a later step keeps it divided by this. See
  // DistributedDataParallel::set_loss_scale().
  double loss_scale() const noexcept { return loss_scale_; }

  // Starts adding up `data`, contiguous and of the same size on all ranks, in place.
  Sent all_reduce(const torch::Tensor& data);

  // What was sent so far, as bytes of what was reduced.
  std::size_t bytes() const noexcept { return bytes_; }
  // From the beginning of its first collective to the end of its last one; valid once all are done.
  profile::Interval communication() const;

 private:
  comm::Group& group_;
  std::string name_;
  std::int64_t pass_;
  torch::Tensor tensor_;
  std::vector<BucketMember> members_;
  double loss_scale_;
  std::size_t bytes_ = 0;
  std::vector<comm::Work> works_;
};

// What a hook returns. Move-only; ends the coroutine with it.
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
  // Waits for what the hook waits for and lets it go on to its next co_await or its end.
  void advance() {
    handle_.promise().awaited.wait();
    handle_.resume();
  }
  // Throws what the hook has thrown so far.
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
