// SPDX-License-Identifier: Apache-2.0
// Activations and gradients on their way between neighbors.
//
// Note [Headers]
// An activation's shape may differ between micro-batches, and only its sender knows it. So each
// activation has a header of fixed size before it, on the same channel: type, shape, and the step,
// stage and micro-batch to which it belongs. A rank that is in another step, or runs another
// schedule, is therefore found by its neighbor before it computes with the wrong data. A gradient
// has the shape of the activation that its receiver has sent, and needs no header. If an activation
// does not depend on a parameter that is trained, it has no gradient, and the header says so.
//
// Note [Frames]
// A receiver knows the length of an activation only from its header, so the activation would be
// received only when the header is there: two messages, one after the other, while a rank waits. So
// a header has room behind it for an activation of the size of the one before it, which both ends
// know. If the next one fits, it travels there. Long activations, for which a copy takes longer
// than a message, and those on devices travel alone.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/group/work.h"
#include "ddp_runtime/pipeline/neighbors.h"
#include "ddp_runtime/pipeline/schedule.h"

namespace ddp::pipeline {

// What neighbors must have in common.
struct StepId {
  std::int64_t step = 0;
  std::int64_t micro_batches = 0;
  std::int64_t tag = 0;
  bool trains = true;

  friend bool operator==(const StepId&, const StepId&) = default;
};

struct Activation {
  torch::Tensor tensor;
  bool wants_gradient = false;
};

// The result of a stage, or the gradient of its input, and the micro-batch.
using Place = std::pair<int, int>;
inline Place place_of(const Operation& operation) noexcept {
  return {operation.stage, operation.micro_batch};
}

inline constexpr std::size_t kMaxDimensions = 8;
inline constexpr std::size_t kHeaderWords = 10 + kMaxDimensions;
using Header = std::array<std::int64_t, kHeaderWords>;
// In a frame. A multiple of a cache line, so that the activation behind it is aligned.
inline constexpr std::size_t kHeaderBytes = 192;
static_assert(sizeof(Header) <= kHeaderBytes);

// Sends in the background.
class Outbox {
 public:
  // `stage` is the sender. Throws UsageError for a tensor that cannot be sent.
  void send_activation(const Link& link, const StepId& id, const Operation& from,
                       const Activation& activation);
  void send_gradient(const Link& link, const Operation& from, const torch::Tensor& gradient);
  // Forgets what has been sent. Throws if a message has failed.
  void clean();
  // Waits for the rest.
  void finish();

 private:
  void add(const Link& link, const torch::Tensor& tensor, const Operation& from, const char* what);

  std::size_t room_ = 0;  // of the next frame, behind its header
  std::deque<comm::Work> works_;
};

// Receives activations in the order of the operations that need them, one ahead.
class ActivationInbox {
 public:
  ActivationInbox(const Link& link, torch::Device device) : link_(link), device_(device) {}

  // `expected`: the forwards of this step that need an activation.
  void begin(const StepId& id, std::vector<Operation> expected);
  // Receives what it can without waiting.
  void advance();
  // Waits for the next one. Throws RuntimeError if the neighbor has sent something else.
  Activation take();

 private:
  struct Arriving {
    Operation operation;
    torch::Tensor frame;
    comm::Work frame_work = {};
    bool has_header = false;
    Activation activation = {};
    comm::Work work = {};
  };
  void post_frame();
  void open_frame(Arriving& arriving);
  void require_same_step(const Header& header, const Operation& operation) const;
  void require_same_device(const Header& header) const;

  Link link_;
  torch::Device device_;
  std::size_t room_ = 0;  // of the next frame, behind its header
  StepId id_;
  std::vector<Operation> expected_;
  std::size_t next_ = 0;
  std::deque<Arriving> arriving_;
};

// The same for gradients, whose shapes the rank knows once it has sent the activations.
class GradientInbox {
 public:
  explicit GradientInbox(const Link& link) : link_(link) {}

  // `expected`: the backwards of this step that need a gradient.
  void begin(std::vector<Operation> expected);
  // The activation at `place` was sent; if it wants a gradient, that will have its shape.
  void announce(const Place& place, const Activation& activation);
  void advance();
  torch::Tensor take();

 private:
  struct Shape {
    std::vector<std::int64_t> sizes;
    torch::TensorOptions options;
  };
  struct Arriving {
    torch::Tensor gradient;
    comm::Work work;
  };

  Link link_;
  std::vector<Place> expected_;
  std::size_t next_ = 0;
  std::map<Place, std::optional<Shape>> announced_;
  std::deque<Arriving> arriving_;
};

}  // namespace ddp::pipeline
