// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/layers/activation_checkpoint.h"

#include <ATen/Context.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "ddp_runtime/torch_compat.h"

namespace ddp {
namespace {

// State of a device, other than the arguments, that affects the function's result.
class DeviceState {
 public:
  explicit DeviceState(torch::Device device)
      : device_(device),
        autocast_(torch_compat::autocast_enabled(device.type())),
        type_(torch_compat::autocast_type(device.type())) {
    auto generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    random_ = generator.get_state();
  }
  torch::Device device() const { return device_; }
  void restore() const {
    auto generator = at::globalContext().defaultGenerator(device_);
    {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(random_);
    }
    torch_compat::set_autocast(device_.type(), autocast_, type_);
  }

 private:
  torch::Device device_;
  torch::Tensor random_;
  bool autocast_;
  torch::ScalarType type_;
};

// Of the CPU, whose generator a function may use on any device, and of the devices of the
// arguments.
using Surroundings = std::vector<DeviceState>;

Surroundings surroundings_of(const std::vector<torch::Tensor>& arguments) {
  std::vector<torch::Device> devices = {torch::kCPU};
  for (const auto& tensor : arguments) {
    const bool is_new = std::find(devices.begin(), devices.end(), tensor.device()) == devices.end();
    if (is_new) devices.push_back(tensor.device());
  }
  return {devices.begin(), devices.end()};
}

// Note [Casts of parameters]
// Autocast keeps the cast of a parameter until the outermost autocast scope ends, so that a
// parameter that is used twice is cast only once. This has two consequences for a function that
// runs twice. A cast made in forward, where autograd does not record, has no path back to its
// parameter: a later use of that cast yields no gradient for the parameter. And a cast made in
// backward, outside every scope, would stay until the next step, which would then compute with this
// step's value of the parameter. So forward keeps no casts, and backward starts with none and
// leaves none.

// While an instance exists, autocast neither stores casts nor looks them up.
class WithoutKeptCasts {
 public:
  WithoutKeptCasts() { at::autocast::set_autocast_cache_enabled(false); }
  WithoutKeptCasts(const WithoutKeptCasts&) = delete;
  WithoutKeptCasts& operator=(const WithoutKeptCasts&) = delete;
  ~WithoutKeptCasts() { at::autocast::set_autocast_cache_enabled(before_); }

 private:
  bool before_ = at::autocast::is_autocast_cache_enabled();
};

// Restores forward's state while backward repeats the function, in a separate autocast scope.
class Restored {
 public:
  explicit Restored(const Surroundings& then) {
    for (const auto& state : then) now_.emplace_back(state.device());
    for (const auto& state : then) state.restore();
    at::autocast::clear_cache();
    at::autocast::increment_nesting();
  }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;
  ~Restored() {
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
    for (const auto& state : now_) state.restore();
  }

 private:
  Surroundings now_;
};

struct Segment {
  CheckpointedFunction function;
  std::size_t input_count = 0;
  Surroundings surroundings;
};

// A custom Function requires its extra arguments to be copyable into an IValue. A shared_ptr in a
// CustomClassHolder meets that requirement.
struct SegmentHolder : torch::CustomClassHolder {
  explicit SegmentHolder(Segment s) : segment(std::move(s)) {}
  Segment segment;
};

class Checkpoint : public torch::autograd::Function<Checkpoint> {
 public:
  // A TensorList, because a vector of tensors is not tracked.
  static torch::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList tensors,
                               const c10::intrusive_ptr<SegmentHolder>& holder) {
    context->saved_data["segment"] = c10::IValue::make_capsule(holder);
    context->save_for_backward(tensors.vec());
    const torch::NoGradGuard no_grad;
    const WithoutKeptCasts without_kept_casts;
    const auto inputs = tensors.slice(0, holder->segment.input_count).vec();
    return holder->segment.function(inputs);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& outputs) {
    const auto holder = c10::static_intrusive_pointer_cast<SegmentHolder>(
        context->saved_data["segment"].toCapsule());
    const Segment& segment = holder->segment;
    const auto saved = context->get_saved_variables();
    // The inputs become leaves of a separate graph; the parameters are leaves already.
    torch::autograd::variable_list leaves;
    for (std::size_t i = 0; i < saved.size(); ++i) {
      leaves.push_back(i < segment.input_count
                           ? saved[i].detach().requires_grad_(saved[i].requires_grad())
                           : saved[i]);
    }
    const Restored restored(segment.surroundings);
    const torch::AutoGradMode with_grad(true);
    const auto result = segment.function(
        {leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(segment.input_count)});
    torch::autograd::variable_list wanted;
    for (const auto& leaf : leaves) {
      if (leaf.requires_grad()) wanted.push_back(leaf);
    }
    const auto gradients = torch::autograd::grad({result}, wanted, {outputs[0]}, c10::nullopt,
                                                 /*create_graph=*/false, /*allow_unused=*/true);
    torch::autograd::tensor_list all;
    std::size_t next = 0;
    for (const auto& leaf : leaves) {
      all.push_back(leaf.requires_grad() ? gradients[next++] : torch::Tensor());
    }
    all.emplace_back();  // no gradient for the segment
    return all;
  }
};

}  // namespace

torch::Tensor checkpointed(const CheckpointedFunction& function,
                           const std::vector<torch::Tensor>& inputs,
                           const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> tensors = inputs;
  tensors.insert(tensors.end(), parameters.begin(), parameters.end());
  return Checkpoint::apply(at::TensorList(tensors),
                           c10::make_intrusive<SegmentHolder>(
                               Segment{function, inputs.size(), surroundings_of(tensors)}));
}

}  // namespace ddp
