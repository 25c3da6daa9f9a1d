// SPDX-License-Identifier: Apache-2.0
// Patterns of names, maps of names, and the shipped maps.
#include "hdf5_ckpt/convert/name_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "hdf5_ckpt/convert/shipped_maps.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::ckpt {
namespace {

using testing::HasSubstr;

struct PatternCase {
  const char* pattern;
  const char* name;
  const char* texts;  // of the stars, separated by '|'; null: no match
};

TEST(NamePattern, MatchesWholeNames) {
  const PatternCase cases[] = {
      {"fc.weight", "fc.weight", ""},
      {"fc.weight", "fc.weight2", nullptr},
      {"fc.weight", "xfc.weight", nullptr},
      {"fc.*", "fc.weight", "weight"},
      {"fc.*", "fc.", ""},
      {"fc.*", "fc", nullptr},
      {"*", "a.b", "a.b"},
      {"*.weight", "a.b.weight", "a.b"},
      {"h.*.ln_1.*", "h.11.ln_1.bias", "11|bias"},
      {"h.*.ln_1.*", "h.ln_1.bias", nullptr},
      {"*a.b", "xa.ba.b", "xa.b"},        // the last piece has a fixed place
      {"*.a.*", "x.a.a.a.y", "x|a.a.y"},  // all stars but the last are short
      {"*.c", ".c", ""},
      {"a*a", "a", nullptr},  // the pieces do not overlap
      {"**", "ab", "|ab"},
  };
  for (const auto& c : cases) {
    const auto texts = NamePattern(c.pattern).match(c.name);
    ASSERT_EQ(texts.has_value(), c.texts != nullptr) << c.pattern << " " << c.name;
    if (!texts) continue;
    std::string joined;
    for (std::size_t i = 0; i < texts->size(); ++i)
      joined += (i > 0 ? "|" : "") + std::string((*texts)[i]);
    EXPECT_EQ(joined, c.texts) << c.pattern << " " << c.name;
  }
}

TEST(NamePattern, ManyStarsTakeNoExponentialTime) {
  std::string pattern;
  for (int i = 0; i < 300; ++i) pattern += "*a";
  EXPECT_FALSE(NamePattern(pattern + "b").matches(std::string(1024, 'a')));
}

TEST(NamePattern, ListsAreSeparatedByCommas) {
  EXPECT_TRUE(parse_patterns(" ").empty());
  const auto patterns = parse_patterns("fc.*, conv1.weight");
  ASSERT_EQ(patterns.size(), 2U);
  EXPECT_TRUE(any_matches(patterns, "conv1.weight"));
  EXPECT_FALSE(any_matches(patterns, "bn1.weight"));
  EXPECT_THAT(error_of([] { parse_patterns("fc.*,"); }), HasSubstr("is empty"));
  EXPECT_THAT(error_of([] { NamePattern(std::string(1025, 'a')); }), HasSubstr("longer than 1024"));
}

// "name", "name transpose", "-" for a tensor that is not needed, and "= name" if no line matched.
std::string mapped(const NameMap& map, const std::string& theirs) {
  const auto result = map.map(theirs);
  if (!result.name) return "-";
  return (result.by_rule ? "" : "= ") + *result.name + (result.transposed ? " transpose" : "");
}

TEST(NameMap, AppliesTheFirstLineThatMatches) {
  const auto map = NameMap::parse(
      "# a comment\n\n"
      "prefix module.\r\n"
      "prefix net.\n"
      "  wte.weight   ->  tokens.weight  # another one\n"
      "h.*.c.weight -> blocks.*.c.weight transpose\n"
      "h.0.* -> first.*\n"
      "h.*.* -> blocks.*.*\n"
      "*.mask -> -\n",
      "mine");
  const std::pair<const char*, const char*> cases[] = {
      {"wte.weight", "tokens.weight"},
      {"module.wte.weight", "tokens.weight"},
      {"net.wte.weight", "tokens.weight"},
      {"module.net.wte.weight", "= net.wte.weight"},  // one prefix at most
      {"module.", "= module."},
      {"h.3.c.weight", "blocks.3.c.weight transpose"},
      {"h.0.c.weight", "blocks.0.c.weight transpose"},
      {"h.0.c.bias", "first.c.bias"},
      {"h.1.ln.bias", "blocks.1.ln.bias"},
      {"attn.mask", "-"},
      {"other", "= other"},
      {"module.other", "= other"},
  };
  for (const auto& [theirs, ours] : cases) EXPECT_EQ(mapped(map, theirs), ours) << theirs;
  EXPECT_EQ(map.origin(), "mine");
  EXPECT_EQ(mapped(NameMap(), "a"), "= a");
}

TEST(NameMap, NamesTheLineThatIsWrong) {
  const char* const wrong[] = {"a",      "a -> ",  "a b -> c",   "a -> b c", "a -> b transpose c",
                               "a => b", "prefix", "prefix a b", "-> b"};
  for (const auto* line : wrong) {
    const auto error =
        error_of([&] { NameMap::parse(std::string("a -> b\n") + line + "\n", "my.map"); });
    EXPECT_THAT(error, HasSubstr("line 2 of the map 'my.map'")) << line;
    EXPECT_THAT(error, HasSubstr("'THEIRS -> OURS'")) << line;
  }
  EXPECT_THAT(error_of([] { NameMap::parse("a.* -> b", "m"); }),
              HasSubstr("line 1 of the map 'm': both sides must have the same number of '*'"));
}

TEST(NameMap, LeadsBack) {
  const auto map = NameMap::parse(
      "prefix net.\nold -> a\nx -> -\nw -> kept\nm.*.w -> blocks.*.w transpose\n"
      "a -> other\nlast -> first\nfirst -> last\n",
      "my.map");
  EXPECT_EQ(map.map_back("a").name, "old");
  const auto turned = map.map_back("blocks.7.w");
  EXPECT_EQ(turned.name, "m.7.w");
  EXPECT_TRUE(turned.transposed);
  EXPECT_EQ(map.map_back("first").name, "last");
  EXPECT_EQ(map.map_back("unmapped.bias").name, "unmapped.bias");
  // No name of the other program becomes one of these.
  for (const auto* ours : {"x", "old", "w", "net.unmapped"})
    EXPECT_THAT(error_of([&] { map.map_back(ours); }),
                HasSubstr("the map 'my.map' leads from no name to '" + std::string(ours) + "'"));
}

TEST(NameMap, OpensShippedMapsAndFiles) {
  const ddp::test::TemporaryDirectory directory;
  const auto file = directory.path() / "my.map";
  ddp::test::write(file, "a -> b\n");
  EXPECT_EQ(mapped(NameMap::open(file.string()), "a"), "b");
  EXPECT_EQ(NameMap::open("gpt2").origin(), "gpt2");
  EXPECT_THAT(error_of([] { NameMap::open("gpt3"); }),
              HasSubstr("no map or file 'gpt3'; the maps are gpt2 and torchvision-resnet"));
  EXPECT_THAT(error_of([&] { NameMap::open(directory.path().string()); }), HasSubstr("no map"));
  ddp::test::write(file, std::string((1U << 20) + 1, '\n'));
  EXPECT_THAT(error_of([&] { NameMap::open(file.string()); }), HasSubstr("larger than 1 MiB"));
}

TEST(ShippedMaps, Gpt2) {
  const auto map = NameMap::open("gpt2");
  const std::pair<const char*, const char*> cases[] = {
      {"wte.weight", "tokens.weight"},
      {"transformer.wte.weight", "tokens.weight"},
      {"lm_head.weight", "tokens.weight"},
      {"module.lm_head.weight", "tokens.weight"},
      {"module.transformer.wpe.weight", "positions.weight"},
      {"transformer.h.11.ln_1.weight", "blocks.11.norm1.weight"},
      {"transformer.h.11.ln_2.bias", "blocks.11.norm2.bias"},
      {"transformer.h.0.attn.c_attn.weight", "blocks.0.qkv.weight transpose"},
      {"transformer.h.0.attn.c_attn.bias", "blocks.0.qkv.bias"},
      {"transformer.h.0.attn.c_proj.weight", "blocks.0.projection.weight transpose"},
      {"h.0.attn.c_proj.bias", "blocks.0.projection.bias"},
      {"h.0.mlp.c_fc.weight", "blocks.0.expand.weight transpose"},
      {"h.0.mlp.c_fc.bias", "blocks.0.expand.bias"},
      {"h.0.mlp.c_proj.weight", "blocks.0.contract.weight transpose"},
      {"h.0.mlp.c_proj.bias", "blocks.0.contract.bias"},
      {"transformer.ln_f.weight", "norm.weight"},
      {"transformer.h.0.attn.bias", "-"},
      {"h.0.attn.masked_bias", "-"},
      {"score.weight", "= score.weight"},
  };
  for (const auto& [theirs, ours] : cases) EXPECT_EQ(mapped(map, theirs), ours) << theirs;
}

TEST(ShippedMaps, Gpt2LeadsBackToTheNamesOfTransformers) {
  const auto map = NameMap::open("gpt2");
  for (const auto* theirs :
       {"wte.weight", "wpe.weight", "h.11.ln_1.weight", "h.0.ln_2.bias", "h.0.attn.c_attn.weight",
        "h.0.attn.c_attn.bias", "ln_f.bias", "h.0.attn.c_proj.weight", "h.0.attn.c_proj.bias",
        "h.3.mlp.c_fc.weight", "h.3.mlp.c_fc.bias", "h.3.mlp.c_proj.weight",
        "h.3.mlp.c_proj.bias"}) {
    const auto ours = map.map(theirs);
    EXPECT_EQ(map.map_back(*ours.name).name, theirs);
    EXPECT_EQ(map.map_back(*ours.name).transposed, ours.transposed) << theirs;
  }
}

TEST(ShippedMaps, TorchvisionResnetKeepsNames) {
  const auto map = NameMap::open("torchvision-resnet");
  EXPECT_EQ(mapped(map, "layer1.0.conv1.weight"), "= layer1.0.conv1.weight");
  EXPECT_EQ(mapped(map, "module.fc.bias"), "= fc.bias");
}

}  // namespace
}  // namespace ddp::ckpt
