// SPDX-License-Identifier: Apache-2.0
// Which tensors start from which arrays, and what is refused.
#include "ddp_runtime/train/model/init_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "ddp_runtime/train/model/init_table.h"
#include "tests/unit/error_of.h"

namespace ddp::train {
namespace {

using ckpt::ArrayHeader;
using ckpt::DType;
using ckpt::NameMap;
using testing::HasSubstr;

const std::vector<ModelTensor> kModel = {
    {"conv.weight", {}, DType::float32, {4, 3}},
    {"fc.weight", {"head.weight"}, DType::float32, {2, 4}},
    {"fc.bias", {}, DType::float32, {2}},
    {"bn.num_batches_tracked", {}, DType::int64, {}},
};

const std::vector<ArrayHeader> kFile = {
    {"bn.num_batches_tracked", DType::int64, {}},
    {"conv.weight", DType::float32, {4, 3}},
    {"fc.bias", DType::float32, {2}},
    {"fc.weight", DType::float32, {2, 4}},
};

std::vector<ArrayHeader> with(ArrayHeader other) {
  auto file = kFile;
  for (auto& array : file) {
    if (array.name == other.name) {
      array = std::move(other);
      return file;
    }
  }
  file.push_back(std::move(other));
  return file;
}

std::vector<ArrayHeader> without(const std::string& name) {
  auto file = kFile;
  std::erase_if(file, [&](const ArrayHeader& array) { return array.name == name; });
  return file;
}

InitOptions options(const char* skip = "", const char* only = "") {
  InitOptions o;
  o.skip = ckpt::parse_patterns(skip);
  o.only = ckpt::parse_patterns(only);
  return o;
}

InitOptions matching() {
  InitOptions o;
  o.strict = InitStrictness::matching;
  return o;
}

InitOptions mapping(const char* lines) {
  InitOptions o;
  o.map = NameMap::parse(lines, "my.map");
  return o;
}

// One letter for each tensor of the model, in its order.
std::string outcomes(const InitPlan& plan) {
  std::string text;
  for (const auto& row : plan.rows) text += "tsunhy"[static_cast<std::size_t>(row.outcome)];
  return text + "/" + std::to_string(plan.unknown.size());
}

std::string planned(const std::vector<ArrayHeader>& file, const InitOptions& o = {}) {
  return outcomes(plan_initialization(kModel, file, o, "w.pt"));
}

std::string refusal(const std::vector<ArrayHeader>& file, const InitOptions& o = {}) {
  return error_of([&] { plan_initialization(kModel, file, o, "w.pt"); });
}

TEST(InitPlan, TakesWhatFits) {
  EXPECT_EQ(planned(kFile), "tttt/0");
  EXPECT_EQ(plan_initialization(kModel, kFile, {}, "w.pt").taken, 4);
  EXPECT_EQ(planned(kFile, options("fc.*")), "tsst/0");
  EXPECT_EQ(planned(kFile, options("", "conv.*,bn.*")), "tuut/0");
  EXPECT_EQ(planned(kFile, options("fc.bias", "fc.*")), "utsu/0");
  // A head that the model does not have can be left out, too.
  EXPECT_EQ(planned(with({"aux.weight", DType::float32, {7}}), options("aux.*")), "tttt/0");
  EXPECT_EQ(planned(with({"aux.weight", DType::float32, {7}}), options("", "conv.*")), "tuuu/0");
  EXPECT_EQ(planned(with({"fc.weight", DType::float32, {9, 4}}), options("fc.weight")), "tstt/0");
}

TEST(InitPlan, CountersOfBatchNormMayBeMissing) {
  EXPECT_EQ(planned(without("bn.num_batches_tracked")), "tttn/0");
  EXPECT_TRUE(is_batch_counter("num_batches_tracked"));
  EXPECT_FALSE(is_batch_counter("my_num_batches_tracked"));
}

TEST(InitPlan, RefusesDifferencesThatNoOptionExplains) {
  EXPECT_THAT(
      refusal(with({"fc.weight", DType::float32, {9, 4}})),
      HasSubstr("'w.pt' does not fit the model: 1 tensor has another shape (fc.weight is [2, "
                "4], and [9, 4] in the file); leave them out by --init-skip"));
  EXPECT_THAT(refusal(without("conv.weight")),
              HasSubstr("1 tensor is not in the file (conv.weight)"));
  EXPECT_THAT(refusal(with({"aux", DType::float32, {7}})),
              HasSubstr("1 array of the file is not in the model (aux)"));
  EXPECT_THAT(refusal(with({"fc.bias", DType::int64, {2}})),
              HasSubstr("1 tensor has another type (fc.bias is float32, and int64 in the file)"));
  EXPECT_THAT(refusal(with({"bn.num_batches_tracked", DType::float32, {}})),
              HasSubstr("another type (bn.num_batches_tracked is int64"));
  auto many = kFile;
  for (const char* name : {"a", "b", "c", "d"}) many.push_back({name, DType::float32, {}});
  EXPECT_THAT(refusal(many), HasSubstr("4 arrays of the file are not in the model (a, b, c, ...)"));
}

TEST(InitPlan, MatchingTakesTheRestButNotNothing) {
  EXPECT_EQ(planned(with({"fc.weight", DType::float32, {9, 4}}), matching()), "thtt/0");
  EXPECT_EQ(planned(with({"fc.bias", DType::int64, {2}}), matching()), "ttyt/0");
  EXPECT_EQ(planned(without("conv.weight"), matching()), "nttt/0");
  EXPECT_EQ(planned(with({"aux", DType::float32, {7}}), matching()), "tttt/1");
  EXPECT_THAT(refusal({{"module.conv.weight", DType::float32, {4, 3}}}, matching()),
              HasSubstr("no tensor of the model starts from 'w.pt'"));
}

TEST(InitPlan, AdvisesAPrefix) {
  const std::vector<ArrayHeader> file = {{"net.fc.bias", DType::float32, {2}},
                                         {"net.conv.weight", DType::float32, {4, 3}}};
  EXPECT_THAT(refusal(file), HasSubstr("use --init-prefix net., which removes it from the names"));
  EXPECT_THAT(refusal({{"xfc.bias", DType::float32, {2}}}), HasSubstr("use --init-map"));
}

TEST(InitPlan, RefusesOptionsWithoutEffect) {
  EXPECT_THAT(refusal(kFile, options("head.*x")),
              HasSubstr("--init-skip 'head.*x' matches no tensor of the model or the file"));
  EXPECT_THAT(refusal(kFile, options("", "heads.*")),
              HasSubstr("--init-only 'heads.*' matches no"));
  EXPECT_THAT(refusal(kFile, options("*")), HasSubstr("the options leave out all of them"));
  EXPECT_THAT(refusal(kFile, mapping("h.* -> blocks.*\n")),
              HasSubstr("the map 'my.map' matches none of the 4 names in the file"));
}

TEST(InitPlan, MapsAndTransposes) {
  auto file = without("conv.weight");
  file.push_back({"c", DType::float16, {3, 4}});
  EXPECT_EQ(planned(file, mapping("c -> conv.weight transpose\n")), "tttt/0");
  EXPECT_THAT(refusal(file, mapping("c -> conv.weight\n")),
              HasSubstr("conv.weight is [4, 3], and [3, 4] in the file"));
  // Only a matrix has dimensions to exchange.
  EXPECT_THAT(refusal(kFile, mapping("fc.bias -> fc.bias transpose\n")),
              HasSubstr("fc.bias is [2], and [2] before it is transposed in the file"));
  EXPECT_EQ(planned(with({"mask", DType::boolean, {9}}), mapping("mask -> -\n")), "tttt/0");
}

TEST(InitPlan, TiedTensorsHaveSeveralNames) {
  const auto both =
      plan_initialization(kModel, with({"head.weight", DType::float32, {2, 4}}), {}, "w.pt");
  EXPECT_EQ(outcomes(both), "tttt/0");
  EXPECT_EQ(both.rows[1].sources.size(), 2U);
  auto other = without("fc.weight");
  other.push_back({"head.weight", DType::float32, {2, 4}});
  EXPECT_EQ(planned(other), "tttt/0");
}

TEST(InitPlan, ConvertsFloatingPointOnly) {
  const DType floats[] = {DType::float64, DType::float32, DType::float16, DType::bfloat16};
  for (const auto from : ckpt::kAllDTypes) {
    for (const auto to : ckpt::kAllDTypes) {
      const bool both = std::count(std::begin(floats), std::end(floats), from) > 0 &&
                        std::count(std::begin(floats), std::end(floats), to) > 0;
      EXPECT_EQ(converts(from, to), both || from == to)
          << ckpt::dtype_name(from) << " " << ckpt::dtype_name(to);
    }
  }
}

TEST(InitPlan, Strictness) {
  EXPECT_EQ(parse_init_strictness("matching"), InitStrictness::matching);
  EXPECT_THAT(error_of([] { parse_init_strictness("some"); }), HasSubstr("use all or matching"));
}

TEST(InitTable, SaysWhereEveryTensorComesFrom) {
  std::vector<ArrayHeader> file = {
      {"c", DType::float16, {3, 4}},           {"fc.bias", DType::float32, {9}},
      {"head.weight", DType::float32, {2, 4}}, {"fc.weight", DType::float32, {2, 4}},
      {"more", DType::float32, {1}},
  };
  auto o = mapping("c -> conv.weight transpose\n");
  o.strict = InitStrictness::matching;
  InitReport report{"dir/w.pt", "my.map", file, plan_initialization(kModel, file, o, "w.pt")};
  EXPECT_EQ(init_table(report),
            "2 of 4 tensors start from dir/w.pt (map my.map)\n"
            "  conv.weight             [4, 3]  c transposed (float16 to float32)\n"
            "  fc.weight               [2, 4]  head.weight = fc.weight\n"
            "  fc.bias                 [2]     initial value: [9] in the file\n"
            "  bn.num_batches_tracked  []      initial value: not in the file\n"
            "  not used: more [1]\n");
}

}  // namespace
}  // namespace ddp::train
