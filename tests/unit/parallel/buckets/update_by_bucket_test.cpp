// SPDX-License-Identifier: Apache-2.0
// backward_and_apply() compared with backward() and apply(), with ranks as threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <limits>
#include <utility>

#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/parallel/hooks/compression.h"
#include "tests/unit/parallel/branches.h"
#include "tests/unit/parallel/buckets/late_group.h"

namespace ddp::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;
using OptimizerPointer = std::unique_ptr<torch::optim::Optimizer>;

constexpr int kSteps = 5;

// Our optimizers on a GPU update by fused operators, and these do so on the device of this test.
template <class Base>
class Fusing : public Base {
 public:
  using Base::Base;

 protected:
  bool fuses(torch::DeviceType type) const override {
    return on_device() && type == test_device().type();
  }
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("spare", spare);
    register_module("last", last);
    frozen = register_parameter("frozen", torch::ones({9}), /*requires_grad=*/false);
  }
  torch::Tensor forward(const torch::Tensor& x, bool uses_spare) {
    auto y = torch::tanh(first(x) * frozen);
    if (uses_spare) y = torch::tanh(spare(y));
    return last(y);
  }

  torch::nn::Linear first{6, 9};
  torch::nn::Linear spare{9, 9};
  torch::nn::Linear last{9, 3};
  torch::Tensor frozen;
};
TORCH_MODULE(Net);

Net make_net() {
  return seeded([] { return Net(); });
}

torch::Tensor inputs_of(int batch) {
  return on_test_device(torch::sin(torch::arange(24, torch::kFloat32) + 7 * batch).view({4, 6}));
}

enum class Way : std::uint8_t { apart, by_bucket, mixed };

struct Case {
  std::string name;
  std::function<OptimizerPointer(const Net&, const torch::Tensor& own)> optimizer;
  DataParallelOptions options = {};
  int micro_batches = 1;
  bool spare_in_all_steps = true;
  bool last_rank_lacks_data = false;
  bool changes_learning_rate = false;
  bool doubles = false;  // the last layer

  friend std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }
};

class Training {
 public:
  Training(comm::Group& group, Case what, Way way)
      : case_(std::move(what)),
        by_bucket_(way == Way::by_bucket || (way == Way::mixed && group.rank() % 2 == 0)),
        group_(group),
        net_(make_net()),
        own_(on_test_device(torch::ones({4})).requires_grad_(true)) {
    if (case_.doubles) net_->last->to(torch::kFloat64);
    case_.options.buckets = {64, 200};
    replica_ = std::make_unique<DistributedDataParallel>(*net_, group, case_.options);
    optimizer_ = case_.optimizer(net_, own_);
  }

  void step() {
    own_.mutable_grad().reset();
    if (case_.changes_learning_rate) {
      for (auto& g : optimizer_->param_groups()) g.options().set_lr(0.01 * (number_ + 1));
    }
    const bool is_last = group_.size() > 1 && group_.rank() + 1 == group_.size();
    const bool has_data = !(case_.last_rank_lacks_data && is_last) || number_ % 2 == 0;
    auto step = case_.last_rank_lacks_data
                    ? *replica_->begin_uneven_step(has_data, case_.micro_batches)
                    : replica_->begin_step(case_.micro_batches);
    if (!step.has_data()) {
      step.without_data();
      step.apply(*optimizer_);
    } else {
      run_micro_batches(step);
    }
    ++number_;
  }

  std::vector<torch::Tensor> values() const {
    auto tensors = net_->parameters();
    tensors.push_back(own_);
    return on_cpu(tensors);
  }
  std::size_t buckets() const { return replica_->bucket_count(); }

 private:
  void run_micro_batches(GradientStep& step) {
    for (int m = 1; m <= case_.micro_batches; ++m) {
      const int batch = (number_ * case_.micro_batches + m) * group_.size() + group_.rank();
      // Otherwise with two ranks by one, by the other one, or by none.
      const bool uses_spare = case_.spare_in_all_steps || (number_ + group_.rank()) % 3 == 1;
      auto scores =
          case_.doubles ? double_scores(batch) : net_->forward(inputs_of(batch), uses_spare);
      const auto loss = loss_of(scores).to(torch::kFloat32) + own_.pow(2).mean();
      if (m < case_.micro_batches || !by_bucket_) {
        step.backward(loss);
      } else {
        step.backward_and_apply(loss, *optimizer_);
      }
    }
    if (!by_bucket_) step.apply(*optimizer_);
  }
  torch::Tensor double_scores(int batch) {
    const auto x = torch::tanh(net_->spare(torch::tanh(net_->first(inputs_of(batch)))));
    return net_->last(x.to(torch::kFloat64));
  }

