// SPDX-License-Identifier: Apache-2.0
// A data set of one's own, whose samples differ in length: a collate function pads them to the
// longest one of the batch, and the loss counts each target once, whatever the batch and the rank
// in which it is. A GRU learns to say, after each bit of a sequence, whether the number of ones so
// far is odd. A resumed run gives bitwise the same model.
#include <ddp_runtime/ddp.h>

#include <iostream>

struct Bits {
  torch::Tensor bits;    // float [length]
  torch::Tensor is_odd;  // int64 [length]
};

struct Sequences : torch::data::Dataset<Sequences, Bits> {
  explicit Sequences(std::size_t number) : number_(number) {}
  Bits get(std::size_t index) override {
    const auto length = static_cast<std::int64_t>(4 + index * 7 % 13);
    const auto number = static_cast<std::int64_t>(index * 2654435761 % 65536);
    const auto bits = torch::full({length}, number).bitwise_right_shift(torch::arange(length)) % 2;
    return {bits.to(torch::kFloat32), bits.cumsum(0) % 2};
  }
  torch::optional<std::size_t> size() const override { return number_; }
  std::size_t number_;
};

// Targets behind the end of a sequence are -1.
static ddp::data::Batch pad(const std::vector<Bits>& samples) {
  std::vector<torch::Tensor> bits;
  std::vector<torch::Tensor> is_odd;
  for (const auto& sample : samples) {
    bits.push_back(sample.bits);
    is_odd.push_back(sample.is_odd);
  }
  return {at::pad_sequence(bits, true).unsqueeze(2), at::pad_sequence(is_odd, true, -1)};
}

struct Parity : torch::nn::Module {
  Parity() {
    register_module("gru", gru);
    register_module("output", output);
  }
  torch::nn::GRU gru{torch::nn::GRUOptions(1, 24).batch_first(true)};
  torch::nn::Linear output{24, 2};
};

int main(int argc, char** argv) {
  return ddp::run("own-data", {}, [&](ddp::World& world) {
    torch::manual_seed(1);
    Parity net;
    const auto targets_of = [](const ddp::data::Batch& batch) {
      return batch.targets.ne(-1).sum();
    };
    const auto loss = [&](const ddp::data::Batch& batch) {
      const auto scores = net.output(std::get<0>(net.gru(batch.inputs)));
      const auto options = torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-1);
      return torch::nn::functional::cross_entropy(scores.flatten(0, 1), batch.targets.flatten(),
                                                  options);
    };
    ddp::TrainOptions options;
    options.epochs = argc > 1 ? std::stoll(argv[1]) : 8;
    options.global_batch = 64;
    options.optimizer = {.name = "adam", .learning_rate = 0.01};
    options.checkpoint.directory = "own-data-checkpoints";
    ddp::train::TrainTask task{
        .program = "own-data",
        .command = "own-data",
        .model_name = "parity",
        .module = net,
        .data = {"sequences", ddp::data::from_torch(Sequences(2000), {}, pad),
                 ddp::data::from_torch(Sequences(300), {}, pad)},
        .batch_loss = loss,
        .weight = [&](const auto& b) { return targets_of(b).template item<double>(); }};
    const auto result = ddp::Trainer(world.group(), std::move(task), options).fit();
    if (world.is_leader()) std::cout << "loss per target " << result.evaluation.loss << "\n";
    return result.exit_code();
  });
}
