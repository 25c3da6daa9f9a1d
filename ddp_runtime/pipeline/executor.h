// SPDX-License-Identifier: Apache-2.0
// Runs the operations of one rank of a pipeline.
//
// Note [Outputs of stages]
// After an output was sent, backward needs only the place in the graph from which it starts. So
// the executor keeps the edge of the graph instead of the tensor, whose memory is then free unless
// the graph itself has saved it.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/buckets/split_backward.h"
#include "ddp_runtime/pipeline/generator_seed.h"
#include "ddp_runtime/pipeline/messages.h"
#include "ddp_runtime/pipeline/micro_batch.h"
#include "ddp_runtime/pipeline/neighbors.h"
#include "ddp_runtime/pipeline/operation_time.h"
#include "ddp_runtime/pipeline/own_stages.h"
#include "ddp_runtime/pipeline/schedule.h"
#include "ddp_runtime/pipeline/stage_replicas.h"

namespace ddp::pipeline {

// One pass through a table of operations.
struct Pass {
  StepId id;
  Layout layout;
  std::span<const MicroBatch> micro_batches;
  double share = 1;                   // of each micro-batch in the mean
  float loss_scale = 1;               // of all gradients
  std::optional<std::uint64_t> seed;  // of all random numbers
  std::int64_t first_of_replica = 0;  // number of its first micro-batch among all replicas'
  bool splits_backward = false;       // the table has operations for its two parts
  bool keeps_times = false;           // see Executor::operation_times()
};

class Executor {
 public:
  // What it refers to must outlive it.
  Executor(const std::vector<OwnStage>& stages, const Neighbors& neighbors, const Loss& loss,
           StageReplicas& replicas, comm::FlightRecorder& recorder, torch::Device device);

  // Returns the result of each micro-batch on the rank with the last stage, nothing elsewhere: its
  // loss in a pass that trains, otherwise the output.
  std::vector<torch::Tensor> run(const Pass& pass, const std::vector<Operation>& table);
  // The part of the last run in which this rank was not waiting for others.
  std::chrono::duration<double> computing() const noexcept { return computing_; }
  // Of the operations of the last run, in their order, if it was to keep them.
  const std::vector<OperationTime>& operation_times() const noexcept { return times_; }

 private:
  // From forward until backward.
  struct Kept {
    torch::Tensor input;
    torch::Tensor loss;           // of the last stage
    torch::autograd::Edge start;  // of backward, for the other stages
    torch::Tensor output;         // only if StageReplicas must know it
    // Gradients of weights, if backward is split.
    c10::intrusive_ptr<PostponedGradients> postponed;
  };

  void begin(const std::vector<Operation>& table);
  void execute(const Operation& operation);
  void execute_timed(const Operation& operation);
  void forward(const Operation& operation);
  void backward(const Operation& operation);
  void input_gradient(const Operation& operation);
  void weight_gradient(const Operation& operation);
  torch::Tensor input_of(const Operation& operation);
  torch::Tensor call(const Operation& operation, const torch::Tensor& input);
  void pass_on(const Operation& operation, const torch::Tensor& output, Kept& kept);
  void finish_last(const Operation& operation, const torch::Tensor& output, Kept& kept);
  void start_backward(const Operation& operation, const Kept& kept);
  void return_gradient(const Operation& operation, const Kept& kept);
  template <class Body>
  auto named(const Operation& operation, const Body& body) const;
  template <class Receive>
  auto waited(const Receive& receive);
  std::size_t index_of(int stage) const noexcept;
  bool is_last(int stage) const noexcept { return stage == pass_.layout.stages() - 1; }
  bool is_alone() const noexcept { return pass_.layout.ranks == 1; }
  const MicroBatch& micro_batch(int number) const;

  const std::vector<OwnStage>& stages_;
  Neighbors neighbors_;
  const Loss& loss_;
  StageReplicas& replicas_;
  comm::FlightRecorder& recorder_;
  torch::Device device_;

  Pass pass_;
  std::map<Place, Kept> kept_;
  std::map<Place, c10::intrusive_ptr<PostponedGradients>> postponed_;
  std::vector<torch::Tensor> results_;
  Outbox outbox_;
  ActivationInbox activations_;
  GradientInbox gradients_;
  std::map<Place, Activation> own_activations_;  // between stages of the same rank
  std::map<Place, torch::Tensor> own_gradients_;
  std::chrono::steady_clock::time_point start_{};
  std::vector<OperationTime> times_;
  std::chrono::duration<double> computing_{};
  std::chrono::duration<double> waiting_{};
};

}  // namespace ddp::pipeline
