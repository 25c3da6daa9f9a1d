// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"

namespace ddp::pipeline {
namespace {

constexpr std::size_t kAhead = 2;  // receives at once: the next one and the one after it
constexpr std::size_t kMaxCopied = std::size_t{1} << 20;  // bytes of an activation in a frame

enum HeaderWord : std::size_t {
  kStep,
  kMicroBatches,
  kTag,
  kTrains,
  kStage,
  kMicroBatch,
  kType,
  kWantsGradient,
  kDevice,
  kDimensions,
  kSizes
};

std::shared_ptr<const void> holder(const torch::Tensor& tensor) {
  return std::make_shared<const torch::Tensor>(tensor);
}

std::string label_of(const char* what, int stage, int micro_batch) {
  return fmt::format("{} of stage {}, micro-batch {}", what, stage, micro_batch);
}

// On a GPU, messages start together when the program asks for one of them: at once, because this
// rank may wait for others before it asks again.
comm::Work started(comm::Work work) {
  static_cast<void>(work.done());
  return work;
}

Header header_of(const StepId& id, const Operation& from, const Activation& activation) {
  const auto& tensor = activation.tensor;
  if (tensor.layout() != torch::kStrided || tensor.dim() > static_cast<int>(kMaxDimensions)) {
    throw UsageError(
        fmt::format("stage {} returns a {} tensor with {} dimensions; a stage can pass on a dense "
                    "tensor with at "
                    "most {} dimensions",
                    from.stage, tensor.layout() == torch::kStrided ? "dense" : "sparse",
                    tensor.dim(), kMaxDimensions));
  }
  Header header{};
  header[kStep] = id.step;
  header[kMicroBatches] = id.micro_batches;
  header[kTag] = id.tag;
  header[kTrains] = id.trains ? 1 : 0;
  header[kStage] = from.stage;
  header[kMicroBatch] = from.micro_batch;
  header[kType] = static_cast<std::int64_t>(tensor.scalar_type());
  header[kWantsGradient] = activation.wants_gradient ? 1 : 0;
  header[kDevice] = static_cast<std::int64_t>(tensor.device().type());
  header[kDimensions] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), header.begin() + kSizes);
  return header;
}

StepId id_in(const Header& header) {
  return {header[kStep], header[kMicroBatches], header[kTag], header[kTrains] != 0};
}

std::string describe_step(const StepId& id) {
  return fmt::format("{} step {} with {} (tag {})", id.trains ? "training" : "evaluation", id.step,
                     counted(id.micro_batches, "micro-batch", "es"), id.tag);
}

torch::Tensor empty_for(const Header& header, torch::Device device) {
  const auto dimensions = static_cast<std::size_t>(header[kDimensions]);
  const auto sizes = std::span(header).subspan(kSizes, std::min(dimensions, kMaxDimensions));
  return torch::empty(std::vector<std::int64_t>(sizes.begin(), sizes.end()),
                      torch::dtype(static_cast<torch::ScalarType>(header[kType])).device(device));
}

torch::Tensor empty_frame(std::size_t room) {
  return torch::empty({static_cast<std::int64_t>(kHeaderBytes + room)}, torch::kByte);
}

// What a frame has room for after one with this activation.
std::size_t room_after(const torch::Tensor& activation) {
  const bool can_be_copied = activation.is_cpu() && activation.nbytes() <= kMaxCopied;
  return can_be_copied ? activation.nbytes() : 0;
}

// Shares the memory of the frame.
torch::Tensor tensor_in(const torch::Tensor& frame, const torch::Tensor& like) {
  return torch::from_blob(
      frame.data_ptr<std::uint8_t>() + kHeaderBytes, like.sizes(), [frame](void*) {},
      like.options());
}

}  // namespace

// See Note [Frames].
void Outbox::send_activation(const Link& link, const StepId& id, const Operation& from,
                             const Activation& activation) {
  const auto header = header_of(id, from, activation);
  const auto tensor = activation.tensor.contiguous();
  const auto frame = empty_frame(room_);
  auto* const bytes = frame.data_ptr<std::uint8_t>();
  std::memset(bytes, 0, kHeaderBytes);
  std::memcpy(bytes, header.data(), sizeof(header));
  const bool fits = tensor.nbytes() <= room_;
  const std::size_t filled = fits ? tensor.nbytes() : 0;
  if (filled > 0) std::memcpy(bytes + kHeaderBytes, tensor.data_ptr(), filled);
  std::memset(bytes + kHeaderBytes + filled, 0, room_ - filled);
  works_.push_back(link.group->send(
      bytes_of(frame), link.peer, label_of("header", from.stage, from.micro_batch), holder(frame)));
  if (!fits) add(link, tensor, from, "activation");
  room_ = room_after(tensor);
}

void Outbox::send_gradient(const Link& link, const Operation& from, const torch::Tensor& gradient) {
  add(link, gradient.contiguous(), from, "gradient of the input");
}

void Outbox::add(const Link& link, const torch::Tensor& tensor, const Operation& from,
                 const char* what) {
  if (tensor.numel() == 0) return;
  works_.push_back(started(link.group->send(
      bytes_of(tensor), link.peer, label_of(what, from.stage, from.micro_batch), holder(tensor))));
}