  Case case_;
  bool by_bucket_;
  comm::Group& group_;
  Net net_;
  torch::Tensor own_;  // a parameter that is not the replica's
  std::unique_ptr<DistributedDataParallel> replica_;
  OptimizerPointer optimizer_;
  int number_ = 0;
};

// The parameters of rank 0 after each step.
std::vector<torch::Tensor> trained(int ranks, const Case& what, Way way) {
  std::vector<torch::Tensor> values;
  test::run_ranks(ranks, [&](comm::Group& group) {
    Training training(group, what, way);
    for (int i = 0; i < kSteps; ++i) {
      training.step();
      if (group.rank() != 0) continue;
      for (auto& value : training.values()) values.push_back(std::move(value));
    }
    if (ranks > 1) {
      EXPECT_GT(training.buckets(), 2U);
    }
  });
  return values;
}

template <class Optimizer, class Options>
auto over_all(const Options& options) {
  return [options](const Net& net, const torch::Tensor& own) -> OptimizerPointer {
    std::vector<torch::Tensor> parameters;
    for (const auto& p : net->parameters()) {
      if (p.requires_grad()) parameters.push_back(p);
    }
    parameters.push_back(own);
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

OptimizerPointer groups_of_some(const Net& net, const torch::Tensor& own) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{net->first->weight, own},
                      std::make_unique<AdamWOptions>(AdamWOptions(0.02).weight_decay(0.3)));
  groups.emplace_back(std::vector<torch::Tensor>{net->last->bias, net->spare->weight},
                      std::make_unique<AdamWOptions>(AdamWOptions(0.05).eps(1e-4)));
  return std::make_unique<Fusing<optim::AdamW>>(std::move(groups), AdamWOptions(0.01));
}

std::vector<Case> cases() {
  using OurAdamW = Fusing<optim::AdamW>;
  const auto adamw = over_all<OurAdamW>(AdamWOptions(0.05).weight_decay(0.1));
  const auto sgd = over_all<Fusing<optim::SGD>>(SGDOptions(0.1).momentum(0.9));
  const auto with = [](auto change) {
    DataParallelOptions options;
    change(options);
    return options;
  };
  const auto allow_unused = with([](auto& o) { o.allow_unused = true; });
  const auto static_graph = with([](auto& o) { o.static_graph = true; });
  const auto hook = with([](auto& o) { o.hook = hooks::bf16; });
  const auto fixed = with([](auto& o) { o.rebuild_buckets = false; });
  return {
      {"sgd", over_all<Fusing<optim::SGD>>(SGDOptions(0.1))},
      {"sgd_momentum", sgd},
      {"adam", over_all<Fusing<optim::Adam>>(AdamOptions(0.05))},
      {"adamw", adamw},
      {"adamw_amsgrad", over_all<OurAdamW>(AdamWOptions(0.05).amsgrad(true))},
      {"libtorch_adamw", over_all<torch::optim::AdamW>(AdamWOptions(0.05))},
      {"libtorch_rmsprop",
       over_all<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01).momentum(0.5))},
      {"groups_of_some_parameters", groups_of_some},
      {"micro_batches", adamw, {}, 3},
      {"learning_rate", adamw, {}, 1, true, false, true},
      {"fixed_buckets", adamw, fixed},
      {"without_data", adamw, {}, 1, true, true},
      {"without_data_micro_batches", sgd, {}, 2, true, true},
      {"allow_unused", adamw, allow_unused, 1, false},
      {"allow_unused_sgd", sgd, allow_unused, 2, false},
      {"static_graph", adamw, static_graph},
      {"static_graph_without_data", adamw, static_graph, 2, true, true},
      {"hook", adamw, hook},
      {"doubles", adamw, {}, 1, true, false, false, true},
  };
}

class UpdateByBucket : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { torch::set_num_threads(1); }
  static void expect_the_bits_of_apart(int ranks, Way way) {
    const auto expected = trained(ranks, GetParam(), Way::apart);
    const auto values = trained(ranks, GetParam(), way);
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(torch::equal(values[i], expected[i])) << i << " with " << ranks << " ranks";
    }
  }
};

