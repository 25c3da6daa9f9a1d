// SPDX-License-Identifier: Apache-2.0
// Models that start from files: of the real libraries, of our checkpoints, and wrong ones.
#include "ddp_runtime/train/model/initialize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>

#include "base/errors.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/train/model/freeze.h"
#include "ddp_runtime/train/state/array_views.h"
#include "hdf5_ckpt/convert/array_source.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/test_device.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Files that tests/interop/weights/make_weights.py made with torchvision and transformers, or that
// it has just made again.
fs::path weights_file(const std::string& file) {
  const char* const made = std::getenv("SLURM_DDP_WEIGHTS");
  return (made != nullptr ? fs::path(made)
                          : fs::path(SLURM_DDP_SOURCE_DIR) / "tests/interop/weights") /
         file;
}

std::vector<NamedTensor> all_of(const torch::nn::Module& module) {
  auto all = named_parameters(module);
  for (auto& buffer : named_buffers(module)) all.push_back(buffer);
  return all;
}

InitReport fill(torch::nn::Module& module, const fs::path& file, const InitOptions& options = {}) {
  return fill_from(file, options, module, all_of(module));
}

torch::Tensor expected(const std::string& name) {
  const auto source = ckpt::ArraySource::open(weights_file("expected.safetensors"));
  for (std::size_t i = 0; i < source.arrays().size(); ++i) {
    const auto& array = source.arrays()[i];
    if (array.name != name) continue;
    const std::vector<std::int64_t> sizes(array.shape.begin(), array.shape.end());
    const auto tensor = torch::empty(sizes, torch::TensorOptions().dtype(scalar_type(array.dtype)));
    const std::vector<ckpt::ArraySource::Read> reads = {
        {i, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}}};
    source.read(reads);
    return tensor;
  }
  ADD_FAILURE() << "no array " << name;
  return {};
}

std::shared_ptr<models::Model> gpt2_sized() {
  return models::make_model({.name = "gpt",
                             .input = {16},
                             .classes = 256,
                             .width = 16,
                             .layers = 2,
                             .heads = 2,
                             .tokens = true});
}

InitOptions with_map(const std::string& name) {
  InitOptions options;
  options.map = ckpt::NameMap::open(name);
  return options;
}

// The model computes the scores of the library from the same inputs.
void expect_scores(models::Model& model, const std::string& name) {
  const torch::NoGradGuard no_grad;
  model.eval();
  const auto theirs = expected(name + ".logits");
  const auto difference =
      (model.forward(expected(name + ".inputs")) - theirs).abs().max().item<double>();
  EXPECT_LE(difference, 1e-5);
  EXPECT_GT(theirs.abs().max().item<double>(), 0.5);  // or any model would be close
}

TEST(RealWeights, Gpt2ComputesTheScoresOfTransformers) {
  for (const char* file : {"gpt2.safetensors", "gpt2.pt"}) {
    const auto model = gpt2_sized();
    const auto report = fill(*model, weights_file(file), with_map("gpt2"));
    EXPECT_EQ(report.plan.taken, 28) << init_table(report);
    expect_scores(*model, "gpt2");
  }
}

TEST(RealWeights, ResnetComputesTheScoresOfTorchvision) {
  const auto model =
      models::make_model({.name = "resnet18", .input = {3, 40, 40}, .classes = 5, .width = 4});
  auto options = with_map("torchvision-resnet");
  options.prefix = "model/";
  const auto report = fill(*model, weights_file("resnet18.pt"), options);
  EXPECT_EQ(report.plan.taken, 122) << init_table(report);
  expect_scores(*model, "resnet18");
}

TEST(RealWeights, ANewHeadIsSkippedExplicitly) {
  const auto model =
      models::make_model({.name = "resnet18", .input = {3, 40, 40}, .classes = 9, .width = 4});
  InitOptions options;
  options.prefix = "model/";
  EXPECT_THAT(
      error_of([&] { fill(*model, weights_file("resnet18.pt"), options); }),
      HasSubstr("2 tensors have other shapes (fc.weight is [9, 32], and [5, 32] in the file"));
  options.skip = ckpt::parse_patterns("fc.*");
  EXPECT_EQ(fill(*model, weights_file("resnet18.pt"), options).plan.taken, 120);
}

struct Net : torch::nn::Module {
  explicit Net(double value = 0) {
    register_module("fc", fc);
    register_module("bn", bn);
    scale = register_buffer("scale", torch::full({2}, 3));
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) p.fill_(value);
  }
  torch::nn::Linear fc{3, 2};
  torch::nn::BatchNorm1d bn{2};
  torch::Tensor scale;
};

std::vector<torch::Tensor> values_of(const torch::nn::Module& module) {
  std::vector<torch::Tensor> values;
  for (const auto& t : all_of(module))
    values.push_back(t.tensor.detach().to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true));
  return values;
}