void Outbox::clean() {
  while (!works_.empty() && works_.front().done()) {
    works_.front().wait_host();
    works_.pop_front();
  }
}

void Outbox::finish() {
  for (const auto& work : works_) work.wait_host();
  works_.clear();
}

void ActivationInbox::begin(const StepId& id, std::vector<Operation> expected) {
  id_ = id;
  expected_ = std::move(expected);
  next_ = 0;
  advance();
}

void ActivationInbox::post_frame() {
  Arriving arriving{.operation = expected_[next_++], .frame = empty_frame(room_)};
  const auto& [kind, stage, micro_batch] = arriving.operation;
  arriving.frame_work =
      link_.group->receive(bytes_of(arriving.frame), link_.peer,
                           label_of("header", stage - 1, micro_batch), holder(arriving.frame));
  arriving_.push_back(std::move(arriving));
}

void ActivationInbox::require_same_step(const Header& header, const Operation& operation) const {
  const auto mine = link_.group->world_rank(link_.group->rank());
  const auto id = id_in(header);
  if (id != id_) {
    throw RuntimeError(fmt::format(
        "rank {} is in {}, but rank {} sent an activation of {}; all ranks of a pipeline must "
        "run the same steps in the same order",
        mine, describe_step(id_), link_.world_rank(), describe_step(id)));
  }
  const auto& [kind, stage, micro_batch] = operation;
  if (header[kStage] == stage - 1 && header[kMicroBatch] == micro_batch) return;
  throw RuntimeError(fmt::format(
      "rank {} expected the activation of stage {} and micro-batch {}, but rank {} sent that of "
      "stage {} and micro-batch {}; all ranks of a pipeline must have the same schedule",
      mine, stage - 1, micro_batch, link_.world_rank(), header[kStage], header[kMicroBatch]));
}

void ActivationInbox::require_same_device(const Header& header) const {
  const auto type = static_cast<torch::DeviceType>(header[kDevice]);
  if (type == device_.type()) return;
  throw UsageError(fmt::format(
      "the stages of rank {} are on {}, but rank {} sent an activation from {}; give all stages "
      "one "
      "kind of device, and set PipelineOptions::device if a rank has no parameters",
      link_.group->world_rank(link_.group->rank()), c10::DeviceTypeName(device_.type(), true),
      link_.world_rank(), c10::DeviceTypeName(type, true)));
}

void ActivationInbox::open_frame(Arriving& arriving) {
  arriving.frame_work.wait();
  Header header;
  std::memcpy(header.data(), arriving.frame.data_ptr(), sizeof(header));
  require_same_step(header, arriving.operation);
  require_same_device(header);
  arriving.has_header = true;
  auto tensor = empty_for(header, device_);
  const bool fits = tensor.nbytes() <= room_;
  room_ = room_after(tensor);
  if (fits && tensor.nbytes() > 0) tensor = tensor_in(std::exchange(arriving.frame, {}), tensor);
  arriving.activation = {tensor, header[kWantsGradient] != 0};
  if (fits) return;
  const auto& [kind, stage, micro_batch] = arriving.operation;
  arriving.work =
      started(link_.group->receive(bytes_of(tensor), link_.peer,
                                   label_of("activation", stage - 1, micro_batch), holder(tensor)));
}

// Messages arrive in the order in which they are received, so a frame is received only after the
// activation before it.
void ActivationInbox::advance() {
  for (;;) {
    if (!arriving_.empty() && !arriving_.back().has_header) {
      if (!arriving_.back().frame_work.done()) return;
      open_frame(arriving_.back());
    }
    if (arriving_.size() >= kAhead || next_ == expected_.size()) return;
    post_frame();
  }
}

Activation ActivationInbox::take() {
  advance();
  auto& first = arriving_.front();
  if (!first.has_header) open_frame(first);
  first.work.wait();
  const Activation activation = first.activation;
  arriving_.pop_front();
  advance();
  return activation;
}

void GradientInbox::begin(std::vector<Operation> expected) {
  expected_.clear();
  for (const auto& operation : expected) expected_.push_back(place_of(operation));
  next_ = 0;
  announced_.clear();
}

void GradientInbox::announce(const Place& place, const Activation& activation) {
  auto& shape = announced_[place];
  if (!activation.wants_gradient) return;
  shape = {activation.tensor.sizes().vec(), activation.tensor.options().requires_grad(false)};
}

void GradientInbox::advance() {
  for (; arriving_.size() < kAhead && next_ < expected_.size(); ++next_) {
    const auto announced = announced_.extract(expected_[next_]);
    if (announced.empty()) return;
    const auto& shape = announced.mapped();
    if (!shape) continue;
    const auto& [stage, micro_batch] = announced.key();
    const auto gradient = torch::empty(shape->sizes, shape->options);
    comm::Work work;
    if (gradient.numel() > 0) {
      work = started(link_.group->receive(bytes_of(gradient), link_.peer,
                                          label_of("gradient of the input", stage + 1, micro_batch),
                                          holder(gradient)));
    }
    arriving_.push_back({gradient, std::move(work)});
  }
}

torch::Tensor GradientInbox::take() {
  advance();
  arriving_.front().work.wait();
  const auto gradient = arriving_.front().gradient;
  arriving_.pop_front();
  advance();
  return gradient;
}

}  // namespace ddp::pipeline