TEST_P(UpdateByBucket, HasTheBitsOfBackwardAndApply) {
  for (const int ranks : {1, 2, 3}) expect_the_bits_of_apart(ranks, Way::by_bucket);
}

TEST_P(UpdateByBucket, MayBeUsedOnSomeRanksOnly) {
  expect_the_bits_of_apart(3, Way::mixed);
}

INSTANTIATE_TEST_SUITE_P(Table, UpdateByBucket, testing::ValuesIn(cases()),
                         [](const auto& param_info) { return param_info.param.name; });

OptimizerPointer our_adamw(const Net& net) {
  return over_all<Fusing<optim::AdamW>>(AdamWOptions(0.05))(
      net, on_test_device(torch::ones({1})).requires_grad_(true));
}

// Which of the tensors differ from their copies.
std::vector<std::size_t> changed(const std::vector<torch::Tensor>& tensors,
                                 const std::vector<torch::Tensor>& before) {
  std::vector<std::size_t> indices;
  const auto now = on_cpu(tensors);
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (!torch::equal(now[i], before[i])) indices.push_back(i);
  }
  return indices;
}

// No sum of a bucket is even computed before the step waits for it. By then all earlier buckets
// have been updated, and no others.
TEST(UpdateByBucketOrder, EachBucketIsUpdatedBeforeTheNextOneArrives) {
  if (on_device()) GTEST_SKIP() << "the host does not wait for buckets";
  test::run_ranks(2, [](comm::Group& inner) {
    LateGroup group(inner, "bucket");
    auto net = make_net();
    DistributedDataParallel replica(
        *net, group, {.buckets = {1, 1}, .rebuild_buckets = false, .check_parameters_every = 0});
    const auto optimizer = our_adamw(net);
    for (int i = 0; i < 2; ++i) {
      // In the order of the buckets, one parameter each: the last parameter first.
      const std::vector<torch::Tensor> parameters{net->last->bias,  net->last->weight,
                                                  net->spare->bias, net->spare->weight,
                                                  net->first->bias, net->first->weight};
      const auto before = on_cpu(parameters);
      std::vector<std::vector<std::size_t>> updated;
      group.on_wait = [&] { updated.push_back(changed(parameters, before)); };
      auto step = replica.begin_step();
      step.backward_and_apply(loss_of(net->forward(inputs_of(inner.rank()), true)), *optimizer);
      EXPECT_THAT(updated, ElementsAre(ElementsAre(), ElementsAre(0), ElementsAre(0, 1),
                                       ElementsAre(0, 1, 2), ElementsAre(0, 1, 2, 3),
                                       ElementsAre(0, 1, 2, 3, 4)));
      EXPECT_THAT(changed(parameters, before), ElementsAre(0, 1, 2, 3, 4, 5));
    }
  });
}

using Use = std::function<void(DistributedDataParallel&, Net&, torch::optim::Optimizer&)>;

// Runs one good step, `prepare`, and then `fail`, which must throw, on two ranks. Expects that no
// parameter changes in `fail`, on any rank. Returns rank 0's error.
std::string error_without_update(
    const DataParallelOptions& options, const Use& fail,
    const Use& prepare = [](auto&, auto&, auto&) {}) {
  std::array<std::string, 2> errors;
  const auto on_rank = [&](comm::Group& group) {
    auto net = make_net();
    auto with_buckets = options;
    with_buckets.buckets = {1, 1};
    DistributedDataParallel replica(*net, group, with_buckets);
    const auto optimizer = our_adamw(net);
    auto step = replica.begin_step();
    step.backward_and_apply(loss_of(net->forward(inputs_of(group.rank()), true)), *optimizer);
    prepare(replica, net, *optimizer);
    const auto before = on_cpu(net->parameters());
    auto& error = errors.at(static_cast<std::size_t>(group.rank()));
    error = error_of([&] { fail(replica, net, *optimizer); });
    EXPECT_THAT(changed(net->parameters(), before), ElementsAre()) << group.rank() << error;
  };
  test::run_ranks(2, on_rank);
  EXPECT_NE(errors[1], "");
  return errors[0];
}

TEST(UpdateByBucketErrors, LossThatIsNotFiniteChangesNothing) {
  if (on_device()) GTEST_SKIP() << "found in the next step";
  const auto text = error_without_update(
      {}, [](DistributedDataParallel& replica, Net& net, torch::optim::Optimizer& optimizer) {
        auto loss = loss_of(net->forward(inputs_of(0), true));
        if (replica.group().rank() == 1) loss = loss * std::numeric_limits<float>::quiet_NaN();
        replica.begin_step().backward_and_apply(loss, optimizer);
      });
  EXPECT_THAT(text, HasSubstr("the loss is not finite on rank 1"));
}