bool has(const torch::nn::Module& module, const std::vector<torch::Tensor>& values) {
  const auto mine = values_of(module);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!torch::equal(mine[i], values[i])) return false;
  }
  return mine.size() == values.size();
}

class Initialization : public testing::Test {
 protected:
  using Tensors = std::vector<NamedTensor>;

  // Saves tensors as a torch.save file.
  fs::path file(const Tensors& tensors) {
    const auto path = temporary_.path() / (std::to_string(files_++) + ".pt");
    std::vector<StateArray> contiguous;
    std::vector<ckpt::ArrayHeader> headers;
    for (const auto& t : tensors) contiguous.push_back({t.name, t.tensor.detach().contiguous()});
    const auto views = array_views(contiguous);
    for (const auto& view : views) headers.push_back({view.name, view.dtype, view.shape});
    ckpt::write_torch_file(
        path, headers, [&](std::size_t i, const ckpt::TakeBytes& take) { take(views[i].bytes); });
    return path;
  }

  test::TemporaryDirectory temporary_;
  int files_ = 0;
};

TEST_F(Initialization, TakesParametersAndBuffers) {
  Net from(0.5);
  from.bn->running_var.fill_(7);
  from.bn->num_batches_tracked.fill_(4);
  Net to;
  fill(to, file(all_of(from)));
  EXPECT_TRUE(has(to, values_of(from)));
}

TEST_F(Initialization, ConvertsFloatingPointValues) {
  for (const auto type : {torch::kFloat64, torch::kFloat16, torch::kBFloat16}) {
    Net from(1.5);
    auto tensors = all_of(from);
    for (auto& t : tensors) {
      if (t.tensor.is_floating_point()) t.tensor = t.tensor.to(type);
    }
    Net to;
    fill(to, file(tensors));
    EXPECT_TRUE(has(to, values_of(from))) << c10::toString(type);
    EXPECT_EQ(to.fc->weight.scalar_type(), torch::kFloat32);
  }
}

TEST_F(Initialization, ChangesNothingIfAnythingIsWrong) {
  struct Case {
    const char* name;
    torch::Tensor tensor;  // instead of the right one, or beside the right ones
    const char* error;
  };
  const std::vector<Case> cases = {
      {"fc.weight", torch::ones({2, 4}), "1 tensor has another shape"},
      {"fc.bias", torch::ones({2}, torch::kInt64), "1 tensor has another type"},
      {"more", torch::ones({2}), "1 array of the file is not in the model"},
      {"bn.bias", torch::full({2}, 1e300, torch::kFloat64),
       "'bn.bias' has values in the file that "
       "are too large for Float"},
  };
  for (const auto& c : cases) {
    Net from(2);
    auto tensors = all_of(from);
    bool replaced = false;
    for (auto& t : tensors) {
      if (t.name != c.name) continue;
      t.tensor = c.tensor;
      replaced = true;
    }
    if (!replaced) tensors.push_back({c.name, c.tensor});
    Net to;
    const auto before = values_of(to);
    EXPECT_THAT(error_of([&] { fill(to, file(tensors)); }), HasSubstr(c.error)) << c.name;
    EXPECT_TRUE(has(to, before)) << c.name;
  }
}

TEST_F(Initialization, InfiniteValuesOfTheFileAreKept) {
  Net from;
  auto tensors = all_of(from);
  tensors[0].tensor = torch::full({2, 3}, std::numeric_limits<double>::infinity(), torch::kFloat64);
  Net to;
  fill(to, file(tensors));
  EXPECT_TRUE(torch::isinf(to.fc->weight).all().item<bool>());
}

