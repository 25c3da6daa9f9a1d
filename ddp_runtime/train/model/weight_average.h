// SPDX-License-Identifier: Apache-2.0
// An exponential moving average of a model's weights, which often generalizes better than the
// weights of the last step (Polyak and Juditsky, 1992; Tarvainen and Valpola, "Mean teachers",
// 2017).
//
// After step t, average = d * average + (1 - d) * weights, where d = min(decay, t / (t + 9)): at
// the begin, an average that forgets slowly would mostly consist of initial weights.
//
// Of parameters that are divided among the ranks, each rank averages its rows.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "ddp_runtime/train/state/state_array.h"
#include "ddp_runtime/train/state/user_state.h"

namespace ddp {
class DistributedDataParallel;
}  // namespace ddp

namespace ddp::train {

class WeightAverage {
 public:
  // Begins with the weights of now. `decay` is greater than 0 and less than 1. The averages are
  // float32, beside the weights; those of frozen parameters are left out, and buffers are not
  // averaged. `replica`, which may be null, has divided parameters of the module, and must outlive
  // this object.
  WeightAverage(const torch::nn::Module& module, double decay,
                DistributedDataParallel* replica = nullptr);

  // Begins again with the weights of now.
  void restart();
  // Adds the averages to what checkpoints hold: arrays "user/ema/<parameter>". Their names must not
  // be taken.
  void save_in(UserState& state) const;
  // After step number `step`, from 1. Does not wait for a device.
  void update(std::int64_t step);

  // The model has the averages as its weights until end(), and its own bits again afterwards. The
  // constructor and end() are collective if parameters are divided. Without end(), after an error,
  // the destructor gives this rank its own bits back.
  class Use {
   public:
    explicit Use(WeightAverage& average);
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use();
    void end();

   private:
    void put_back();
    void put_back_after_error() noexcept;

    WeightAverage& average_;
    std::vector<torch::Tensor> weights_;
  };

 private:
  double decay_;
  ParameterShards* shards_ = nullptr;  // with divided parameters
  // Parameters, or this rank's rows of them, which share their memory.
  std::vector<StateArray> weights_;
  std::vector<torch::Tensor> averages_;  // in the same order
};

}  // namespace ddp::train