TEST(UpdateByBucketErrors, DifferentTagsChangeNothing) {
  const auto text = error_without_update(
      {}, [](DistributedDataParallel& replica, Net& net, torch::optim::Optimizer& optimizer) {
        auto step = replica.begin_step(1, 7 + replica.group().rank());
        step.backward_and_apply(loss_of(net->forward(inputs_of(0), true)), optimizer);
      });
  EXPECT_THAT(text, AllOf(HasSubstr("not in the same step"), HasSubstr("tag 8")));
}

TEST(UpdateByBucketErrors, DifferentParametersChangeNothing) {
  const auto text = error_without_update(
      {.check_parameters_every = 2},
      [](DistributedDataParallel& replica, Net& net, torch::optim::Optimizer& optimizer) {
        auto step = replica.begin_step();
        step.backward_and_apply(loss_of(net->forward(inputs_of(0), true)), optimizer);
      },
      [](DistributedDataParallel& replica, Net& net, torch::optim::Optimizer&) {
        const torch::NoGradGuard no_grad;
        if (replica.group().rank() == 1) net->first->bias.add_(1);
      });
  EXPECT_THAT(text, AllOf(HasSubstr("first.bias"), HasSubstr("in step 2")));
}

TEST(UpdateByBucketErrors, MissingGradientChangesNothing) {
  const auto text = error_without_update(
      {}, [](DistributedDataParallel& replica, Net& net, torch::optim::Optimizer& optimizer) {
        auto step = replica.begin_step();
        step.backward_and_apply(loss_of(net->forward(inputs_of(0), false)), optimizer);
      });
  EXPECT_THAT(text, HasSubstr("no gradient for 2 of 6 parameters"));
}

TEST(UpdateByBucketErrors, EarlierMicroBatchIsRefusedBeforeBackward) {
  const auto text = error_without_update(
      {}, [](DistributedDataParallel& replica, Net& net, torch::optim::Optimizer& optimizer) {
        auto step = replica.begin_step(3);
        step.backward(loss_of(net->forward(inputs_of(0), true)));
        step.backward_and_apply(loss_of(net->forward(inputs_of(0), true)), optimizer);
      });
  EXPECT_THAT(text, HasSubstr("for the last of the 3 micro-batches of a step, which has seen 1"));
}

TEST(UpdateByBucketErrors, OptimizerWithAClosureIsRefused) {
  const auto text = error_without_update(
      {}, [](DistributedDataParallel& replica, Net& net, torch::optim::Optimizer&) {
        torch::optim::LBFGS optimizer(net->last->parameters(), 0.1);
        auto step = replica.begin_step();
        step.backward_and_apply(loss_of(net->forward(inputs_of(0), true)), optimizer);
      });
  EXPECT_THAT(text, HasSubstr("LBFGS"));
}

TEST(UpdateByBucketTimes, WaitsAndUpdatesAlternate) {
  test::run_ranks(2, [](comm::Group& group) {
    auto net = make_net();
    DistributedDataParallel replica(*net, group, small_buckets());
    const auto optimizer = our_adamw(net);
    const auto loss = [&] { return loss_of(net->forward(inputs_of(group.rank()), true)); };
    replica.begin_step().backward_and_apply(loss(), *optimizer);
    const auto& times = replica.times();
    if (!on_device()) {
      EXPECT_EQ(replica.communication().size(), replica.bucket_count());
    }
    // Each bucket's, and the rest. The last wait finds no bucket, and ends the step's bookkeeping.
    EXPECT_EQ(times.updates.size(), replica.bucket_count() + 1);
    EXPECT_EQ(times.waits.size(), replica.bucket_count() + 2);
    EXPECT_EQ(times.waits.front().begin, times.backward.end);
    for (std::size_t i = 0; i < replica.bucket_count(); ++i) {
      EXPECT_EQ(times.updates[i].begin, times.waits[i].end);
      EXPECT_EQ(times.waits[i + 1].begin, times.updates[i].end);
    }
    auto step = replica.begin_step();
    step.backward(loss());
    EXPECT_EQ(times.waits.size(), 1U);
    EXPECT_TRUE(times.updates.empty());
  });
}

}  // namespace
}  // namespace ddp::test