TEST_F(Initialization, DamageOfACheckpointChangesNothing) {
  Net from(2);
  std::vector<StateArray> arrays;
  for (const auto& t : all_of(from)) arrays.push_back({"model/" + t.name, t.tensor.detach()});
  const auto saved =
      ckpt::CheckpointDirectory(temporary_.path() / "root")
          .save(1, ckpt::OwnerTag::of_this_process("test", 0), array_views(arrays), {});
  Net whole;
  fill(whole, saved.path);
  EXPECT_TRUE(has(whole, values_of(from)));
  const auto checkpoint = ckpt::Checkpoint::open(saved.path);
  const auto& part = checkpoint.find("model/scale")->parts[0];
  std::fstream bytes(saved.path / part.file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(static_cast<std::streamoff>(part.offset));
  bytes.put('\x55');
  bytes.close();
  Net to;
  const auto before = values_of(to);
  EXPECT_THROW(fill(to, saved.path), ckpt::DamagedError);
  EXPECT_TRUE(has(to, before));
}

// A head that shares the tensor of the embedding.
struct Tied : torch::nn::Module {
  Tied() {
    register_module("embedding", embedding);
    register_module("head", head);
    head->weight = head->register_parameter("weight2", embedding->weight);
  }
  torch::nn::Embedding embedding{4, 3};
  torch::nn::Linear head{torch::nn::LinearOptions(3, 4).bias(false)};
};

TEST_F(Initialization, TiedTensorsMustHaveOneValue) {
  Tied model;
  const auto values = torch::rand({4, 3});
  const auto other = torch::rand({4, 3});
  const auto with_head = [&](const torch::Tensor& head) {
    return file({{"embedding.weight", values}, {"head.weight2", head}, {"head.weight", other}});
  };
  fill(model, with_head(values));
  EXPECT_TRUE(torch::equal(model.embedding->weight, values));
  EXPECT_THAT(error_of([&] { fill(model, with_head(other)); }),
              HasSubstr("'embedding.weight' and 'head.weight2' of the file are both "
                        "'embedding.weight' in the model, but their values differ"));
}

TEST_F(Initialization, AllRanksGetTheValuesOfRank0) {
  Net from(4);
  const auto path = file(all_of(from));
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = std::make_shared<Net>(group.rank());
    test::move_to_test_device(*net);
    const auto report = initialize_from(group, *net, path);
    EXPECT_EQ(report.plan.taken, group.rank() == 0 ? 8 : 0);
    EXPECT_TRUE(has(*net, values_of(from)));
  });
}

TEST_F(Initialization, AnErrorOfRank0ReachesAllRanks) {
  std::mutex mutex;
  int failed = 0;
  const auto error = error_of([&] {
    test::run_ranks(2, [&](comm::Group& group) {
      Net net(1);
      const auto before = values_of(net);
      try {
        initialize_from(group, net, temporary_.path() / "none.pt");
      } catch (...) {
        const std::lock_guard lock(mutex);
        ++failed;
        EXPECT_TRUE(has(net, before));
        throw;
      }
    });
  });
  EXPECT_EQ(failed, 2);
  EXPECT_THAT(error, HasSubstr("there is no file or checkpoint '"));
}

TEST_F(Initialization, Settings) {
  InitialWeights weights{"w.pt"};
  EXPECT_EQ(settings_of(weights), (std::map<std::string, std::string>{{"init_from", "w.pt"}}));
  weights.options = with_map("gpt2");
  weights.options.skip = ckpt::parse_patterns("a,b.*");
  weights.options.strict = InitStrictness::matching;
  EXPECT_EQ(settings_of(weights),
            (std::map<std::string, std::string>{{"init_from", "w.pt"},
                                                {"init_map", "gpt2"},
                                                {"init_skip", "a,b.*"},
                                                {"init_strict", "matching"}}));
}

TEST(Freeze, ChangesTheParametersThatMatch) {
  Net net;
  EXPECT_EQ(freeze(net, "fc.*"), 2);
  EXPECT_FALSE(net.fc->weight.requires_grad());
  EXPECT_TRUE(net.bn->weight.requires_grad());
  EXPECT_EQ(unfreeze(net, "fc.bias"), 1);
  EXPECT_TRUE(net.fc->bias.requires_grad());
  EXPECT_THAT(error_of([&] { freeze(net, "bn.*,gc.*"); }),
              HasSubstr("'gc.*' matches no parameter of the model; one of them is 'fc.weight'"));
  EXPECT_THAT(error_of([&] { freeze(net, "bn.*,fc.bias"); }),
              HasSubstr("leaves no parameter of the model to train"));
  EXPECT_TRUE(net.bn->weight.requires_grad());
}

// Unfreezing needs a new replica; the old one says so.
TEST(Freeze, WrappingAnewTrainsWhatWasUnfrozen) {
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = std::make_shared<Net>(1);
    test::move_to_test_device(*net);
    freeze(*net, "fc.*");
    const auto step = [&](DistributedDataParallel& replica) {
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      auto s = replica.begin_step();
      s.backward(net->bn(net->fc(test::on_test_device(torch::eye(3)))).pow(3).sum());
      s.apply(optimizer);
    };
    const auto before = net->fc->weight.detach().clone();
    {
      DistributedDataParallel replica(*net, group);
      step(replica);
      EXPECT_TRUE(torch::equal(net->fc->weight, before));
      unfreeze(*net, "fc.*");
      EXPECT_THAT(error_of([&] { replica.begin_step(); }),
                  HasSubstr("parameter 'fc.weight' was unfrozen after DistributedDataParallel was "
                            "created"));
    }
    net->fc->weight.detach().copy_(test::on_test_device(torch::rand({2, 3})));
    DistributedDataParallel again(*net, group);
    const auto start = net->fc->weight.detach().clone();
    step(again);
    EXPECT_FALSE(torch::equal(net->fc->weight, start));
  });
}

}  // namespace
}  // namespace ddp::train
